"""HTTP/1.1 over a raw connection: one request, then one answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Callable, Dict, List, Optional, Tuple

from .io import Raw

#: Bytes of one receive.
_piece = 262_144
#: Longest head of an answer, and longest line between chunks.
_longest_head = 65_536


class NotHttp(Exception):
    """The peer does not answer with HTTP/1.1."""


class Cut(Exception):
    """The connection ended in the middle of an answer."""


class NoAnswer(Exception):
    """The connection ended before the first byte of an answer."""


class NotSent(NoAnswer):
    """The connection ended before the whole request was sent, so that the daemon cannot have acted on it."""


class SourceFailed(Exception):
    """The source of a body failed. `error` is its own exception."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


@dataclass(frozen=True)
class Request:
    """A request for the daemon."""

    method: str
    #: Path with the query.
    path: str
    headers: Dict[str, str] = field(default_factory=dict)
    body: bytes = b""


def head_of(request: Request, authority: str, headers: Dict[str, str]) -> bytes:
    """The bytes of a request before its body. Refuses values that would begin another header."""
    lines = [f"{request.method} {request.path} HTTP/1.1", f"host: {authority}"]
    for name, value in {**request.headers, **headers}.items():
        if "\r" in value or "\n" in value or "\0" in value:
            raise ValueError(f"The header {name} must not contain a line break")
        lines.append(f"{name}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


class Answer:
    """One answer. Read it with `piece()` until b"", or close it."""

    def __init__(self, connection: Connection, status: int, headers: Dict[str, str]) -> None:
        self.status = status
        self.headers = headers
        self._connection = connection
        self._chunked = headers.get("transfer-encoding", "").lower().endswith("chunked")
        self._left: Optional[int] = None
        self._done = False
        #: What happens with the connection at the end of the answer; the argument says whether it can be used again.
        self.release: Callable[[bool], None] = lambda is_reusable: None
        if status in (204, 304) or 100 <= status < 200:
            self._left = 0
        elif not self._chunked and "content-length" in headers:
            text = headers["content-length"]
            if not text.isdecimal():
                raise NotHttp(f"its content-length is {text!r}")
            self._left = int(text)
        elif self._chunked:
            self._left = 0

    def finish_if_empty(self) -> None:
        """Releases the connection of an answer without a body."""
        if not self._chunked and self._left == 0:
            self._finish(True)

    async def piece(self, until: Optional[float]) -> bytes:
        """The next piece of the body; b"" at its end. Raises Cut if the connection ends before it."""
        if self._done:
            return b""
        try:
            data = await self._next(until)
        except BaseException:
            self._finish(False)
            raise
        return data

    async def _next(self, until: Optional[float]) -> bytes:
        connection = self._connection
        if self._chunked:
            if self._left == 0 and not await self._begin_chunk(until):
                self._finish(True)
                return b""
        elif self._left is None:
            data = await connection.some(_piece, until)
            if data == b"":
                self._finish(False)
            return data
        assert self._left is not None
        data = await connection.some(min(_piece, self._left), until)
        if data == b"":
            raise Cut("the connection ended")
        self._left -= len(data)
        if self._left == 0:
            if self._chunked:
                if await connection.line(until) != b"":
                    raise Cut("a chunk is too long")
            else:
                self._finish(True)
        return data

    async def _begin_chunk(self, until: Optional[float]) -> bool:
        size = (await self._connection.line(until)).split(b";")[0].strip()
        try:
            self._left = int(size, 16)
        except ValueError:
            raise Cut(f"{size[:20]!r} is not the size of a chunk") from None
        if self._left < 0:
            raise Cut("the size of a chunk is negative")
        if self._left > 0:
            return True
        while await self._connection.line(until) != b"":
            pass  # Trailers carry nothing for this client.
        return False

    async def read(self, until: Optional[float]) -> bytes:
        """The whole body."""
        pieces: List[bytes] = []
        while True:
            data = await self.piece(until)
            if data == b"":
                return b"".join(pieces)
            pieces.append(data)

    def close(self) -> None:
        """Ends the request. The daemon cancels what it does for it."""
        self._finish(False)

    def _finish(self, is_whole: bool) -> None:
        if self._done:
            return
        self._done = True
        keep = "close" not in self.headers.get("connection", "").lower()
        self.release(is_whole and keep and self.status != 101 and not self._connection.has_rest())

    def __del__(self) -> None:
        # A stream that the program has dropped must not hold its connection.
        self.close()


class Connection:
    """A connection to a daemon."""

    def __init__(self, raw: Raw) -> None:
        self.raw = raw
        self._rest = b""
        #: When it became idle, by the monotonic clock.
        self.idle_since = 0.0

    def has_rest(self) -> bool:
        """Whether bytes were received that no answer has."""
        return self._rest != b""

    async def some(self, most: int, until: Optional[float]) -> bytes:
        """Returns up to `most` bytes."""
        if self._rest == b"":
            data = await self.raw.receive(_piece, until)
            if len(data) <= most:
                return data
            self._rest = data
        data = self._rest[:most]
        self._rest = self._rest[most:]
        return data

    async def line(self, until: Optional[float]) -> bytes:
        """Returns the bytes before the next line break."""
        while True:
            end = self._rest.find(b"\n")
            if end >= 0:
                line = self._rest[:end]
                self._rest = self._rest[end + 1 :]
                return line[:-1] if line.endswith(b"\r") else line
            if len(self._rest) > _longest_head:
                raise NotHttp("a line is too long")
            data = await self.raw.receive(_piece, until)
            if data == b"":
                raise Cut("the connection ended")
            self._rest += data

    async def _first(self, most: int, until: Optional[float]) -> bytes:
        """Receives the first bytes of an answer. Says whether the request can have arrived if there are none."""
        try:
            data = await self.raw.receive(most, until)
        except BrokenPipeError:
            raise NotSent("it closed the connection") from None
        except ConnectionError as error:
            raise NoAnswer(f"it closed the connection without an answer ({error.strerror})") from None
        if data == b"":
            raise NoAnswer("it closed the connection without an answer")
        return data

    async def answer(self, until: Optional[float], *, exact: bool = False) -> Answer:
        """Reads the head of an answer. `exact` receives no byte after it, for a connection that changes hands."""
        while True:
            head = self._rest
            self._rest = b""
            while b"\r\n\r\n" not in head:
                if len(head) >= 5 and not head.startswith(b"HTTP/"):
                    raise NotHttp(f"it answers with {head[:40]!r}")
                if len(head) > _longest_head:
                    raise NotHttp("the head of its answer is too long")
                most = 1 if exact else _piece
                data = await (self.raw.receive(most, until) if head else self._first(most, until))
                if data == b"":
                    raise Cut("the connection ended")
                head += data
            head, _, self._rest = head.partition(b"\r\n\r\n")
            status, headers = _parse_head(head)
            if status >= 200 or status == 101:
                return Answer(self, status, headers)


def _parse_head(head: bytes) -> Tuple[int, Dict[str, str]]:
    first, *lines = head.decode("latin-1").split("\r\n")
    parts = first.split(" ", 2)
    if not parts[0].startswith("HTTP/1.") or len(parts) < 2 or not (parts[1].isdecimal() and len(parts[1]) == 3):
        raise NotHttp(f"it answers with {first[:40]!r}")
    headers: Dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(parts[1]), headers
