"""A route and its input → a request; the answer → a value, lines, events or bytes."""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any, Dict, Generic, List, Mapping, Optional, Tuple, TypeVar
from urllib.parse import quote, urlencode

from .._convert import wrong_answer
from .._routes import routes
from .._version import __version__
from ..errors import DaemonUnreachableError, ForkdError, error_of_answer, make_error
from .decode import EventDecoder, LineDecoder, parse_line
from .http import Answer, Request
from .io import Io
from .pool import Pool, Source
from .target import Target

T = TypeVar("T")

#: Seconds for a call that does not start, save or stop machines.
quick_secs = 60.0
#: Seconds for the other ones. A fork of many children and a pause write gigabytes.
long_secs = 600.0
#: Longest silence of the daemon during the transfer of a file.
silence_secs = 120.0
_long_routes = frozenset(
    "fork branch pause resume rewind compact gc cleanup shutdown killAll createWorkspace suspendWorkspace"
    " resumeWorkspace deleteWorkspace doctor snapshotInfo removeSnapshot".split()
)
#: Longest page that the daemon allows.
page_length = 1000
_tunnel_protocol = "forkd-tcp"
#: A value of an input that is sent as null. A field with None is not sent.
null = object()


def deadline(timeout: Optional[float], default: float) -> Optional[float]:
    """When a call must end, by the monotonic clock. None means the default, 0 no limit."""
    secs = default if timeout is None else timeout
    if secs < 0 or secs != secs:
        raise ValueError(f"timeout must be 0 (no limit) or more, not {timeout}")
    return None if secs == 0 or secs == float("inf") else time.monotonic() + secs


