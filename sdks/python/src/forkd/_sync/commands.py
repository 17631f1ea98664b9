# Made from _async/commands.py by tools/make-sync.py: do not edit.
"""The commands and terminals of one sandbox."""

from __future__ import annotations

from typing import Any, List, Literal, Mapping, Optional, Sequence, Tuple, Union, overload

from .._convert import to_models
from .._core.client import Client
from .._core.command import Command
from .._core.requests import argv_of, command_fields
from ..errors import CommandError
from ..models import CommandInfo, CommandResult
from ._flavour import OnText, opening, result_of
from .streams import CommandHandle

#: Seconds for a command of `run()`.
_default_secs = 30.0
#: Seconds that the daemon has for its answer after the command ran out of time.
_grace_secs = 90.0


class Commands:
    """Runs commands in one sandbox."""

    def __init__(self, client: Client, sandbox_id: str, default_timeout: float = _default_secs) -> None:
        self._client = client
        self._id = sandbox_id
        self._default_timeout = default_timeout

    @overload
    def run(
        self,
        cmd: Union[str, Sequence[str]],
        timeout: Optional[float] = None,
        *,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        check: bool = False,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        stdin_open: bool = False,
        pty: Optional[Tuple[int, int]] = None,
        background: Literal[False] = False,
    ) -> CommandResult: ...

    @overload
    def run(
        self,
        cmd: Union[str, Sequence[str]],
        timeout: Optional[float] = None,
        *,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        check: bool = False,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        stdin_open: bool = False,
        pty: Optional[Tuple[int, int]] = None,
        background: Literal[True],
    ) -> CommandHandle: ...

    def run(
        self,
        cmd: Union[str, Sequence[str]],
        timeout: Optional[float] = None,
        *,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        check: bool = False,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        stdin_open: bool = False,
        pty: Optional[Tuple[int, int]] = None,
        background: bool = False,
    ) -> Union[CommandResult, CommandHandle]:
        """Runs a command and returns its result; with `background=True` its handle, at once.

        cmd: a text for /bin/sh, or a list of a program and its arguments, without a shell
        timeout: kills the command after this many seconds; 0: no limit; default: 30, in the background no limit
        env: variables in addition to those of the sandbox; default: none
        cwd: working directory; default: the home directory of the user
        user: name, uid, name:group or uid:gid; default: root
        stdin: text for stdin, followed by end of file; default: empty
        check: raises CommandError unless the exit code is 0; default: False
        on_stdout, on_stderr: receive text as it arrives; default: none
        stdin_open: keeps stdin open for `write()` of the handle; default: False
        pty: rows and columns of a terminal; default: no terminal
        """
        fields: Any = {"env": env, "cwd": cwd, "user": user, "stdin": stdin, "stdin_open": stdin_open, "pty": pty}
        if background:
            request = command_fields(cmd, timeout=timeout, **fields)
            command = result_of(Command.background(self._client, self._id, request))
            command.on_stdout, command.on_stderr = on_stdout, on_stderr
            return CommandHandle(command)
        secs = self._default_timeout if timeout is None else timeout
        request = command_fields(cmd, timeout=secs, **fields)
        limit = None if secs == 0 else secs + _grace_secs
        command = result_of(Command.start(self._client, self._id, request, limit=limit))
        command.on_stdout, command.on_stderr = on_stdout, on_stderr
        with CommandHandle(command) as handle:
            result = handle.wait()
        if check and (result.exit_code != 0 or result.timed_out):
            raise CommandError(argv_of(cmd)[0] if not isinstance(cmd, str) else cmd, result)
        return result

    def stream(
        self,
        cmd: Union[str, Sequence[str]],
        timeout: Optional[float] = None,
        *,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        stdin: Optional[str] = None,
        stdin_open: bool = False,
        pty: Optional[Tuple[int, int]] = None,
    ) -> CommandHandle:
        """Starts a command whose events are read as they arrive. Leaving `with` early kills it.

        timeout: kills the command after this many seconds; default and 0: no limit. The other arguments are those
        of `run()`.
        """
        fields: Any = {"env": env, "cwd": cwd, "user": user, "stdin": stdin, "stdin_open": stdin_open, "pty": pty}
        return opening(self._stream(command_fields(cmd, timeout=timeout, **fields)))

    def _stream(self, request: Mapping[str, Any]) -> CommandHandle:
        return CommandHandle(result_of(Command.start(self._client, self._id, dict(request))))

    def attach(
        self, exec_id: int, *, stdout_offset: int = 0, stderr_offset: int = 0
    ) -> CommandHandle:
        """Attaches to a running or recently finished command. Leaving `with` early only detaches.

        stdout_offset, stderr_offset: first byte of each stream to receive; default: 0
        """
        return opening(self._attach(exec_id, stdout_offset, stderr_offset))

    def _attach(self, exec_id: int, stdout_offset: int, stderr_offset: int) -> CommandHandle:
        attached = Command.attach(self._client, self._id, exec_id, stdout_offset, stderr_offset)
        return CommandHandle(result_of(attached))

    def list(self, *, timeout: Optional[float] = None) -> List[CommandInfo]:
        """Lists running and recently finished commands."""
        return to_models(CommandInfo, result_of(self._client.call("listExecs", {"id": self._id}, timeout)))


class Pty:
    """Opens terminals in one sandbox."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands

    def create(
        self,
        cmd: Union[str, Sequence[str]] = ("/bin/sh",),
        *,
        rows: int = 24,
        cols: int = 80,
        env: Optional[Mapping[str, str]] = None,
        cwd: Optional[str] = None,
        user: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> CommandHandle:
        """Starts a program, by default a shell, in a terminal. Its output is in "stdout" events.

        rows, cols: size of the terminal; default: 24 and 80. The other arguments are those of `commands.run()`.
        """
        size = (rows, cols)
        return self._commands.stream(
            cmd, timeout, env={"TERM": "xterm-256color", **(env or {})}, cwd=cwd, user=user, stdin_open=True, pty=size
        )
