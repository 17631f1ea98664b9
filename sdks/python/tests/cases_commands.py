"""Commands, code and tunnels, also while the daemon restarts: the server closes and then uses its socket again."""

from __future__ import annotations

import asyncio
import base64
import json
import threading
import unittest
from typing import Any, Dict

from forkd import AsyncForkd, AsyncSandbox, CodeError, CommandError, DaemonUnreachableError, ForkdError, GuestError, Output
from forkd._convert import to_model
from forkd.models import SandboxInfo
from host import SANDBOX, SOON, Host, info

started = {"type": "started", "exec_id": 3, "pid": 9}
exited = {"type": "exit", "exit_code": 0, "timed_out": False, "duration_ms": 1500}


def output(kind: str, offset: int, data: bytes) -> Dict[str, Any]:
    try:
        return {"type": kind, "offset": offset, "data": data.decode(), "encoding": "utf8"}
    except UnicodeDecodeError:
        return {"type": kind, "offset": offset, "data": base64.b64encode(data).decode(), "encoding": "base64"}


async def sandbox_of(host: Host) -> AsyncSandbox:
    return AsyncSandbox._of(AsyncForkd(socket=host.socket)._client, to_model(SandboxInfo, info()))


def lines(*values: Any) -> Any:
    def answer(asked, reply):
        reply.begin()
        for value in values:
            reply.line(value)
        reply.end()

    return answer


