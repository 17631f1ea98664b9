# Made from _async/machine.py by tools/make-sync.py: do not edit.
"""What one sandbox does: code, logs, pause, resume, rewind, timeouts and its end."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Type, TypeVar, Union

from .._convert import to_model, to_models
from .._core.client import Client, null
from .._core.follow import Evaluation
from .._core.siblings import Siblings
from .._core.requests import flag, whole_secs
from ..errors import CodeError, ForkdError
from ..models import Context, EvalInfo, Ping, SandboxInfo, ServiceInfo
from ..reports import Display, EvalResult
from ._flavour import OnText, SandboxStart, opening, result_of
from .commands import Commands, Pty
from .files import Files
from .network import Ports, SandboxNetwork
from .streams import ByteStream, EvalRun

if TYPE_CHECKING:
    from .daemon import Forkd

M = TypeVar("M", bound="Machine")

#: Seconds for code of `eval()` and commands of `run()`.
default_secs = 30.0
#: Seconds that the daemon has for its answer after the code ran out of time.
_grace_secs = 90.0


class _Unchanged:
    """A time that `set_timeouts()` leaves as it is."""

    def __repr__(self) -> str:
        return "UNCHANGED"


UNCHANGED = _Unchanged()


class Contexts:
    """Sets of variables that `eval()` uses. Code that names a context which does not exist creates it."""

    def __init__(self, client: Client, sandbox_id: str) -> None:
        self._client = client
        self._id = sandbox_id

    def list(self, *, timeout: Optional[float] = None) -> List[Context]:
        """Lists the contexts of all languages."""
        return to_models(Context, result_of(self._client.call("listContexts", {"id": self._id}, timeout)))

    def create(
        self,
        name: str,
        *,
        language: Optional[str] = None,
        cwd: Optional[str] = None,
        env: Optional[Mapping[str, str]] = None,
        timeout: Optional[float] = None,
    ) -> Context:
        """Makes a context, which begins with what the warm-up of the snapshot defined.

        language: default: the first language of the snapshot
        cwd: working directory; default: that of the interpreter
        env: variables for the code of this context; default: none
        """
        given = {"id": self._id, "name": name, "language": language, "cwd": cwd, "env": env}
        return to_model(Context, result_of(self._client.call("createContext", given, timeout)))

    def restart(
        self, name: str, *, language: Optional[str] = None, timeout: Optional[float] = None
    ) -> Context:
        """Makes a context again, with the directory and variables that it was made with."""
        given = {"id": self._id, "name": name, "language": language}
        return to_model(Context, result_of(self._client.call("restartContext", given, timeout)))

    def drop(self, name: str, *, language: Optional[str] = None, timeout: Optional[float] = None) -> None:
        """Removes a context with its variables.

        language: default: the first language of the snapshot
        """
        given = {"id": self._id, "name": name, "language": language}
        result_of(self._client.call("dropContext", given, timeout))


class Machine(SandboxStart):
    """The part of Sandbox that acts on one sandbox."""

    #: Runs commands in the sandbox.
    commands: Commands
    #: Opens terminals in the sandbox.
    pty: Pty
    #: Reads and changes files in the sandbox.
    files: Files
    #: Lists and removes contexts of `eval()`.
    contexts: Contexts
    #: Opens ports of the sandbox and connects to them.
    ports: Ports
    #: Reads and changes where the sandbox may connect to.
    network: SandboxNetwork

    _client: Client
    _info: SandboxInfo
    _default_timeout: float
    _own_forkd: Optional[Forkd]
    _siblings: Optional[Siblings]

    def _set_up(
        self, client: Client, info: SandboxInfo, default_timeout: float, own_forkd: Optional[Forkd]
    ) -> None:
        self._client = client
        self._info = info
        self._default_timeout = default_timeout
        self._own_forkd = own_forkd
        self._siblings = None
        self.commands = Commands(client, info.id, default_timeout)
        self.pty = Pty(self.commands)
        self.files = Files(client, info.id)
        self.contexts = Contexts(client, info.id)
        self.ports = Ports(client, info.id)
        self.network = SandboxNetwork(client, info.id)

    @property
    def id(self) -> str:
        """Id of the sandbox, such as "sb-3f2a…"."""
        return self._info.id

    @property
    def tag(self) -> str:
        """Tag of the snapshot that it descends from."""
        return self._info.snapshot_tag

    @property
    def info(self) -> SandboxInfo:
        """State of the sandbox in the last answer of the daemon."""
        return self._info

    def refresh(self, *, timeout: Optional[float] = None) -> SandboxInfo:
        """Reads the state of the sandbox again."""
        return self._keep("getSandbox", {}, timeout)

    def eval(
        self,
        code: str,
        *,
        language: Optional[str] = None,
        context: Optional[str] = None,
        timeout: Optional[float] = None,
        env: Optional[Mapping[str, str]] = None,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        on_result: Optional[Callable[[Display], None]] = None,
    ) -> EvalResult:
        """Evaluates code in a warm interpreter. Raises CodeError if the code raises; `run_code()` does not.

        language: default: the first language of the snapshot
        context: name of the set of variables that the code uses; default: "default"
        timeout: interrupts the code after this many seconds; 0: no limit; default: 30
        env: variables for this code; default: none
        on_stdout, on_stderr: receive text as it arrives; default: none
        on_result: receives what the code displays and its value; default: none
        """
        result = self.run_code(
            code,
            language=language,
            context=context,
            timeout=timeout,
            env=env,
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            on_result=on_result,
        )
        if result.exit_code != 0 or result.timed_out:
            raise CodeError(result)
        return result

    def run_code(
        self,
        code: str,
        *,
        language: Optional[str] = None,
        context: Optional[str] = None,
        timeout: Optional[float] = None,
        env: Optional[Mapping[str, str]] = None,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        on_result: Optional[Callable[[Display], None]] = None,
    ) -> EvalResult:
        """Evaluates code in a warm interpreter. Code that raises is a result: see its `error`.

        The arguments are those of `eval()`.
        """
        given = self._code(code, language, context, timeout, env)
        limit = None if given["timeout_secs"] == 0 else given["timeout_secs"] + _grace_secs
        if on_stdout is None and on_stderr is None and on_result is None:
            answer = result_of(self._client.call("eval", given, 0 if limit is None else limit))
            return to_model(EvalResult, answer)
        lines = result_of(self._client.lines("eval", {**given, "stream": True}, limit))
        with EvalRun(Evaluation(lines, on_stdout, on_stderr, on_result)) as running:
            return running.wait()

    def stream_code(
        self,
        code: str,
        *,
        language: Optional[str] = None,
        context: Optional[str] = None,
        timeout: Optional[float] = None,
        env: Optional[Mapping[str, str]] = None,
    ) -> EvalRun:
        """Evaluates code and gives its output as it arrives. Leaving `with` early interrupts it.

        The arguments are those of `eval()`.
        """
        return opening(self._stream_code(self._code(code, language, context, timeout, env)))

    def _stream_code(self, given: Dict[str, Any]) -> EvalRun:
        limit = None if given["timeout_secs"] == 0 else given["timeout_secs"] + _grace_secs
        lines = result_of(self._client.lines("eval", {**given, "stream": True}, limit))
        return EvalRun(Evaluation(lines))

    def evals(self, *, timeout: Optional[float] = None) -> List[EvalInfo]:
        """Lists code that runs, and code that a branch carried into this sandbox."""
        return to_models(EvalInfo, self._call("listEvals", {}, timeout))

    def attach_code(self, eval_id: str, *, timeout: Optional[float] = None) -> EvalRun:
        """Follows code that a branch carried into this sandbox: its output since the branch, and its result.

        eval_id: from `evals()`
        timeout: seconds for all of it; default: no limit
        """
        return opening(self._attach_code(eval_id, timeout))

    def _attach_code(self, eval_id: str, timeout: Optional[float]) -> EvalRun:
        given = {"id": self.id, "eval_id": eval_id}
        return EvalRun(Evaluation(result_of(self._client.lines("attachEval", given, timeout))))

    def interrupt(
        self, *, language: Optional[str] = None, context: Optional[str] = None, timeout: Optional[float] = None
    ) -> None:
        """Interrupts running code.

        language: default: the first language of the snapshot
        context: interrupts only code that runs in this context; default: any
        """
        self._call("interrupt", {"language": language, "context": context}, timeout)

    def services(self, *, timeout: Optional[float] = None) -> List[ServiceInfo]:
        """Lists the services that the recipe of its snapshot started."""
        return to_models(ServiceInfo, self._call("listServices", {}, timeout))

    def logs(
        self,
        *,
        follow: bool = False,
        tail: Optional[int] = None,
        service: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> ByteStream:
        """Reads the console of the guest, or the output of a service.

        follow: waits for new output at the end; default: False
        tail: starts with this many last lines; default: all
        service: reads the output of this service; default: the console
        """
        given = {"id": self.id, "follow": flag(follow), "tail": tail, "name": service}
        return opening(self._logs("logs" if service is None else "serviceLogs", given, timeout))

    def _logs(self, route: str, given: Dict[str, Any], timeout: Optional[float]) -> ByteStream:
        return ByteStream(result_of(self._client.pieces(route, given, timeout)))

    def ping(self, *, timeout: Optional[float] = None) -> Ping:
        """Measures a round trip to the agent in the guest."""
        return to_model(Ping, self._call("ping", {}, timeout))

    def pause(self, *, timeout: Optional[float] = None) -> SandboxInfo:
        """Saves the sandbox to disk and stops its machine; the id stays."""
        return self._keep("pause", {}, timeout)

    def resume(self, *, timeout: Optional[float] = None) -> SandboxInfo:
        """Resumes the paused sandbox."""
        return self._keep("resume", {}, timeout)

    def rewind(self, tag: str, *, timeout: Optional[float] = None) -> SandboxInfo:
        """Puts the sandbox back to one of its ancestors or branches; the id stays."""
        return self._keep("rewind", {"to": tag}, timeout)

    def set_timeouts(
        self,
        *,
        ttl: Union[float, None, _Unchanged] = UNCHANGED,
        idle_timeout: Union[float, None, _Unchanged] = UNCHANGED,
        on_timeout: Optional[str] = None,
        auto_resume: Optional[bool] = None,
        timeout: Optional[float] = None,
    ) -> SandboxInfo:
        """Changes timeouts; those that are not given stay as they are.

        ttl: seconds to live from now; None removes the limit
        idle_timeout: longest time without a call into the sandbox in seconds; None removes the limit
        on_timeout: "kill" or "pause"
        auto_resume: whether a call resumes the sandbox while it is paused
        """
        given = {
            "ttl_secs": _time(ttl),
            "idle_timeout_secs": _time(idle_timeout),
            "on_timeout": on_timeout,
            "auto_resume": auto_resume,
        }
        return self._keep("setTimeouts", given, timeout)

    def kill(self, *, timeout: Optional[float] = None) -> bool:
        """Kills the sandbox. Returns False if there is no such sandbox any more."""
        try:
            self._call("kill", {}, timeout)
        except ForkdError as error:
            if error.code != "sandbox_not_found":
                raise
            return False
        finally:
            if self._siblings is not None:
                result_of(self._siblings.leave(self.id))
            if self._own_forkd is not None:
                self._own_forkd.close()
        return True

    def __enter__(self: M) -> M:
        return self

    def __exit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.kill()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} of {self.tag}: {self._info.state}>"

    def _call(self, route: str, given: Mapping[str, Any], timeout: Optional[float]) -> Any:
        return result_of(self._client.call(route, {"id": self.id, **given}, timeout))

    def _keep(self, route: str, given: Mapping[str, Any], timeout: Optional[float]) -> SandboxInfo:
        self._info = to_model(SandboxInfo, self._call(route, given, timeout))
        return self._info

    def _code(
        self,
        code: str,
        language: Optional[str],
        context: Optional[str],
        timeout: Optional[float],
        env: Optional[Mapping[str, str]],
    ) -> Dict[str, Any]:
        secs = self._default_timeout if timeout is None else timeout
        fields = {"language": language, "context": context, "env": env}
        return {"id": self.id, "code": code, "timeout_secs": secs, **fields}


def _time(secs: Union[float, None, _Unchanged]) -> Any:
    if isinstance(secs, _Unchanged):
        return None
    return null if secs is None else whole_secs(secs)
