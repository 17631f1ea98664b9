"""Streams that are more than one request: events with reconnecting, pages of lists, running code."""

from __future__ import annotations

import time
from typing import Any, Callable, Dict, List, Mapping, Optional

from .._convert import to_model
from ..errors import ForkdError, make_error
from ..events import Displayed, EvalEvent, Evaluated, Output
from ..models import Event
from ..reports import Display, EvalResult
from .client import Client, Events, Lines, page_length
from .command import OnText, report, told
from .decode import Output as Buffer
from .decode import output_bytes

_first_retry = 0.1
_longest_retry = 5.0
#: The daemon sends a comment every 15 s.
_silence_secs = 60.0
#: An id that no daemon knows: the next stream begins with `reset`.
_unknown_id = "000000000000-0"


class Follow:
    """Events of the daemon. Continues after the last event when it reconnects."""

    def __init__(
        self,
        client: Client,
        given: Mapping[str, Any],
        after: Optional[str],
        retry: float,
        until: Optional[float] = None,
    ) -> None:
        self._client = client
        self._given = given
        self._last = after
        self._retry = retry
        self._until = until
        self._stream: Optional[Events] = None
        self._lost_at: Optional[float] = None
        self._wait = _first_retry
        self._is_closed = False

    async def open(self) -> None:
        """Opens the stream, so that no later event is missed."""
        if self._stream is None:
            self._stream = await self._client.events(self._given, self._last, _silence_secs, self._until)
            self._lost_at = None
            self._wait = _first_retry

    async def next(self) -> Optional[Event]:
        """The next event; None once the stream is closed."""
        while not self._is_closed:
            try:
                await self.open()
                assert self._stream is not None
                value = await self._stream.next()
                if value is not None:
                    event = to_model(Event, value)
                    self._last = event.id
                    if event.type == "revoked":
                        self._is_closed = True
                        raise make_error("unauthenticated", event.reason or "The stream was ended")
                    if event.type != "overflow":
                        return event
                    # The daemon closes the connection now, and events are missing.
                    self._last = _unknown_id
                    continue
            except ForkdError as error:
                if error.code not in ("daemon_unreachable", "daemon_stopping"):
                    self.close()
                    raise
                if self._lost_at is not None and time.monotonic() - self._lost_at >= self._retry:
                    raise
                if self._retry == 0:
                    raise
            if self._stream is not None:
                self._stream.close()
                self._stream = None
            if self._retry == 0:
                self._is_closed = True
                return None
            if self._lost_at is None:
                self._lost_at = time.monotonic()
            # Polls, because a daemon that is not running cannot announce its start.
            await self._client.io.sleep(self._wait)
            self._wait = min(2 * self._wait, _longest_retry)
        return None

    def close(self) -> None:
        """Closes the stream."""
        self._is_closed = True
        if self._stream is not None:
            self._stream.close()


class Pages:
    """A list that is read page by page."""

    def __init__(
        self,
        client: Client,
        route: str,
        given: Mapping[str, Any],
        limit: Optional[int],
        timeout: Optional[float],
    ) -> None:
        if limit is not None and limit < 1:
            raise ValueError(f"limit must be 1 or more, not {limit}")
        self._client = client
        self._route = route
        self._given = given
        self._left = limit
        self._timeout = timeout
        self._cursor: Optional[str] = None
        #: Whether there may be more entries.
        self.has_next = True

    async def next(self) -> List[Any]:
        """The next page; empty at the end."""
        if not self.has_next:
            return []
        length = page_length if self._left is None else min(page_length, self._left)
        given: Dict[str, Any] = {**self._given, "limit": length, "cursor": self._cursor}
        entries, self._cursor = await self._client.page(self._route, given, self._timeout)
        if self._left is not None:
            entries = entries[: self._left]
            self._left -= len(entries)
        self.has_next = self._cursor is not None and self._left != 0
        return entries


class Evaluation:
    """Code that runs. The last event has the result."""

    def __init__(
        self,
        lines: Lines,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        on_result: Optional[Callable[[Display], Any]] = None,
    ) -> None:
        self._lines = lines
        self._on_result = on_result
        self._displays: List[Any] = []
        self._outputs = {"stdout": Buffer(), "stderr": Buffer()}
        self._callbacks = {"stdout": on_stdout, "stderr": on_stderr}
        self._result: Optional[EvalResult] = None

    async def next(self) -> Optional[EvalEvent]:
        """The next event; None after the last one."""
        while self._result is None:
            line = await self._lines.next()
            if line is None:
                raise make_error("daemon_unreachable", "The daemon's answer ended before the code did", {"cut": True})
            kind = line.get("type")
            if kind in ("stdout", "stderr"):
                data = output_bytes(line)
                offset = int(line.get("offset", 0))
                text = self._outputs[kind].add(offset, data)
                await report(self._callbacks[kind], text)
                return Output("stdout" if kind == "stdout" else "stderr", data, text, offset)
            if kind == "display":
                display = to_model(Display, line.get("display"))
                self._displays.append(line["display"])
                if self._on_result is not None:
                    await told(self._on_result(display))
                return Displayed(display)
            if kind == "result":
                self._result = to_model(EvalResult, self._with_output(line.get("result")))
                await self._lines.drain()
                return Evaluated(self._result)
        return None

    def _with_output(self, result: Any) -> Any:
        """The result of a stream lacks what was sent before it."""
        if not isinstance(result, dict):
            return result
        texts = {name: buffer.text() for name, buffer in self._outputs.items() if not result.get(name)}
        is_cut = any(buffer.truncated for buffer in self._outputs.values())
        shown = result.get("results") or self._displays
        return {**result, **texts, "results": shown, "truncated": is_cut or result.get("truncated", False)}

    async def wait(self) -> EvalResult:
        """Reads the rest of the events and returns the result."""
        while await self.next() is not None:
            pass
        assert self._result is not None
        return self._result

    def close(self) -> None:
        """Stops reading, which interrupts the code if it still runs."""
        self._lines.close()