class Commands(unittest.IsolatedAsyncioTestCase):
    async def test_a_text_runs_in_a_shell_and_a_list_does_not(self) -> None:
        with Host(lines(started, exited)) as host:
            commands = (await sandbox_of(host)).commands
            await commands.run("ls -l | wc", 5, env={"A": "1"}, cwd="/tmp", user="nobody", stdin="x")
            await commands.run(["ls", "-l"])
            sent = {"env": {"A": "1"}, "cwd": "/tmp", "user": "nobody", "stdin": "x", "timeout_secs": 5, "stream": True}
            self.assertEqual(host.asked[0].json, {"args": ["/bin/sh", "-c", "ls -l | wc"], **sent})
            self.assertEqual(host.asked[1].json, {"args": ["ls", "-l"], "timeout_secs": 30.0, "stream": True})
            self.assertEqual(host.connections, 1)

    async def test_output_keeps_every_byte_and_splits_lines_only_at_line_feeds(self) -> None:
        text = "a\u2028b\u0085c\r\nü".encode()
        parts = [
            started,
            output("stdout", 0, text),
            output("stderr", 0, b"\xff\0"),
            output("stdout", len(text), "€".encode()[:2]),
            output("stdout", len(text) + 2, "€".encode()[2:]),
            {"type": "a-new-type", "x": 1},
            exited,
        ]
        heard = []
        with Host(lines(*parts)) as host:
            sandbox = await sandbox_of(host)
            result = await sandbox.commands.run(["x"], on_stdout=heard.append)
            self.assertEqual(result.stdout, "a\u2028b\u0085c\r\nü€")
            self.assertEqual(result.stderr, "\ufffd\0")
            self.assertEqual((result.exit_code, result.duration_secs, result.truncated), (0, 1.5, False))
            self.assertEqual(heard, ["a\u2028b\u0085c\r\nü", "€"])
            async with sandbox.commands.stream(["x"]) as handle:
                events = [event async for event in handle]
            self.assertEqual([event.type for event in events], "started stdout stderr stdout stdout exit".split())
            raw = b"".join(event.data for event in events if isinstance(event, Output) and event.type == "stdout")
            self.assertEqual(raw, text + "€".encode())
            self.assertEqual((handle.exec_id, handle.pid), (3, 9))

    async def test_output_beyond_the_limit_is_counted_and_dropped(self) -> None:
        piece = b"x" * 1_000_000
        parts = [output("stdout", at * len(piece), piece) for at in range(9)]
        with Host(lines(started, *parts, exited)) as host:
            result = await (await sandbox_of(host)).commands.run(["x"])
            self.assertEqual((len(result.stdout), result.truncated), (8 * 1024 * 1024, True))

    async def test_check_raises_with_the_end_of_the_output(self) -> None:
        failed = {**exited, "exit_code": 3}
        with Host(lines(started, output("stderr", 0, b"no such thing\n"), failed)) as host:
            sandbox = await sandbox_of(host)
            self.assertEqual((await sandbox.commands.run("false")).exit_code, 3)
            with self.assertRaises(CommandError) as caught:
                await sandbox.commands.run("false", check=True)
            self.assertEqual(caught.exception.result.exit_code, 3)
            self.assertIn("no such thing", caught.exception.message)

    async def test_a_handle_continues_after_a_restart_from_the_last_byte(self) -> None:
        asked_after: Any = []

        def first(asked, reply):
            reply.begin()
            reply.line(started)
            reply.line(output("stdout", 0, "é\n".encode()))
            reply.line(output("stderr", 0, b"\xff\0"))
            reply.wait_closed()

        def second(asked, reply):
            asked_after.append((asked.path, asked.query))
            reply.begin()
            reply.line(output("stdout", 3, b"rest\n"))
            reply.line(exited)
            reply.end()

        with Host(first) as host:
            sandbox = await sandbox_of(host)
            async with sandbox.commands.stream(["x"]) as handle:
                seen = []
                async for event in handle:
                    seen.append(event.type)
                    if event.type == "stderr":
                        host.down()
                        threading.Timer(0.3, host.up, [second]).start()
                result = await handle.wait()
            self.assertEqual(seen, "started stdout stderr stdout exit".split())
            self.assertEqual((result.stdout, result.stderr, result.truncated), ("é\nrest\n", "\ufffd\0", False))
            path = f"/v1/sandboxes/{SANDBOX}/execs/3/stream"
            self.assertEqual(asked_after, [(path, {"stdout_offset": ["3"], "stderr_offset": ["2"]})])

    async def test_a_stream_that_ends_early_is_continued_and_an_error_line_is_raised(self) -> None:
        def answer(asked, reply):
            reply.begin()
            if asked.method == "POST":
                reply.line(started)
                reply.chunk(b'{"type": "stdout", "offs')
                reply.end()
            else:
                reply.line(output("stdout", 0, b"kept"))
                reply.line({"type": "error", "error": "The guest is gone", "code": "agent_unreachable", "details": {}})
                reply.end()

        with Host(answer) as host:
            heard = []
            with self.assertRaises(GuestError):
                await (await sandbox_of(host)).commands.run(["x"], on_stdout=heard.append)
            self.assertEqual(heard, ["kept"])

    async def test_a_gap_in_the_output_is_reported(self) -> None:
        def answer(asked, reply):
            if asked.method == "POST":
                reply.json({"exec_id": 3, "pid": 9})
            else:
                lines(output("stdout", 100, b"end"), exited)(asked, reply)

        with Host(answer) as host:
            handle = await (await sandbox_of(host)).commands.run("x", background=True)
            result = await handle.wait()
            self.assertEqual((result.stdout, result.truncated), ("end", True))

    async def test_leaving_a_stream_closes_its_request(self) -> None:
        closed = threading.Event()

        def answer(asked, reply):
            reply.begin()
            reply.line(started)
            reply.wait_closed()
            closed.set()

        with Host(answer) as host:
            async with (await sandbox_of(host)).commands.stream(["x"]):
                pass
            self.assertTrue(await asyncio.to_thread(closed.wait, SOON))
            self.assertEqual(len(host.asked), 1)

    async def test_leaving_after_a_restart_kills_the_command(self) -> None:
        def first(asked, reply):
            reply.begin()
            reply.line(started)
            reply.cut()

        def second(asked, reply):
            if asked.path.endswith("/signal"):
                reply.empty()
            else:
                reply.begin()
                reply.line(output("stdout", 0, b"x"))
                reply.wait_closed()

        def answer(asked, reply):
            (first if asked.path.endswith("/exec") else second)(asked, reply)

        with Host(answer) as host:
            async with (await sandbox_of(host)).commands.stream(["x"]) as handle:
                async for event in handle:
                    if event.type == "stdout":
                        break
            self.assertEqual(host.asked[-1].json, {"signal": "SIGKILL"})

    async def test_input_arrives_once_and_in_order(self) -> None:
        big = bytes(range(256)) * 4096

        def answer(asked, reply):
            if asked.path.endswith("/input"):
                reply.empty()
            else:
                reply.json({"exec_id": 3, "pid": 9})

        with Host(answer) as host:
            handle = await (await sandbox_of(host)).commands.run("cat", background=True, stdin_open=True)
            await handle.write("first\n")
            await handle.write(big)
            await handle.close_stdin()
            host.down()
            threading.Timer(0.3, host.up, [answer]).start()
            await handle.write("after the restart")
            sent = [asked.json for asked in host.asked[1:]]
            data = b"".join(base64.b64decode(each.get("data", "")) for each in sent)
            self.assertEqual(data, b"first\n" + big + b"after the restart")
            self.assertEqual([each.get("eof") for each in sent], [None, None, None, True, None])

    async def test_input_that_may_have_arrived_is_not_repeated(self) -> None:
        def answer(asked, reply):
            if asked.path.endswith("/input"):
                reply.cut()
            else:
                reply.json({"exec_id": 3, "pid": 9})

        with Host(answer) as host:
            handle = await (await sandbox_of(host)).commands.run("cat", background=True, stdin_open=True)
            with self.assertRaises(DaemonUnreachableError):
                await handle.write("x")
            self.assertEqual(len(host.asked), 2)

    async def test_an_unknown_command_is_an_error_at_once(self) -> None:
        body = {"error": "none", "code": "exec_not_found", "details": {}}
        with Host(lambda asked, reply: reply.json(body, 404)) as host:
            with self.assertRaises(ForkdError) as caught:
                await (await sandbox_of(host)).commands.attach(7)
            self.assertEqual(caught.exception.code, "exec_not_found")


