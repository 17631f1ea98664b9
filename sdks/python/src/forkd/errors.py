"""Errors of the SDK: one base class with a stable code, subclasses by family of codes."""

from __future__ import annotations

import builtins
import json
from typing import TYPE_CHECKING, Any, Dict, Mapping, Optional, Tuple, Type

from ._remedies import word_remedy

if TYPE_CHECKING:
    from .models import CommandResult
    from .reports import EvalResult


class ForkdError(Exception):
    """Base class of every error of forkd. Branch on `code` or on the subclass, never on the message."""

    #: Stable code, such as "sandbox_not_found".
    code: str
    #: What failed and why, without the remedy.
    message: str
    #: Facts about the failure; the keys depend on the code.
    details: Dict[str, Any]
    #: What the caller can do about it, as a sentence; None if nothing is known to help.
    remedy: Optional[str]
    #: The same as data (`action` and its parameters).
    remedy_data: Optional[Dict[str, Any]]

    def __init__(
        self,
        code: str,
        message: str,
        details: Optional[Mapping[str, Any]] = None,
        remedy: Optional[Mapping[str, Any]] = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = dict(details or {})
        self.remedy_data = dict(remedy) if remedy is not None else None
        self.remedy = word_remedy(self.remedy_data)

    def __str__(self) -> str:
        if self.remedy is None:
            return f"{self.message} [{self.code}]"
        return f"{self.message}. {self.remedy} [{self.code}]"

    def __reduce__(self) -> Tuple[Any, ...]:
        return (make_error, (self.code, self.message, self.details, self.remedy_data))

    @property
    def request_id(self) -> Optional[str]:
        """Id of the request in the daemon's log; None if the daemon did not answer."""
        value = self.details.get("request_id")
        return value if isinstance(value, str) else None

    @property
    def retryable(self) -> bool:
        """Whether the failure can disappear without a change of the request."""
        return self.code in _retryable


class InvalidRequestError(ForkdError, ValueError):
    """The request is invalid; `details["issues"]` names each field and its rule."""


class AuthenticationError(ForkdError):
    """The token or key is missing, wrong, removed or expired, or its scope is too small (`forbidden`)."""


class NotFoundError(ForkdError):
    """There is no sandbox, snapshot, file, command or other thing with this name."""


class ConflictError(ForkdError):
    """The state of a sandbox, snapshot or workspace does not allow the operation."""


class CapacityError(ForkdError):
    """A limit is reached: sandboxes, memory, disk or requests per second."""


class TimeoutError(ForkdError, builtins.TimeoutError):
    """The call took longer than its timeout. It is also a `TimeoutError` of Python."""


class DaemonUnreachableError(ForkdError, ConnectionError):
    """No daemon answers, or the connection broke. It is also a `ConnectionError` of Python."""


class GuestError(ForkdError):
    """The guest, its agent, its interpreter or its machine failed or refused."""


class RegistryError(ForkdError):
    """A registry does not answer, breaks its protocol, denies access, or has something that is damaged."""


class UnsupportedError(ForkdError):
    """This host, daemon or client cannot do it."""


class InternalError(ForkdError):
    """A bug in forkd, or an answer that did not come from forkd."""


class ForkError(ForkdError):
    """A child that could not be forked; it takes the place of the sandbox in the result."""

    #: Position of the child in the call, from 0.
    index: int

    def __init__(
        self,
        code: str,
        message: str,
        details: Optional[Mapping[str, Any]] = None,
        remedy: Optional[Mapping[str, Any]] = None,
        index: int = 0,
    ) -> None:
        super().__init__(code, message, details, remedy)
        self.index = index

    def __reduce__(self) -> Tuple[Any, ...]:
        return (ForkError, (self.code, self.message, self.details, self.remedy_data, self.index))


class CommandError(ForkdError):
    """A command failed although it had to succeed (`check=True`)."""

    #: Output and exit code of the command.
    result: CommandResult

    def __init__(self, command: str, result: CommandResult) -> None:
        if result.timed_out:
            how = "it ran out of time"
        elif result.signal is not None:
            how = f"it was ended by {result.signal}"
        else:
            how = f"exit code {result.exit_code}"
        output = result.stderr.strip() or result.stdout.strip()
        tail = "\n".join(output.split("\n")[-5:])
        code = "deadline_exceeded" if result.timed_out else "guest_refused"
        details = {"exec_id": result.exec_id, "exit_code": result.exit_code}
        super().__init__(code, f"Command {command} failed: {how}" + (f"\n{tail}" if tail else ""), details)
        self.command = command
        self.result = result

    def __reduce__(self) -> Tuple[Any, ...]:
        return (CommandError, (self.command, self.result))


class CodeError(ForkdError, RuntimeError):
    """Code raised an exception in the sandbox; the message is that exception."""

    #: Everything that the code printed and returned.
    result: EvalResult

    def __init__(self, result: EvalResult) -> None:
        if result.timed_out:
            message = "The code ran out of time"
        else:
            message = result.error or "The code failed"
        code = "deadline_exceeded" if result.timed_out else "guest_refused"
        super().__init__(code, message, {"traceback": result.traceback})
        self.result = result

    def __reduce__(self) -> Tuple[Any, ...]:
        return (CodeError, (self.result,))


#: Every code of the daemon, and its class.
error_classes: Dict[str, Type[ForkdError]] = {
    "invalid_request": InvalidRequestError,
    "invalid_recipe": InvalidRequestError,
    "invalid_image": InvalidRequestError,
    "invalid_signing_key": InvalidRequestError,
    "invalid_archive": InvalidRequestError,
    "unauthenticated": AuthenticationError,
    "forbidden": AuthenticationError,
    "registry_denied": RegistryError,
    "not_found": NotFoundError,
    "sandbox_not_found": NotFoundError,
    "snapshot_not_found": NotFoundError,
    "workspace_not_found": NotFoundError,
    "exec_not_found": NotFoundError,
    "artifact_not_found": NotFoundError,
    "secret_not_found": NotFoundError,
    "key_not_found": NotFoundError,
    "file_not_found": NotFoundError,
    "recipe_not_found": NotFoundError,
    "port_not_open": NotFoundError,
    "method_not_allowed": InvalidRequestError,
    "wrong_state": ConflictError,
    "sandbox_paused": ConflictError,
    "sandbox_dead": ConflictError,
    "snapshot_exists": ConflictError,
    "chain_too_deep": ConflictError,
    "snapshot_writing": ConflictError,
    "snapshot_failed": ConflictError,
    "snapshot_in_use": ConflictError,
    "snapshot_incompatible": ConflictError,
    "unsafe_snapshot": ConflictError,
    "signature_missing": ConflictError,
    "signature_invalid": ConflictError,
    "already_exists": ConflictError,
    "other_daemon": ConflictError,
    "workspace_not_saved": ConflictError,
    "data_dir_in_use": ConflictError,
    "body_too_large": InvalidRequestError,
    "idempotency_mismatch": InvalidRequestError,
    "guest_refused": GuestError,
    "capacity_exhausted": CapacityError,
    "rate_limited": CapacityError,
    "cancelled": ForkdError,
    "internal": InternalError,
    "snapshot_corrupt": InternalError,
    "unsupported": UnsupportedError,
    "limit_not_enforceable": UnsupportedError,
    "agent_unreachable": GuestError,
    "engine_failed": GuestError,
    "kernel_failed": GuestError,
    "port_refused": GuestError,
    "port_failed": GuestError,
    "registry_unreachable": RegistryError,
    "registry_failed": RegistryError,
    "artifact_corrupt": RegistryError,
    "host_not_ready": UnsupportedError,
    "daemon_stopping": DaemonUnreachableError,
    "daemon_unreachable": DaemonUnreachableError,
    "deadline_exceeded": TimeoutError,
    "disk_full": CapacityError,
}

_retryable = frozenset(
    "wrong_state snapshot_writing workspace_not_saved capacity_exhausted rate_limited cancelled"
    " agent_unreachable engine_failed kernel_failed port_refused registry_unreachable daemon_stopping daemon_unreachable"
    " deadline_exceeded disk_full".split()
)


def make_error(
    code: str,
    message: str,
    details: Optional[Mapping[str, Any]] = None,
    remedy: Optional[Mapping[str, Any]] = None,
) -> ForkdError:
    """Returns the error with the class of its code."""
    return error_classes.get(code, InternalError)(code, message, details, remedy)


def advice(text: str) -> Dict[str, Any]:
    """A remedy that is one sentence."""
    return {"action": "advice", "text": text}


def error_of_body(body: Mapping[str, Any]) -> ForkdError:
    """The error that an error body of the daemon describes. A code that this version does not know is internal."""
    code, message, details, remedy = _parts_of(body)
    return make_error(code, message, details, remedy)


def fork_error_of_body(body: Mapping[str, Any]) -> ForkError:
    """The error of one child in the answer to a fork."""
    code, message, details, remedy = _parts_of(body)
    index = body.get("index")
    return ForkError(code, message, details, remedy, index if isinstance(index, int) else 0)


def _parts_of(body: Mapping[str, Any]) -> Tuple[str, str, Dict[str, Any], Optional[Mapping[str, Any]]]:
    code = str(body.get("code"))
    given = body.get("details")
    details: Dict[str, Any] = dict(given) if isinstance(given, dict) else {}
    if isinstance(body.get("request_id"), str):
        details["request_id"] = body["request_id"]
    if code not in error_classes:
        details["unknown_code"] = code
        code = "internal"
    remedy = body.get("remedy")
    return code, str(body.get("error")), details, remedy if isinstance(remedy, dict) else None


def error_of_answer(status: int, content_type: str, body: bytes) -> ForkdError:
    """The error of an answer with a failure status. A proxy may have given it instead of the daemon."""
    text = body.decode("utf-8", "replace")
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if isinstance(value, dict) and isinstance(value.get("error"), str) and isinstance(value.get("code"), str):
        return error_of_body(value)
    details = {"status": status, "content_type": content_type, "body": text[:1000]}
    message = f"The answer with status {status} does not come from forkd ({content_type or 'no content type'})"
    remedy = advice("Check the `url` and the proxies between this program and the daemon.")
    code = "daemon_unreachable" if status in (502, 503, 504) else "internal"
    return make_error(code, message, details, remedy)
