"""A running command. It reconnects after a restart of the daemon."""

from __future__ import annotations

import base64
import inspect
import time
from typing import Any, AsyncContextManager, Callable, Dict, Mapping, Optional, Union

from .._convert import to_model, wrong_answer
from ..errors import ForkdError, make_error
from ..events import CommandEvent, Exited, Output, Started
from ..models import CommandResult
from .client import Client, Lines
from .decode import Output as Buffer
from .decode import output_bytes

#: Bytes of one write to stdin; the daemon accepts up to 1 MiB of text.
_input_piece = 512 * 1024
#: How long to wait for a daemon that does not answer.
reconnect_secs = 30.0
_first_retry = 0.1
_longest_retry = 2.0

#: Receives text of an output stream; may return an awaitable in programs with asyncio.
OnText = Callable[[str], Any]


class Command:
    """One command. `lines` is None for a command in the background until its events are read."""

    def __init__(
        self,
        client: Client,
        sandbox_id: str,
        exec_id: int,
        *,
        pid: Optional[int] = None,
        lines: Optional[Lines] = None,
        is_own: bool = False,
        stdout_offset: int = 0,
        stderr_offset: int = 0,
        until: Optional[float] = None,
    ) -> None:
        self.exec_id = exec_id
        self.pid = pid
        self._client = client
        self._sandbox_id = sandbox_id
        self._lines = lines
        self._pending: Optional[CommandEvent] = None
        if is_own and pid is not None:
            self._pending = Started(exec_id, pid)
        #: Whether leaving the events early kills the command.
        self._is_own = is_own
        #: The request that started the command has ended: closing a later one does not kill the command.
        self._is_detached = lines is None
        self._outputs = {"stdout": Buffer(stdout_offset), "stderr": Buffer(stderr_offset)}
        self._exit: Optional[Mapping[str, Any]] = None
        self._failure: Optional[BaseException] = None
        self._is_closed = False
        #: When the last event must have arrived, by the monotonic clock.
        self._until = until
        self._lost_since: Optional[float] = None
        self._attached_at = 0.0
        self._wait_secs = _first_retry
        self._input_lock: Optional[AsyncContextManager[None]] = None
        self.on_stdout: Optional[OnText] = None
        self.on_stderr: Optional[OnText] = None

    @staticmethod
    async def start(
        client: Client, sandbox_id: str, request: Dict[str, Any], *, limit: Optional[float] = None
    ) -> Command:
        """Starts a command that is killed when its events are no longer read. `limit`: seconds until its end."""
        until = None if limit is None else time.monotonic() + limit
        lines = await client.lines("exec", {"id": sandbox_id, **request, "stream": True}, limit)
        try:
            first = await lines.next()
            if first is None or first.get("type") != "started":
                raise wrong_answer("it does not say which command was started")
            exec_id, pid = int(first["exec_id"]), int(first["pid"])
            return Command(client, sandbox_id, exec_id, pid=pid, lines=lines, is_own=True, until=until)
        except BaseException:
            lines.close()
            raise

    @staticmethod
    async def background(client: Client, sandbox_id: str, request: Dict[str, Any]) -> Command:
        """Starts a command that keeps running."""
        answer = await client.call("exec", {"id": sandbox_id, **request, "background": True})
        if not isinstance(answer, dict) or "exec_id" not in answer:
            raise wrong_answer("it does not say which command was started")
        return Command(client, sandbox_id, int(answer["exec_id"]), pid=int(answer["pid"]))

    @staticmethod
    async def attach(client: Client, sandbox_id: str, exec_id: int, stdout_offset: int, stderr_offset: int) -> Command:
        """Attaches to a command. Fails at once if there is no such command."""
        command = Command(
            client, sandbox_id, exec_id, stdout_offset=stdout_offset, stderr_offset=stderr_offset
        )
        command._lines = await command._open()
        return command

    async def next(self) -> Optional[CommandEvent]:
        """The next event; None after the last one."""
        if self._pending is not None:
            event, self._pending = self._pending, None
            return event
        if self._failure is not None:
            raise self._failure
        while self._exit is None and not self._is_closed:
            try:
                if self._lines is None:
                    self._lines = await self._open()
                line = await self._lines.next()
                if line is None:
                    raise make_error(
                        "daemon_unreachable", "The stream of the command ended before the command did", {"cut": True}
                    )
                found = await self._note(line)
            except ForkdError as error:
                try:
                    await self._reattach(error)
                except BaseException as final:
                    self._failure = final
                    raise
                continue
            if found is not None:
                return found
        return None

    async def wait(self) -> CommandResult:
        """Reads the rest of the events and returns the result."""
        while await self.next() is not None:
            pass
        return self.result()

    def result(self) -> CommandResult:
        """The result of a command whose events were read to the end."""
        if self._exit is None:
            raise make_error("cancelled", "The events of the command were not read to the end")
        out, err = self._outputs["stdout"], self._outputs["stderr"]
        whole = {
            **self._exit,
            "exec_id": self.exec_id,
            "stdout": out.text(),
            "stderr": err.text(),
            "truncated": out.truncated or err.truncated,
        }
        whole.pop("type", None)
        return to_model(CommandResult, whole)

    async def close(self) -> None:
        """Stops reading. Kills a command that was started for its reader, if it still runs."""
        if self._is_closed:
            return
        self._is_closed = True
        self._pending = None
        if self._lines is not None:
            self._lines.close()
        if self._is_own and self._is_detached and self._exit is None:
            try:
                # As the daemon does when the request that started the command ends early.
                await self.call("execSignal", {"signal": "SIGKILL"}, _longest_retry)
            except ForkdError:
                pass  # Nothing is left to do if the command or the daemon is gone.

    async def write(self, data: Union[str, bytes]) -> None:
        """Writes to stdin, in the order of the calls."""
        whole = data.encode() if isinstance(data, str) else bytes(data)
        async with self._lock():
            for at in range(0, len(whole), _input_piece):
                piece = base64.b64encode(whole[at : at + _input_piece]).decode()
                await self._input({"data": piece, "encoding": "base64"})

    async def close_stdin(self) -> None:
        """Closes stdin after all writes."""
        async with self._lock():
            await self._input({"eof": True})

    async def call(self, route: str, given: Dict[str, Any], timeout: Optional[float] = None) -> Any:
        """Calls a route of this command."""
        return await self._client.call(route, {"id": self._sandbox_id, "exec_id": self.exec_id, **given}, timeout)

    def _lock(self) -> AsyncContextManager[None]:
        if self._input_lock is None:
            self._input_lock = self._client.io.lock()
        return self._input_lock

    async def _input(self, given: Dict[str, Any]) -> None:
        """Waits for a daemon that restarts. Does not repeat input that may have arrived: it could arrive twice."""
        until = time.monotonic() + reconnect_secs
        wait = _first_retry
        while True:
            try:
                await self.call("execInput", given)
                return
            except ForkdError as error:
                was_sent = error.code != "daemon_unreachable" or error.details.get("sent", True)
                if was_sent or time.monotonic() > until:
                    raise
            # Polls, because a daemon that is not running cannot announce its start.
            await self._client.io.sleep(wait)
            wait = min(2 * wait, _longest_retry)

    async def _open(self) -> Lines:
        offsets = {
            "stdout_offset": self._outputs["stdout"].seen,
            "stderr_offset": self._outputs["stderr"].seen,
        }
        given = {"id": self._sandbox_id, "exec_id": self.exec_id, **offsets}
        left = None if self._until is None else max(0.001, self._until - time.monotonic())
        return await self._client.lines("attachExec", given, left)

    async def _reattach(self, lost: ForkdError) -> None:
        """Attaches again from the last byte received. Raises `lost` unless it means that the daemon is gone."""
        if self._lines is not None:
            self._lines.close()
            self._lines = None
        # Streams that end right after they begin count as one loss.
        if time.monotonic() - self._attached_at > _longest_retry:
            self._is_heard()
        while _is_daemon_gone(lost):
            self._is_detached = True
            if self._lost_since is None:
                self._lost_since = time.monotonic()
            # Polls, because a daemon that is not running cannot announce its start.
            await self._client.io.sleep(self._wait_secs)
            if time.monotonic() - self._lost_since > reconnect_secs:
                break
            self._wait_secs = min(2 * self._wait_secs, _longest_retry)
            try:
                self._lines = await self._open()
                self._attached_at = time.monotonic()
                return
            except ForkdError as error:
                if not _is_daemon_gone(error):
                    raise
        raise lost

    def _is_heard(self) -> None:
        self._lost_since = None
        self._wait_secs = _first_retry

    async def _note(self, line: Dict[str, Any]) -> Optional[CommandEvent]:
        """Keeps what a line says. None for a line with an unknown type."""
        kind = line.get("type")
        if kind in ("stdout", "stderr"):
            self._is_heard()
            data = output_bytes(line)
            offset = int(line.get("offset", 0))
            text = self._outputs[kind].add(offset, data)
            await report(self.on_stdout if kind == "stdout" else self.on_stderr, text)
            return Output("stdout" if kind == "stdout" else "stderr", data, text, offset)
        if kind == "exit":
            self._exit = line
            if self._lines is not None:
                await self._lines.drain()
            result = self.result()
            return Exited(result.exit_code, result.timed_out, result.duration_secs, result.signal)
        if kind == "started":
            self.pid = int(line["pid"])
        return None


async def report(callback: Optional[OnText], text: str) -> None:
    """Gives text to a callback."""
    if callback is not None and text != "":
        await told(callback(text))


async def told(answer: Any) -> None:
    """Waits for a callback that is a coroutine."""
    if inspect.isawaitable(answer):
        await answer


def _is_daemon_gone(error: ForkdError) -> bool:
    return error.code in ("daemon_unreachable", "daemon_stopping")
