"""Sends requests and keeps connections open for the next ones."""

from __future__ import annotations

import os
import re
import ssl
import time
from typing import Any, Awaitable, Callable, Dict, List, Optional

from ..errors import ForkdError, make_error
from .http import Answer, Connection, Cut, NoAnswer, NotHttp, NotSent, Request, SourceFailed, head_of
from .io import Bytes, DeadlineReached, Io, Place

#: Shorter than the daemon's limit (65 s), so that no request uses a connection that is being closed.
_idle_secs = 55.0
#: A host that drops packets would otherwise hold a call for minutes.
_connect_secs = 10.0

#: Limits for a call without a deadline: one step of an upload, and the head of an answer after it.
_step_secs = 120.0
_answer_secs = 600.0

#: Returns the next piece of a body; b"" at its end.
Source = Callable[[], Awaitable[Bytes]]


class Pool:
    """The connections of one client."""

    def __init__(self, io: Io, place: Place, headers: Dict[str, str]) -> None:
        self.io = io
        self.place = place
        self._headers = headers
        self._idle: List[Connection] = []
        self._process = os.getpid()

    def close(self) -> None:
        """Closes idle connections."""
        while self._idle:
            self._idle.pop().raw.close()

    def __del__(self) -> None:
        self.close()

    async def send(self, request: Request, until: Optional[float], source: Optional[Source] = None) -> Answer:
        """Sends a request and waits for the head of its answer."""
        connection = self._take_idle()
        is_reused = connection is not None
        if connection is None:
            connection = await self._open(until)
        try:
            return await self._exchange(connection, request, until, source)
        except NoAnswer as error:
            # The daemon closed an idle connection. If the request was on its way, only reading is safe to repeat.
            was_sent = not isinstance(error, NotSent)
            if not is_reused or source is not None or (was_sent and request.method != "GET"):
                raise self._unreachable(error, was_sent=was_sent) from error
        connection = await self._open(until)
        try:
            return await self._exchange(connection, request, until, source)
        except NoAnswer as error:
            raise self._unreachable(error, was_sent=True) from error

    async def upgrade(self, request: Request, until: Optional[float]) -> Any:
        """Sends a request that turns its connection into raw bytes. Returns an Answer, or the connection."""
        connection = await self._open(until)
        try:
            answer = await self._exchange(connection, request, until, None, exact=True)
        except NoAnswer as error:
            raise self._unreachable(error, was_sent=True) from error
        if answer.status != 101:
            return answer
        answer.release = lambda is_reusable: None
        answer.close()
        return connection.raw.detach()

    async def _exchange(
        self,
        connection: Connection,
        request: Request,
        until: Optional[float],
        source: Optional[Source],
        *,
        exact: bool = False,
    ) -> Answer:
        is_sent = False
        try:
            if source is None:
                await self._send_whole(connection, request, until)
                is_sent = True
            else:
                is_sent = await self._send_pieces(connection, request, until, source)
            limit = until if source is None else _or_soon(until, _answer_secs)
            answer = await connection.answer(limit, exact=exact)
        except BaseException as error:
            connection.raw.close()
            if isinstance(error, SourceFailed):
                raise error.error from None
            known = self.failure(error, was_sent=True)
            if isinstance(error, NoAnswer) or known is error:
                raise
            raise known from error
        answer.release = lambda is_reusable: self._put_back(connection, is_reusable and is_sent)
        if answer.status != 101:
            answer.finish_if_empty()
        return answer

    async def _send_whole(self, connection: Connection, request: Request, until: Optional[float]) -> None:
        length = {"content-length": str(len(request.body))} if request.body or request.method == "POST" else {}
        head = head_of(request, self.place.authority, {**self._headers, **length})
        try:
            if len(request.body) <= 65_536:
                await connection.raw.send(head + request.body, until)
            else:
                await connection.raw.send(head, until)
                await connection.raw.send(request.body, until)
        except OSError:
            # The daemon may have answered before it read everything. Otherwise reading the answer fails too.
            if not connection.raw.has_input():
                raise NotSent("it closed the connection") from None

    async def _send_pieces(
        self, connection: Connection, request: Request, until: Optional[float], source: Source
    ) -> bool:
        """Sends a body in chunks. Returns False if the daemon answered before its end."""
        raw = connection.raw
        headers = {**self._headers, "transfer-encoding": "chunked"}
        await raw.send(head_of(request, self.place.authority, headers), _or_soon(until))
        while True:
            try:
                data = await source()
            except BaseException as error:
                raise SourceFailed(error) from error
            # With TLS, input can be a message of the protocol itself.
            if not self.place.secure and raw.has_input():
                return False
            try:
                if len(data) == 0:
                    await raw.send(b"0\r\n\r\n", _or_soon(until))
                    return True
                await raw.send(b"%x\r\n" % len(data), _or_soon(until))
                await raw.send(data, _or_soon(until))
                await raw.send(b"\r\n", _or_soon(until))
            except OSError:
                return False

    async def _open(self, until: Optional[float]) -> Connection:
        soon = time.monotonic() + _connect_secs
        is_late = until is not None and until < soon
        try:
            return Connection(await self.io.connect(self.place, until if is_late else soon))
        except DeadlineReached as error:
            if is_late:
                raise self.failure(error) from error
            raise self._unreachable(f"no connection within {_connect_secs:.0f} s") from error
        except (OSError, ValueError) as error:
            raise self._unreachable(error) from error

    def _take_idle(self) -> Optional[Connection]:
        if self._process != os.getpid():
            # A child of fork(2) shares the sockets of its parent: two writers would mix their requests.
            self._process = os.getpid()
            self._idle = []
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                return None
            if time.monotonic() - connection.idle_since < _idle_secs and not connection.raw.has_input():
                return connection
            connection.raw.close()

    def _put_back(self, connection: Connection, is_reusable: bool) -> None:
        if not is_reusable or self._process != os.getpid():
            connection.raw.close()
            return
        connection.idle_since = time.monotonic()
        self._idle.append(connection)

    def failure(self, error: BaseException, *, was_sent: bool = False) -> BaseException:
        """The error of the SDK for a failure while a request was sent or its answer was read."""
        if isinstance(error, DeadlineReached):
            return make_error("deadline_exceeded", f"The daemon at {self.place.name} did not answer in time")
        if isinstance(error, NotHttp):
            return self._unreachable(error, was_sent=was_sent)
        if isinstance(error, (Cut, OSError)) and not isinstance(error, ForkdError):
            return make_error(
                "daemon_unreachable",
                f"The answer of the daemon at {self.place.name} was cut before its end: {_words(error)}",
                {"target": self.place.name, "cut": True, "sent": was_sent},
            )
        return error

    def _unreachable(self, why: Any, *, was_sent: bool = False) -> ForkdError:
        words, remedy = self._explain(_words(why))
        details = {"target": self.place.name, "sent": was_sent}
        return make_error("daemon_unreachable", f"Cannot reach the daemon at {self.place.name}: {words}", details, remedy)

    def _explain(self, words: str) -> Any:
        name = self.place.name
        if self.place.socket is not None:
            return words, {"action": "start_daemon"}
        if self.place.secure and re.search(r"wrong.version.number|packet length too long|record layer", words, re.I):
            return "it does not use TLS", {"action": "use_address", "url": name.replace("https:", "http:", 1)}
        if self.place.secure and re.search(r"certificate|self.signed|hostname", words, re.I):
            return words, {"action": "trust_certificate"}
        if not self.place.secure and re.search(r"without an answer|reset|it answers with", words, re.I):
            return words, {"action": "try_tls", "url": name.replace("http:", "https:", 1)}
        return words, {"action": "check_address"}


def _or_soon(until: Optional[float], secs: float = _step_secs) -> float:
    return time.monotonic() + secs if until is None else until


def _words(why: Any) -> str:
    if isinstance(why, ssl.SSLError):
        return " ".join(str(why.args[-1] if why.args else why).split())
    if isinstance(why, OSError) and why.strerror:
        return why.strerror
    return " ".join(str(why).split()) or type(why).__name__