class Code(unittest.IsolatedAsyncioTestCase):
    result = {
        "result": "2",
        "result_json": {"x_ms": 1},
        "stdout": "",
        "stderr": "",
        "error": None,
        "traceback": None,
        "exit_code": 0,
        "interrupted": False,
        "timed_out": False,
        "truncated": False,
        "restarted": False,
        "language": "python",
        "context": "default",
        "duration_ms": 2,
    }

    async def test_eval_raises_and_run_code_does_not(self) -> None:
        failed = {**self.result, "result": None, "error": "ValueError: x", "traceback": "…", "exit_code": 1}
        with Host(lambda asked, reply: reply.json(failed)) as host:
            sandbox = await sandbox_of(host)
            self.assertEqual((await sandbox.run_code("x")).error, "ValueError: x")
            with self.assertRaises(RuntimeError) as caught:
                await sandbox.eval("x")
            self.assertIsInstance(caught.exception, CodeError)
            self.assertIn("ValueError: x", str(caught.exception))

    async def test_values_are_not_renamed(self) -> None:
        with Host(lambda asked, reply: reply.json(self.result)) as host:
            result = await (await sandbox_of(host)).eval("x", context="job", language="python", timeout=0)
            self.assertEqual((str(result), result.text, result.result_json), ("2", "2", {"x_ms": 1}))
            sent = {"code": "x", "context": "job", "language": "python", "timeout_secs": 0}
            self.assertEqual(host.asked[0].json, sent)

    async def test_a_stream_has_output_displays_and_the_whole_result(self) -> None:
        display = {"is_main_result": False, "text": "<Figure>", "png": base64.b64encode(b"\x89PNG").decode()}
        parts = [output("stdout", 0, b"a\n"), {"type": "display", "display": display}, {"type": "result", "result": self.result}]
        shown = []
        with Host(lines(*parts)) as host:
            sandbox = await sandbox_of(host)
            async with sandbox.stream_code("x") as run:
                self.assertEqual([event.type async for event in run], ["stdout", "display", "result"])
                result = await run.wait()
            self.assertEqual((result.stdout, result.results[0].bytes_of("png")), ("a\n", b"\x89PNG"))
            self.assertEqual(result.results[0].formats(), ["text", "png"])
            await sandbox.run_code("x", on_result=lambda each: shown.append(each.text))
            self.assertEqual(shown, ["<Figure>"])

    async def test_a_stream_without_a_result_is_an_error(self) -> None:
        with Host(lines(output("stdout", 0, b"a\n"))) as host:
            with self.assertRaises(DaemonUnreachableError):
                await (await sandbox_of(host)).run_code("x", on_stdout=lambda text: None)


