"""What differs between the blocking SDK and the one for asyncio."""

from __future__ import annotations

import socket
from typing import Any, BinaryIO, Callable, Iterable, Optional, TypeVar, Union

from .._core.blocking import BlockingIo as FlavourIo
from .._core.io import run as result_of
from ..errors import advice, make_error

T = TypeVar("T")

#: A connection to a port.
Tunnel = socket.socket
#: Content of a file.
Content = Union[str, bytes, bytearray, memoryview, BinaryIO, Iterable[bytes]]
#: Receives text of an output stream.
OnText = Callable[[str], None]


def opening(work: T) -> T:
    """The counterpart of a call that can be awaited or used with `async with`."""
    return work


class SandboxStart:
    """Makes a sandbox by its constructor, with the arguments of the SDK of the original forkd."""

    def __init__(
        self,
        tag: Optional[str] = None,
        target: Optional[str] = None,
        timeout: float = 30.0,
        *,
        spawn: bool = True,
    ) -> None:
        """Forks a sandbox. `Sandbox.create()` has more arguments.

        tag: tag of the snapshot; default: FORKD_TAG, or "pyagent"
        target: accepted for compatibility; the daemon knows where the guest is
        timeout: default of `commands.run()` and `eval()` in seconds; default: 30
        spawn: only True; `Sandbox.connect(id)` returns a sandbox that exists
        """
        if not spawn:
            raise make_error(
                "unsupported",
                f"Cannot connect to a guest by its address {target or ''}".rstrip(),
                remedy=advice("Call `Sandbox.connect(id)` to use a sandbox that exists."),
            )
        kind: Any = type(self)
        made = kind._create(tag, {}, None, None, None)
        here: Any = self
        here._set_up(made._client, made.info, float(timeout), made._own_forkd)


__all__ = ["Content", "FlavourIo", "OnText", "SandboxStart", "Tunnel", "opening", "result_of"]