class Client:
    """Calls routes of one daemon."""

    def __init__(self, io: Io, target: Target) -> None:
        headers = {"user-agent": f"forkd-python/{__version__}"}
        if target.token is not None:
            headers["authorization"] = f"Bearer {target.token}"
        self.io = io
        self.target = target
        self._pool = Pool(io, target.place, headers)
        self._wanted = target.data_dir

    def close(self) -> None:
        """Closes idle connections."""
        self._pool.close()

    async def call(
        self,
        route: str,
        given: Mapping[str, Any],
        timeout: Optional[float] = None,
        *,
        idempotency_key: Optional[str] = None,
    ) -> Any:
        """Returns the JSON value of the answer; None if the answer has no body."""
        until = deadline(timeout, long_secs if route in _long_routes else quick_secs)
        headers = {} if idempotency_key is None else {"idempotency-key": idempotency_key}
        answer = await self._send(route, given, until, headers)
        return await self._value(route, answer, until)

    async def page(
        self, route: str, given: Mapping[str, Any], timeout: Optional[float] = None
    ) -> Tuple[List[Any], Optional[str]]:
        """Returns one page of a list, and the cursor of the next one."""
        until = deadline(timeout, quick_secs)
        answer = await self._send(route, given, until)
        cursor = answer.headers.get("x-next-cursor")
        value = await self._value(route, answer, until)
        if not isinstance(value, list):
            raise wrong_answer(f"{route} did not answer with a list")
        return value, cursor

    async def lines(self, route: str, given: Mapping[str, Any], timeout: Optional[float] = None) -> Lines:
        """Opens a stream of lines of JSON. The timeout is for the whole stream; default: no limit."""
        until = deadline(timeout, 0)
        return Lines(self, await self._send(route, given, until, kind="application/x-ndjson"), until)

    async def events(
        self, given: Mapping[str, Any], last_id: Optional[str], silence: float, limit: Optional[float] = None
    ) -> Events:
        """Opens the stream of server-sent events. `limit` is when it must end, by the monotonic clock."""
        headers = {"accept": "text/event-stream"}
        if last_id is not None:
            headers["last-event-id"] = last_id
        until = time.monotonic() + quick_secs if limit is None else limit
        answer = await self._send("events", given, until, headers, kind="text/event-stream")
        return Events(self, answer, silence, limit)

    async def pieces(
        self, route: str, given: Mapping[str, Any], timeout: Optional[float] = None, *, silence: float = 0.0
    ) -> Pieces:
        """Opens a stream of bytes. `silence` is the longest time without a byte; 0: no limit."""
        until = deadline(timeout, 0)
        limit = until
        if limit is None and silence:
            limit = time.monotonic() + silence
        answer = await self._send(route, given, limit, kind="application/octet-stream")
        return Pieces(self, answer, until, silence)

    async def upload(
        self,
        route: str,
        given: Mapping[str, Any],
        body: Optional[bytes],
        source: Optional[Source],
        timeout: Optional[float],
    ) -> Any:
        """Sends bytes: either a whole body, or the pieces of a source."""
        until = deadline(timeout, 0)
        if until is None and source is None:
            until = time.monotonic() + silence_secs + len(body or b"") / 1_000_000
        headers = {"content-type": "application/octet-stream"}
        answer = await self._send(route, given, until, headers, body=body, source=source)
        return await self._value(route, answer, time.monotonic() + quick_secs if until is None else until)

    async def tunnel(self, sandbox_id: str, port: int, timeout: Optional[float] = None) -> Any:
        """Connects to a port of a sandbox. Returns the connection as the flavour knows it."""
        until = deadline(timeout, quick_secs)
        await self._check_data_dir(until)
        path = f"{self.target.place.prefix}/v1/sandboxes/{quote(sandbox_id, safe='')}/ports/{int(port)}/tcp"
        headers = {"connection": "Upgrade", "upgrade": _tunnel_protocol}
        found = await self._pool.upgrade(Request("GET", path, headers), until)
        if isinstance(found, Answer):
            raise await self._refusal(found, until)
        return found

    async def read_piece(self, answer: Answer, until: Optional[float]) -> bytes:
        """The next piece of an answer, with failures as errors of the SDK."""
        try:
            return await answer.piece(until)
        except BaseException as error:
            known = self._pool.failure(error, was_sent=True)
            if known is error:
                raise
            raise known from error

    async def _send(
        self,
        route: str,
        given: Mapping[str, Any],
        until: Optional[float],
        headers: Optional[Dict[str, str]] = None,
        *,
        kind: str = "application/json",
        body: Optional[bytes] = None,
        source: Optional[Source] = None,
    ) -> Answer:
        await self._check_data_dir(until)
        request = request_for(route, given, self.target.place.prefix, headers or {}, body)
        answer = await self._pool.send(request, until, source)
        if answer.status >= 400:
            raise await self._refusal(answer, until)
        found = answer.headers.get("content-type", "").split(";")[0].strip().lower()
        if answer.status >= 300 or (answer.status != 204 and found != kind):
            # For example the login page of a proxy, which must not pass for a file.
            raise await self._foreign(answer, until)
        return answer

    async def _refusal(self, answer: Answer, until: Optional[float]) -> ForkdError:
        return error_of_answer(answer.status, answer.headers.get("content-type", ""), await self._read(answer, until))

    async def _foreign(self, answer: Answer, until: Optional[float]) -> ForkdError:
        soon = time.monotonic() + 5.0
        first = await self.read_piece(answer, soon if until is None else min(soon, until))
        answer.close()
        return error_of_answer(answer.status, answer.headers.get("content-type", ""), b"\0" + first)

    async def _value(self, route: str, answer: Answer, until: Optional[float]) -> Any:
        body = await self._read(answer, until)
        if body == b"":
            return None
        try:
            return json.loads(body)
        except ValueError as error:
            raise wrong_answer(f"the answer to {route} is not JSON") from error

    async def _read(self, answer: Answer, until: Optional[float]) -> bytes:
        pieces: List[bytes] = []
        while True:
            data = await self.read_piece(answer, until)
            if data == b"":
                return b"".join(pieces)
            pieces.append(data)

    async def _check_data_dir(self, until: Optional[float]) -> None:
        """An empty data directory names no socket, and on the default socket another daemon may listen."""
        wanted = self._wanted
        if wanted is None:
            return
        request = request_for("status", {}, self.target.place.prefix, {}, None)
        answer = await self._pool.send(request, until)
        body = await self._read(answer, until)
        if answer.status == 200:
            try:
                used = json.loads(body).get("data_dir")
            except (ValueError, AttributeError):
                used = None
            if isinstance(used, str) and os.path.realpath(used) != os.path.realpath(wanted):
                name = self.target.place.name
                raise make_error(
                    "other_daemon",
                    f'Cannot use the daemon on {name}: its data directory is "{used}", not "{wanted}"',
                    {"socket": name, "data_dir": used, "wanted": wanted},
                    {"action": "use_own_places"},
                )
        self._wanted = None


