"""What the core needs of its environment: connections, time and locks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, AsyncContextManager, Coroutine, Optional, Protocol, TypeVar, Union

T = TypeVar("T")


@dataclass(frozen=True)
class Place:
    """Where a daemon listens: a unix socket, or a host and a port."""

    #: For messages: the path of the socket, or the URL.
    name: str
    socket: Optional[str] = None
    host: str = ""
    port: int = 0
    #: Path before every route, without a slash at its end.
    prefix: str = ""
    secure: bool = False
    #: PEM text of the only certificates to trust.
    ca: Optional[str] = None
    #: Value of the header `Host`.
    authority: str = "localhost"


class DeadlineReached(Exception):
    """An operation did not end before its deadline."""


Bytes = Union[bytes, bytearray, memoryview]


class Raw(Protocol):
    """A connection with raw bytes."""

    async def receive(self, most: int, until: Optional[float]) -> bytes:
        """Returns up to `most` bytes; b"" at the end of the stream."""

    async def send(self, data: Bytes, until: Optional[float]) -> None:
        """Sends all bytes."""

    def has_input(self) -> bool:
        """Whether bytes or the end of the stream wait to be received. Such a connection is not idle."""

    def close(self) -> None:
        """Closes the connection at once. Can be called from another thread and more than once."""

    def detach(self) -> Any:
        """Hands the connection over as the object that programs of this flavour know."""


class Io(Protocol):
    """Connections, time and locks of one flavour."""

    async def connect(self, place: Place, until: Optional[float]) -> Raw:
        """Connects, with TLS if the place says so."""

    async def sleep(self, secs: float) -> None:
        """Waits."""

    def lock(self) -> AsyncContextManager[None]:
        """A lock for the tasks or threads of this flavour."""


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a coroutine of the core over blocking connections to its end."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    coroutine.close()
    raise RuntimeError("A coroutine of asyncio cannot run in the blocking SDK. Use AsyncSandbox.")
