"""Transfers between the daemon and registries."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional, Type, TypeVar

from .._convert import Model, to_model
from ..errors import make_error
from ..hub import TransferProgress
from .client import Client
from .command import told

M = TypeVar("M", bound=Model)


async def transfer(
    client: Client,
    route: str,
    request: Dict[str, Any],
    result: Type[M],
    on_progress: Optional[Callable[[TransferProgress], Any]],
    timeout: Optional[float],
) -> M:
    """Pushes or pulls. Leaving early stops the transfer; a later one continues."""
    lines = await client.lines(route, request, timeout)
    try:
        while True:
            line = await lines.next()
            if line is None:
                break
            if line.get("type") == "progress" and on_progress is not None:
                await told(on_progress(to_model(TransferProgress, line)))
            elif line.get("type") in ("pushed", "pulled"):
                return to_model(result, line.get(route))
    finally:
        lines.close()
    raise make_error("daemon_unreachable", f"The daemon's answer ended before the {route} was done", {"cut": True})
