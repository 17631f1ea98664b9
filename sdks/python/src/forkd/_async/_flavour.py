"""What differs between the SDK for asyncio and the blocking one."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import (
    Any,
    AsyncIterable,
    Awaitable,
    BinaryIO,
    Callable,
    Coroutine,
    Generator,
    Generic,
    Iterable,
    Optional,
    Tuple,
    Type,
    TypeVar,
    Union,
)

from .._core.aio import AioIo as FlavourIo

T = TypeVar("T")
S = TypeVar("S", bound="Any")

#: A connection to a port.
Tunnel = Tuple[asyncio.StreamReader, asyncio.StreamWriter]
#: Content of a file.
Content = Union[str, bytes, bytearray, memoryview, BinaryIO, Iterable[bytes], AsyncIterable[bytes]]
#: Receives text of an output stream.
OnText = Callable[[str], Union[None, Awaitable[None]]]


async def result_of(work: Coroutine[Any, Any, T]) -> T:
    """Runs work of the core."""
    return await work


class Opening(Generic[S]):
    """The result of a call that can be awaited, or used with `async with` directly."""

    def __init__(self, work: Coroutine[Any, Any, S]) -> None:
        self._work = work
        self._opened: Optional[S] = None

    def __await__(self) -> Generator[Any, None, S]:
        return self._work.__await__()

    async def __aenter__(self) -> S:
        self._opened = await self._work
        entered: S = await self._opened.__aenter__()
        return entered

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        assert self._opened is not None
        await self._opened.__aexit__(kind, error, trace)


def opening(work: Coroutine[Any, Any, S]) -> Opening[S]:
    """Lets a caller await the work or use it with `async with`."""
    return Opening(work)


class SandboxStart:
    """Refuses the constructor: a sandbox is made by a call that waits."""

    def __init__(self) -> None:
        raise TypeError("Use `await AsyncSandbox.create(tag)` or `async with AsyncSandbox.create(tag) as sandbox`")


__all__ = ["Content", "FlavourIo", "OnText", "Opening", "SandboxStart", "Tunnel", "opening", "result_of"]
