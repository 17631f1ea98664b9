"""Children of one `sandbox.fork()`, whose snapshot the caller did not name."""

from __future__ import annotations

from typing import Iterable

from ..errors import ForkdError
from .client import Client


class Siblings:
    """Removes the snapshot of its children when the last of them is killed."""

    def __init__(self, client: Client, tag: str, ids: Iterable[str]) -> None:
        self._client = client
        self._tag = tag
        self._left = set(ids)

    async def leave(self, sandbox_id: str) -> None:
        """Counts a child as killed."""
        if sandbox_id not in self._left:
            return
        self._left.discard(sandbox_id)
        if not self._left:
            await self.remove()

    async def remove(self) -> None:
        """Removes the snapshot."""
        try:
            await self._client.call("removeSnapshot", {"tag": self._tag})
        except ForkdError:
            # A branch of a child, or another sandbox, still needs it; `gc(branches=True)` removes it later.
            pass