class _Stream(Generic[T]):
    """Items of an answer that arrives piece by piece."""

    def __init__(self, client: Client, answer: Answer, until: Optional[float], silence: float = 0.0) -> None:
        self._client = client
        self._answer = answer
        self._until = until
        self._silence = silence
        self._ready: List[T] = []
        self._ended = False

    async def next(self) -> Optional[T]:
        """The next item; None at the end."""
        while not self._ready and not self._ended:
            until = self._until
            if self._silence:
                quiet = time.monotonic() + self._silence
                until = quiet if until is None else min(quiet, until)
            data = await self._client.read_piece(self._answer, until)
            if data == b"":
                self._ended = True
                self._finish()
            else:
                self._ready = self._decode(data)
                self._ready.reverse()
        return self._ready.pop() if self._ready else None

    async def drain(self) -> None:
        """Reads the end of an answer whose last item is known, so that its connection can be used again."""
        try:
            while not self._ended:
                if await self._client.read_piece(self._answer, time.monotonic() + 1.0) == b"":
                    self._ended = True
        except ForkdError:
            self.close()

    def close(self) -> None:
        """Ends the request."""
        self._ended = True
        self._ready = []
        self._answer.close()

    def _decode(self, data: bytes) -> List[T]:
        raise NotImplementedError

    def _finish(self) -> None:
        pass


class Lines(_Stream[Dict[str, Any]]):
    """Lines of JSON."""

    def __init__(self, client: Client, answer: Answer, until: Optional[float]) -> None:
        super().__init__(client, answer, until)
        self._decoder = LineDecoder()
        self._late: Optional[BaseException] = None

    async def next(self) -> Optional[Dict[str, Any]]:
        item = await super().next()
        if item is None and self._late is not None:
            late, self._late = self._late, None
            raise late
        return item

    def _decode(self, data: bytes) -> List[Dict[str, Any]]:
        items: List[Dict[str, Any]] = []
        for line in self._decoder.feed(data):
            try:
                items.append(parse_line(line))
            except ForkdError as error:
                # The lines before it come first.
                self._late = error
                self._ended = True
                self._answer.close()
                break
        return items

    def _finish(self) -> None:
        self._decoder.finish()


class Events(_Stream[Dict[str, Any]]):
    """Server-sent events."""

    def __init__(self, client: Client, answer: Answer, silence: float, until: Optional[float]) -> None:
        super().__init__(client, answer, until, silence)
        self._decoder = EventDecoder()

    async def next(self) -> Optional[Dict[str, Any]]:
        try:
            return await super().next()
        except ForkdError as error:
            is_over = self._until is not None and time.monotonic() >= self._until
            if error.code != "deadline_exceeded" or is_over:
                raise
            # The daemon sends a comment every 15 s, so that silence means a broken connection.
            self.close()
            raise DaemonUnreachableError("daemon_unreachable", "The stream of events is silent", {"cut": True}) from error

    def _decode(self, data: bytes) -> List[Dict[str, Any]]:
        return [parse_line(each) for each in self._decoder.feed(data)]


class Pieces(_Stream[bytes]):
    """Raw bytes."""

    def _decode(self, data: bytes) -> List[bytes]:
        return [data]


def request_for(
    route: str, given: Mapping[str, Any], prefix: str, headers: Dict[str, str], body: Optional[bytes]
) -> Request:
    """Puts path parameters into the path and the rest into the body (POST) or the query. Pure."""
    if route not in routes:
        raise ValueError(f'"{route}" is not a route of the daemon')
    method, pattern = routes[route]
    rest = {key: None if value is null else value for key, value in given.items() if value is not None}
    path = prefix + re.sub(r"\{(\w+)\}", lambda found: quote(str(rest.pop(found[1])), safe=""), pattern)
    if method == "POST":
        data = json.dumps(rest, ensure_ascii=True, allow_nan=False).encode()
        return Request(method, path, {"content-type": "application/json", **headers}, data)
    pairs = [
        (key, _in_query(each))
        for key, value in rest.items()
        for each in (value if isinstance(value, (list, tuple)) else [value])
    ]
    query = urlencode(pairs, quote_via=quote, errors="surrogateescape")
    return Request(method, f"{path}?{query}" if query else path, headers, body or b"")


def _in_query(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