class Snapshots(unittest.IsolatedAsyncioTestCase):
    snapshot = {
        "tag": "new",
        "dir": "/d",
        "created_at_unix": 1,
        "status": "ready",
        "bootable": True,
        "memory_mib": 512,
        "vcpus": 1,
        "accelerator": "tcg",
        "languages": [],
        "physical_bytes": 1,
        "own_bytes": 1,
        "total_bytes": 1,
    }

    async def test_build_reports_progress_and_returns_the_snapshot(self) -> None:
        parts = [
            {"type": "progress", "step": "boot", "message": "booting", "elapsed_ms": 1500},
            {"type": "step", "step": "boot", "message": "booted", "duration_ms": 2000},
            {"type": "snapshot", "snapshot": self.snapshot},
        ]
        seen = []
        with Host(lines(*parts)) as host:
            forkd = AsyncForkd(socket=host.socket)
            built = await forkd.snapshots.build("new", recipe="/r", run=["echo hi"], on_progress=seen.append)
            self.assertEqual(built.tag, "new")
            self.assertEqual([(each.type, each.elapsed_secs, each.duration_secs) for each in seen], [("progress", 1.5, None), ("step", None, 2.0)])
            self.assertEqual(host.asked[0].json, {"tag": "new", "recipe": "/r", "run": [["/bin/sh", "-c", "echo hi"]]})

    async def test_a_build_that_fails_or_ends_early_is_an_error(self) -> None:
        error = {"type": "error", "error": "bad recipe", "code": "invalid_recipe", "details": {"output": "x"}}
        for parts, code in (([error], "invalid_recipe"), ([], "daemon_unreachable")):
            with Host(lines(*parts)) as host:
                with self.assertRaises(ForkdError) as caught:
                    await AsyncForkd(socket=host.socket).snapshots.build("new", recipe="/r")
                self.assertEqual(caught.exception.code, code)

    async def test_ready_waits_for_the_event(self) -> None:
        status = {"now": "writing"}

        def answer(asked, reply):
            if asked.path == "/v1/events":
                reply.begin("text/event-stream")
                status["now"] = "ready"
                event = {"id": "a-1", "type": "snapshot.ready", "at_unix": 1, "tag": "new"}
                reply.chunk(b"data: " + json.dumps(event).encode() + b"\n\n")
                reply.wait_closed()
            else:
                reply.json([{**self.snapshot, "status": status["now"]}])

        with Host(answer) as host:
            self.assertEqual((await AsyncForkd(socket=host.socket).snapshots.ready("new")).status, "ready")

    async def test_fork_of_a_sandbox_removes_its_snapshot_with_the_last_child(self) -> None:
        children = [info(id="sb-" + "1" * 24), info(id="sb-" + "2" * 24)]
        branch = {**self.snapshot, "resumed_ms": 3, "timings_ms": {"save": 2}, "children": children, "diff_logical_bytes": 1}

        def answer(asked, reply):
            if asked.path.endswith("/branch"):
                reply.json(branch, 201)
            elif asked.path.startswith("/v1/snapshots/"):
                reply.json({"removed": [{"tag": "new"}], "freed_bytes": 1, "dry_run": False})
            else:
                reply.empty()

        with Host(answer) as host:
            first, second = await (await sandbox_of(host)).fork(2)
            await first.kill()
            await first.kill()
            self.assertEqual([asked.path for asked in host.asked if "snapshots" in asked.path], [])
            await second.kill()
            self.assertEqual((host.asked[-1].method, host.asked[-1].path), ("DELETE", "/v1/snapshots/new"))
