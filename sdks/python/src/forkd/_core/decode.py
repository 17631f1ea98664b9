"""Bytes of streams → lines, events and text. Pure: no input or output happens here."""

from __future__ import annotations

import base64
import codecs
import json
from typing import Any, Dict, List, Mapping

from ..errors import error_of_body, make_error

#: Bytes of stdout or stderr that a result keeps.
max_buffered_output = 8 * 1024 * 1024
#: Longest line that a stream may have. The daemon's longest one is an answer with a large result.
_longest_line = 256 * 1024 * 1024


class LineDecoder:
    """Splits bytes at line feeds only: other separators, such as U+2028, are part of a line."""

    def __init__(self) -> None:
        self._pending: List[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> List[bytes]:
        """Returns the lines that are whole now, without empty ones."""
        head, *more = data.split(b"\n")
        self._pending.append(head)
        self._size += len(head)
        if self._size > _longest_line:
            raise make_error("internal", "A line of the daemon's answer is too long")
        lines: List[bytes] = []
        for following in more:
            line = b"".join(self._pending)
            self._pending = [following]
            self._size = len(following)
            if line:
                lines.append(line)
        return lines

    def finish(self) -> None:
        """Refuses a stream that ended in the middle of a line."""
        if self._size > 0:
            raise make_error("daemon_unreachable", "The daemon's answer ended in the middle of a line", {"cut": True})


def parse_line(line: bytes) -> Dict[str, Any]:
    """The object of a line. Raises the error of an `error` line."""
    try:
        value = json.loads(line)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        shown = line[:200].decode("utf-8", "replace")
        raise make_error("internal", "A line of the daemon's answer is not a JSON object", {"line": shown})
    if value.get("type") == "error" and "code" in value:
        raise error_of_body(value)
    return value


class EventDecoder:
    """Bytes of `text/event-stream` → the data of each event. Skips comments and an incomplete last event."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: List[bytes] = []

    def feed(self, data: bytes) -> List[bytes]:
        """Returns the data of the events that are whole now."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        events: List[bytes] = []
        for raw in lines:
            line = raw[:-1] if raw.endswith(b"\r") else raw
            if line.startswith(b"data:"):
                value = line[5:]
                self._data.append(value[1:] if value.startswith(b" ") else value)
            elif line == b"" and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events


def output_bytes(event: Mapping[str, Any]) -> bytes:
    """The bytes of a stdout or stderr line."""
    data = event.get("data")
    if not isinstance(data, str):
        raise make_error("internal", "A line of output has no data")
    if event.get("encoding") == "base64":
        return base64.b64decode(data)
    return data.encode("utf-8", "surrogatepass")


class Output:
    """One output stream of a command: keeps its first bytes for the result, and decodes text piece by piece."""

    def __init__(self, offset: int = 0) -> None:
        #: Bytes received, and skipped ones before them.
        self.seen = offset
        self.truncated = False
        self._pieces: List[bytes] = []
        self._size = 0
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, offset: int, data: bytes) -> str:
        """Takes the next bytes and returns their text. A character that is not whole yet comes with the next bytes."""
        if offset > self.seen:
            self.truncated = True  # The guest keeps only the last output of a command that no client reads.
        self.seen = offset + len(data)
        kept = data[: max_buffered_output - self._size]
        if len(kept) < len(data):
            self.truncated = True
        if kept:
            self._pieces.append(kept)
            self._size += len(kept)
        return self._decoder.decode(data)

    def text(self) -> str:
        """All output that was kept."""
        return b"".join(self._pieces).decode("utf-8", "replace")
