"""The class `Controller` of the original forkd's Python SDK, for programs that were written for it."""

from __future__ import annotations

import json
import os
from typing import Any, Dict, List, Optional

from ._core.blocking import BlockingIo
from ._core.client import Client
from ._core.io import run
from ._core.target import find_daemon
from .errors import ForkdError

_default_url = "http://127.0.0.1:8889"
#: HTTP status of each code, for `ControllerError.status`.
_statuses = {
    "invalid_request": 400,
    "invalid_recipe": 400,
    "invalid_image": 400,
    "invalid_archive": 400,
    "unauthenticated": 401,
    "forbidden": 403,
    "method_not_allowed": 405,
    "body_too_large": 413,
    "idempotency_mismatch": 422,
    "guest_refused": 422,
    "capacity_exhausted": 429,
    "rate_limited": 429,
    "cancelled": 499,
    "unsupported": 501,
    "limit_not_enforceable": 501,
    "agent_unreachable": 502,
    "engine_failed": 502,
    "kernel_failed": 502,
    "port_refused": 502,
    "port_failed": 502,
    "host_not_ready": 503,
    "daemon_stopping": 503,
    "deadline_exceeded": 504,
    "disk_full": 507,
    "internal": 500,
    "snapshot_corrupt": 500,
    "port_not_open": 404,
}


class ControllerError(RuntimeError):
    """The daemon refused a call of `Controller`."""

    def __init__(self, status: int, body: Any, url: str) -> None:
        #: HTTP status.
        self.status = status
        #: The daemon's answer: an object with `error` and `code`, or text.
        self.body = body
        #: Address of the request.
        self.url = url
        shown = body if isinstance(body, str) else json.dumps(body)
        super().__init__(f"{url} answered with HTTP {status}: {shown}")


class Controller:
    """Calls the daemon with the methods and answers of the original SDK. `Forkd` and `Sandbox` can do more.

    base_url: address of the daemon; default: FORKD_URL, or the daemon of this user
    token: token or key; default: FORKD_TOKEN, or the token of the local daemon
    timeout: seconds for a call; default: 60
    """

    def __init__(
        self, base_url: Optional[str] = None, token: Optional[str] = None, timeout: float = 60.0
    ) -> None:
        self.base_url = (base_url or os.environ.get("FORKD_URL") or _default_url).rstrip("/")
        self.timeout = timeout
        target = find_daemon(url=base_url.rstrip("/") if base_url else None, token=token)
        self.token = token if token is not None else target.token
        self._client = Client(BlockingIo(), target)

    def list_snapshots(self) -> List[Dict[str, Any]]:
        """Lists the snapshots."""
        return self._list("listSnapshots")

    def delete_snapshot(self, tag: str) -> None:
        """Removes a snapshot."""
        self._call("removeSnapshot", tag=tag)

    def spawn_sandboxes(
        self,
        snapshot_tag: str,
        n: int = 1,
        per_child_netns: bool = False,
        memory_limit_mib: Optional[int] = None,
    ) -> List[Dict[str, Any]]:
        """Forks `n` sandboxes. `per_child_netns` has no effect: every sandbox has its own network."""
        given = {"snapshot_tag": snapshot_tag, "n": n, "memory_limit_mib": memory_limit_mib}
        return self._objects(self._call("fork", per_child_netns=per_child_netns, **given))

    def list_sandboxes(self) -> List[Dict[str, Any]]:
        """Lists the sandboxes."""
        return self._list("listSandboxes")

    def get_sandbox(self, sandbox_id: str) -> Dict[str, Any]:
        """Describes a sandbox."""
        return self._object(self._call("getSandbox", id=sandbox_id))

    def kill_sandbox(self, sandbox_id: str) -> None:
        """Kills a sandbox."""
        self._call("kill", id=sandbox_id)

    def branch_sandbox(
        self,
        sandbox_id: str,
        tag: Optional[str] = None,
        diff: bool = False,
        measure_diff: bool = False,
        mode: Optional[str] = None,
        wait: bool = True,
    ) -> Dict[str, Any]:
        """Snapshots a running sandbox, which continues."""
        given = {"tag": tag, "mode": mode, "diff": diff or None, "measure_diff": measure_diff or None}
        return self._object(self._call("branch", id=sandbox_id, wait=wait, **given))

    def exec_command(self, sandbox_id: str, args: List[str], timeout_secs: int = 30) -> Dict[str, Any]:
        """Runs a program and returns `stdout`, `stderr` and `exit_code`."""
        # A command may take longer than other calls.
        limit = 0 if timeout_secs == 0 else max(self.timeout, timeout_secs + 30)
        given: Dict[str, Any] = {"id": sandbox_id, "args": list(args), "timeout_secs": timeout_secs}
        return self._object(self._send("exec", given, limit))

    def eval_code(self, sandbox_id: str, code: str) -> Dict[str, Any]:
        """Evaluates code and returns `result`, `error` and `exit_code`."""
        return self._object(self._call("eval", id=sandbox_id, code=code))

    def ping_sandbox(self, sandbox_id: str) -> Dict[str, Any]:
        """Asks the agent in the guest whether it answers."""
        return self._object(self._call("ping", id=sandbox_id))

    def _call(self, route: str, **given: Any) -> Any:
        return self._send(route, given, self.timeout)

    def _send(self, route: str, given: Dict[str, Any], timeout: float) -> Any:
        try:
            return run(self._client.call(route, given, timeout))
        except ForkdError as error:
            if error.code == "daemon_unreachable":
                raise
            body = {"error": error.message, "code": error.code, "details": error.details}
            raise ControllerError(_status_of(error.code), body, self.base_url) from error

    def _list(self, route: str) -> List[Dict[str, Any]]:
        return self._objects(self._call(route))

    @staticmethod
    def _objects(answer: Any) -> List[Dict[str, Any]]:
        return [dict(each) for each in answer]

    @staticmethod
    def _object(answer: Any) -> Dict[str, Any]:
        return dict(answer)


def _status_of(code: str) -> int:
    if code in _statuses:
        return _statuses[code]
    return 404 if code.endswith("not_found") else 409
