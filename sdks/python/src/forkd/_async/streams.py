"""Objects that are iterated: lists, running commands, running code, events and bytes."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Callable, Generic, List, Optional, Type, TypeVar, Union

from .._core.client import Lines, Pieces
from .._core.command import Command
from .._core.content import Download
from .._core.follow import Evaluation, Follow, Pages
from ..events import CommandEvent, EvalEvent
from ..models import CommandResult, Event
from ..reports import EvalResult
from ._flavour import result_of

T = TypeVar("T")


class AsyncPaginator(Generic[T]):
    """A list that is read page by page. Iterate it, or call `all()`."""

    def __init__(self, pages: Pages, convert: Callable[[Any], T]) -> None:
        self._pages = pages
        self._convert = convert
        self._ready: List[T] = []

    @property
    def has_next(self) -> bool:
        """Whether there may be more entries."""
        return bool(self._ready) or self._pages.has_next

    async def page(self) -> List[T]:
        """Returns the next page of up to 1000 entries; an empty list at the end."""
        if self._ready:
            ready, self._ready = self._ready, []
            return ready
        return [self._convert(each) for each in await result_of(self._pages.next())]

    async def all(self) -> List[T]:
        """Returns all entries that are left."""
        return [each async for each in self]

    def __aiter__(self) -> AsyncPaginator[T]:
        return self

    async def __anext__(self) -> T:
        while not self._ready:
            if not self._pages.has_next:
                raise StopAsyncIteration
            self._ready = await self.page()
            self._ready.reverse()
        return self._ready.pop()


class AsyncCommandHandle:
    """A running command. Iterate it for its events, call `wait()` for the result, or do both.

    The handle keeps up to 8 MiB of each output stream for `wait()`. After a restart of the daemon it attaches again,
    from the last byte it received. Leaving `async with` early kills a command of `stream()`, and only detaches from
    one that runs in the background.
    """

    def __init__(self, command: Command) -> None:
        self._command = command

    @property
    def exec_id(self) -> int:
        """Number of the command in its sandbox, for `commands.attach()`."""
        return self._command.exec_id

    @property
    def pid(self) -> Optional[int]:
        """Process id in the guest; None after `attach()`."""
        return self._command.pid

    async def wait(self) -> CommandResult:
        """Reads the rest of the events and returns the result."""
        return await result_of(self._command.wait())

    async def write(self, data: Union[str, bytes]) -> None:
        """Writes to stdin, in the order of the calls. The command needs `stdin_open=True` or a terminal."""
        await result_of(self._command.write(data))

    async def close_stdin(self) -> None:
        """Closes stdin after all writes."""
        await result_of(self._command.close_stdin())

    async def send_signal(self, name: str, *, timeout: Optional[float] = None) -> None:
        """Sends a signal, such as "SIGINT", to the process group of the command."""
        await result_of(self._command.call("execSignal", {"signal": name}, timeout))

    async def kill(self, *, timeout: Optional[float] = None) -> None:
        """Kills the process group of the command."""
        await self.send_signal("SIGKILL", timeout=timeout)

    async def resize(self, rows: int, cols: int, *, timeout: Optional[float] = None) -> None:
        """Sets the size of the terminal of a command that has one."""
        await result_of(self._command.call("execResize", {"rows": rows, "cols": cols}, timeout))

    async def aclose(self) -> None:
        """Stops reading the events; kills a command of `stream()` that still runs."""
        await result_of(self._command.close())

    def __aiter__(self) -> AsyncCommandHandle:
        return self

    async def __anext__(self) -> CommandEvent:
        event = await result_of(self._command.next())
        if event is None:
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> AsyncCommandHandle:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.aclose()


class AsyncEvalRun:
    """Code that runs. Iterate it for its output, call `wait()` for the result, or do both.

    Leaving `async with` early interrupts the code.
    """

    def __init__(self, evaluation: Evaluation) -> None:
        self._evaluation = evaluation

    async def wait(self) -> EvalResult:
        """Reads the rest of the events and returns the result."""
        return await result_of(self._evaluation.wait())

    async def aclose(self) -> None:
        """Stops reading, which interrupts the code if it still runs."""
        self._evaluation.close()

    def __aiter__(self) -> AsyncEvalRun:
        return self

    async def __anext__(self) -> EvalEvent:
        event = await result_of(self._evaluation.next())
        if event is None:
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> AsyncEvalRun:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.aclose()


class AsyncEventStream:
    """Events of the daemon as they happen. Reconnects and continues after the last event."""

    def __init__(self, follow: Follow) -> None:
        self._follow = follow

    async def aclose(self) -> None:
        """Closes the stream."""
        self._follow.close()

    def __aiter__(self) -> AsyncEventStream:
        return self

    async def __anext__(self) -> Event:
        event = await result_of(self._follow.next())
        if event is None:
            raise StopAsyncIteration
        return event

    async def __aenter__(self) -> AsyncEventStream:
        await result_of(self._follow.open())
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.aclose()


class AsyncByteStream:
    """Bytes as they arrive: the content of a file, or a log."""

    def __init__(self, pieces: Union[Pieces, Download]) -> None:
        self._pieces = pieces

    async def read(self) -> bytes:
        """Reads everything that is left."""
        return b"".join([piece async for piece in self])

    async def aclose(self) -> None:
        """Ends the transfer."""
        self._pieces.close()

    def __aiter__(self) -> AsyncByteStream:
        return self

    async def __anext__(self) -> bytes:
        piece = await result_of(self._pieces.next())
        if piece is None:
            raise StopAsyncIteration
        return piece

    async def __aenter__(self) -> AsyncByteStream:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.aclose()


class AsyncLineStream(Generic[T]):
    """Entries as they arrive, such as those of the log of a network."""

    def __init__(self, lines: Lines, convert: Callable[[Any], T]) -> None:
        self._lines = lines
        self._convert = convert

    async def aclose(self) -> None:
        """Closes the stream."""
        self._lines.close()

    def __aiter__(self) -> AsyncLineStream[T]:
        return self

    async def __anext__(self) -> T:
        line = await result_of(self._lines.next())
        if line is None:
            raise StopAsyncIteration
        return self._convert(line)

    async def __aenter__(self) -> AsyncLineStream[T]:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.aclose()
