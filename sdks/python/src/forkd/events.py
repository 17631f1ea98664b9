"""What running commands and code report while they run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Optional, Union

from .reports import Display, EvalResult


@dataclass(frozen=True)
class Started:
    """The command runs."""

    exec_id: int
    #: Process id in the guest.
    pid: int
    type: Literal["started"] = "started"


@dataclass(frozen=True)
class Output:
    """A piece of output."""

    type: Literal["stdout", "stderr"]
    #: The bytes, exactly as the program wrote them.
    data: bytes
    #: Their text. A character whose bytes are not all there yet is in the text of the next piece.
    text: str
    #: Position of the first byte in this stream.
    offset: int


@dataclass(frozen=True)
class Exited:
    """The command has ended. It is the last event."""

    exit_code: int
    timed_out: bool
    duration_secs: float
    signal: Optional[str] = None
    type: Literal["exit"] = "exit"


@dataclass(frozen=True)
class Displayed:
    """The code displayed an object, or this is the value of its last expression."""

    display: Display
    type: Literal["display"] = "display"


@dataclass(frozen=True)
class Evaluated:
    """The code has ended. It is the last event."""

    result: EvalResult
    type: Literal["result"] = "result"


#: An event of a command: `type` is "started", "stdout", "stderr" or "exit".
CommandEvent = Union[Started, Output, Exited]
#: An event of code: `type` is "stdout", "stderr", "display" or "result".
EvalEvent = Union[Output, Displayed, Evaluated]
