"""Everything against a real daemon and real sandboxes. tests/src/e2e/python-sdk.test.ts runs it.

FORKD_SOCKET names the daemon, FORKD_TEST_DATA_DIR its data directory. A daemon that was shut down is started again by
the test that runs this.
"""

from __future__ import annotations

import asyncio
import json
import os
import tempfile
import time
import unittest

from forkd import (
    AsyncForkd,
    AsyncSandbox,
    AuthenticationError,
    CodeError,
    CommandError,
    ConflictError,
    ForkError,
    GuestError,
    InvalidRequestError,
    NotFoundError,
    TimeoutError,
)

TAG = "python"
#: The blocking flavour runs what needs no second time.
IS_ASYNC = AsyncForkd.__name__.startswith("Async")


async def until(what, secs=30.0):
    """Polls: the daemon finishes what a lost connection began at a time that it does not announce."""
    end = time.monotonic() + secs
    while not await what():
        if time.monotonic() > end:
            raise AssertionError("it did not happen in time")
        await asyncio.sleep(0.05)


class InOneSandbox(unittest.IsolatedAsyncioTestCase):
    async def asyncSetUp(self) -> None:
        self.forkd = AsyncForkd()
        self.sandbox = await self.forkd.create(TAG, labels={"suite": "python"}, env={"GIVEN": "yes"}, ttl=600)

    async def asyncTearDown(self) -> None:
        await self.sandbox.kill()
        await self.forkd.aclose()

    async def test_commands(self) -> None:
        run = self.sandbox.commands.run
        result = await run("echo $GIVEN $A; pwd; id -un; echo bad >&2; exit 3", env={"A": "b c"}, cwd="/tmp", user="nobody")
        self.assertEqual((result.stdout, result.stderr, result.exit_code), ("yes b c\n/tmp\nnobody\n", "bad\n", 3))
        self.assertEqual((await run(["printf", "%s", "a b; $X"])).stdout, "a b; $X")
        self.assertEqual((await run(["cat"], stdin="ü\u2028\n")).stdout, "ü\u2028\n")
        late = await run("sleep 60", 0.3)
        self.assertTrue(late.timed_out)
        with self.assertRaises(CommandError):
            await run("exit 7", check=True)
        with self.assertRaises(GuestError):
            await run(["/no/such/program"])
        heard = []
        await run("printf 'a\\342\\202'; sleep 0.2; printf '\\254\\377'", on_stdout=heard.append)
        self.assertEqual("".join(heard), "a€\ufffd")
        async with self.sandbox.commands.stream("seq 20000") as handle:
            data = b"".join([event.data async for event in handle if event.type == "stdout"])
        self.assertEqual(data, b"".join(b"%d\n" % number for number in range(1, 20001)))

    async def test_handles_and_terminals(self) -> None:
        commands = self.sandbox.commands
        handle = await commands.run("cat; echo end", background=True, stdin_open=True)
        self.assertIn(handle.exec_id, [each.exec_id for each in await commands.list() if each.state == "running"])
        await handle.write(b"\xff\n")
        await handle.write("ü\n")
        await handle.close_stdin()
        self.assertEqual((await handle.wait()).stdout, "\ufffd\nü\nend\n")
        async with commands.attach(handle.exec_id, stdout_offset=2) as again:
            self.assertEqual((await again.wait()).stdout, "ü\nend\n")
        async with self.sandbox.pty.create(rows=31, cols=99) as terminal:
            await terminal.write("stty size; exit\n")
            self.assertIn("31 99", (await terminal.wait()).stdout)
        sleeper = await commands.run("sleep 1000", background=True)
        await sleeper.kill()
        self.assertEqual((await sleeper.wait()).signal, "SIGKILL")
        async with commands.stream("echo x; sleep 1000") as left:
            async for event in left:
                if event.type == "stdout":
                    break

        async def is_ended():
            return all(each.state == "finished" for each in await commands.list() if each.exec_id == left.exec_id)

        await until(is_ended)

    async def test_files(self) -> None:
        files = self.sandbox.files
        content = os.urandom(3_000_000)
        entry = await files.write("/srv/in/data.bin", (content[at : at + 70_000] for at in range(0, len(content), 70_000)))
        self.assertEqual((entry.size, entry.type, entry.path), (3_000_000, "file", "/srv/in/data.bin"))
        self.assertEqual(await files.read("/srv/in/data.bin"), content)
        self.assertEqual(await files.read("/srv/in/data.bin", offset=10, limit=20), content[10:30])
        async with files.stream("/srv/in/data.bin") as stream:
            self.assertEqual(await stream.read(), content)
        await files.write("/srv/in/ü \u2028.txt", "tëxt", mode="0600")
        await files.write("/srv/in/ü \u2028.txt", "+", append=True)
        self.assertEqual(await files.read_text("/srv/in/ü \u2028.txt"), "tëxt+")
        await files.mkdir("/srv/out/deep")
        await files.move("/srv/in/data.bin", "/srv/out/deep/moved")
        await files.chmod("/srv/out/deep/moved", "0640")
        self.assertEqual((await files.stat("/srv/out/deep/moved")).mode, "0640")
        self.assertEqual([each.path for each in await files.list("/srv/out", depth=2)], ["/srv/out/deep", "/srv/out/deep/moved"])
        await files.remove("/srv/out", recursive=True)
        self.assertFalse(await files.exists("/srv/out"))
        with self.assertRaises(NotFoundError):
            await files.read("/srv/out/deep/moved")
        async with files.watch("/srv/in") as watch:
            await files.write("/srv/in/new", "x", in_place=True)
            async for event in watch:
                if event.type == "write":
                    self.assertEqual(event.path, "new")
                    break

    async def test_code(self) -> None:
        sandbox = self.sandbox
        self.assertEqual(str(await sandbox.eval("import numpy; numpy.arange(3).tolist()")), "[0, 1, 2]")
        self.assertEqual((await sandbox.eval("{'a_ms': 1}")).result_json, {"a_ms": 1})
        with self.assertRaises(CodeError) as caught:
            await sandbox.eval("print('before')\n1/0")
        self.assertIn("ZeroDivisionError", str(caught.exception))
        self.assertEqual(caught.exception.result.stdout, "before\n")
        failed = await sandbox.run_code("def f():\n    raise ValueError('x')\nf()")
        self.assertEqual((failed.error_info.name, failed.error_info.value), ("ValueError", "x"))
        await sandbox.eval("x = 1", context="one")
        self.assertEqual((await sandbox.run_code("x", context="two")).exit_code, 1)
        self.assertEqual({each.name for each in await sandbox.contexts.list()} & {"one", "two"}, {"one", "two"})
        await sandbox.contexts.drop("one")
        async with sandbox.stream_code("class T:\n  def _repr_html_(self): return '<b>t</b>'\nprint('ü')\ndisplay(T())\n6*7") as run:
            kinds = [event.type async for event in run]
            result = await run.wait()
        self.assertEqual((kinds[0], kinds[-1], result.stdout, result.text), ("stdout", "result", "ü\n", "42"))
        self.assertIn("<b>t</b>", [each.html for each in result.results])
        self.assertTrue((await sandbox.run_code("while True: pass", timeout=0.5)).timed_out)

    async def test_ports(self) -> None:
        server = "import socket; s = socket.create_server(('127.0.0.1', 4000)); print('up', flush=True)\n"
        server += "c, _ = s.accept(); c.sendall(b'hello ' + c.recv(100)); c.close()"
        async with self.sandbox.commands.stream(["python3", "-c", server]) as handle:
            async for event in handle:
                if event.type == "stdout":
                    break
            tunnel = await self.sandbox.ports.connect(4000)
            if IS_ASYNC:
                reader, writer = tunnel
                writer.write(b"world")
                received = await asyncio.wait_for(reader.read(), 30)
                writer.close()
            else:
                tunnel.settimeout(30)
                tunnel.sendall(b"world")
                received = tunnel.makefile("rb").read()
                tunnel.close()
            self.assertEqual(received, b"hello world")
        with self.assertRaises(GuestError):
            await self.sandbox.ports.connect(4001)
        opened = await self.sandbox.ports.open(4000, ttl=60)
        self.assertTrue(opened.token)
        self.assertEqual([(each.port, each.token) for each in await self.sandbox.ports.list()], [(4000, None)])
        await self.sandbox.ports.close(4000)
        self.assertEqual(await self.sandbox.ports.list(), [])

    async def test_a_command_outlives_a_restart_of_the_daemon(self) -> None:
        async with self.sandbox.commands.stream("for i in $(seq 15); do echo $i; sleep 0.1; done") as handle:
            seen = []
            async for event in handle:
                if event.type == "stdout":
                    seen.append(event.data)
                    if len(seen) == 3:
                        await self.forkd.shutdown(sandboxes="keep")
            result = await handle.wait()
        expected = "".join(f"{number}\n" for number in range(1, 16))
        self.assertEqual((b"".join(seen).decode(), result.stdout, result.truncated), (expected, expected, False))

    async def test_state(self) -> None:
        sandbox = self.sandbox
        await sandbox.eval("state = [1]")
        step = "py-step-async" if IS_ASYNC else "py-step"
        branch = await sandbox.branch(step, n=2, vary=[{"values": {"seed": 7}}, {"env": {"SEED": "8"}}])
        self.assertEqual((branch.tag, branch.info.branched_from, len(branch.children)), (step, sandbox.id, 2))
        self.assertGreater(branch.info.pause_secs, 0)
        first, second = branch.children
        self.assertEqual(json.loads(await first.files.read_text("/run/forkd/values.json")), {"seed": 7})
        self.assertEqual((await second.commands.run("echo $SEED")).stdout, "8\n")
        self.assertEqual(str(await first.eval("state")), "[1]")
        for child in branch.children:
            await child.kill()
        await sandbox.eval("state.append(2)")
        await sandbox.rewind(step)
        self.assertEqual(str(await sandbox.eval("state")), "[1]")
        children = await sandbox.fork(1)
        tag = children[0].tag
        self.assertNotIsInstance(children[0], ForkError)
        await children[0].kill()
        with self.assertRaises(NotFoundError):
            await self.forkd.snapshots.get(tag)
        self.assertEqual((await sandbox.pause()).state, "paused")
        with self.assertRaises(ConflictError) as caught:
            await sandbox.eval("1")
        self.assertEqual(caught.exception.code, "sandbox_paused")
        self.assertEqual((await sandbox.resume()).state, "running")
        self.assertEqual(str(await sandbox.eval("state")), "[1]")
        changed = await sandbox.set_timeouts(ttl=None, idle_timeout=500)
        self.assertEqual((changed.expires_at, changed.idle_timeout_secs), (None, 500))
        self.assertTrue((await sandbox.ping()).ok)
        self.assertEqual((await sandbox.refresh()).state, "running")
        async with sandbox.logs(tail=5) as logs:
            self.assertIsInstance(await logs.read(), bytes)
        await sandbox.kill()
        with self.assertRaises(NotFoundError):
            await sandbox.eval("1")


class OfTheDaemon(unittest.IsolatedAsyncioTestCase):
    async def test_events_and_lists(self) -> None:
        async with AsyncForkd() as forkd:
            async with forkd.events(types=["sandbox.*"], labels={"watched": "1"}) as events:
                sandbox = await forkd.create(TAG, labels={"watched": "1"})
                self.assertEqual([each.id async for each in AsyncSandbox.list(labels=["watched"])], [sandbox.id])
                self.assertEqual([each.id for each in (await forkd.stats(labels=["watched"])).sandboxes], [sandbox.id])
                again = await AsyncSandbox.connect(sandbox.id)
                self.assertEqual(again.info.labels, {"watched": "1"})
                await sandbox.kill()
                seen = []
                async for event in events:
                    seen.append((event.type, event.sandbox_id))
                    if event.type == "sandbox.killed":
                        break
            self.assertEqual(seen, [("sandbox.created", sandbox.id), ("sandbox.killed", sandbox.id)])
            self.assertIn(TAG, [each.tag async for each in forkd.snapshots.list(state="ready")])
            self.assertEqual((await forkd.snapshots.get(TAG)).chain_depth, 0)
            self.assertGreater((await forkd.status()).uptime_secs, 0)
            self.assertIn(TAG, [each["tag"] for each in (await forkd.tree()).snapshots])
            self.assertEqual((await forkd.call("health")), {"ok": True})

    async def test_a_call_that_is_given_up_leaves_no_sandbox(self) -> None:
        async with AsyncForkd() as forkd:
            with self.assertRaises(TimeoutError):
                await forkd.create(TAG, labels={"given": "up"}, timeout=0.02)

            async def is_empty():
                return await forkd.sandboxes.list(labels={"given": "up"}).all() == []

            await until(is_empty)

    async def test_keys(self) -> None:
        async with AsyncForkd() as forkd:
            key = await forkd.keys.create(f"py-{IS_ASYNC}".lower(), scope="read")
            self.assertIn(key.name, [each.name for each in await forkd.keys.list()])
            with open(os.path.join(os.environ["FORKD_TEST_DATA_DIR"], "daemon.json")) as record:
                url = json.load(record)["url"]
            async with AsyncForkd(url=url, token=key.key) as reader:
                self.assertEqual((await reader.version()).api, "v1")
                with self.assertRaises(AuthenticationError) as caught:
                    await reader.create(TAG)
                self.assertEqual(caught.exception.code, "forbidden")
            await forkd.keys.remove(key.name)
            with self.assertRaises(AuthenticationError) as caught:
                await AsyncForkd(url=url, token=key.key).version()
            self.assertEqual(caught.exception.code, "unauthenticated")

    async def test_networks_and_secrets(self) -> None:
        async with AsyncForkd() as forkd:
            await forkd.secrets.set("PY_KEY", value="s3cret", hosts=["api.example.com"])
            self.assertEqual([each.name for each in await forkd.secrets.list()], ["PY_KEY"])
            rules = {"mode": "filtered", "rules": ["allow api.example.com:443"]}
            async with forkd.create(TAG, network=rules, secrets=["PY_KEY"]) as sandbox:
                network = await sandbox.network.allow("preset:pypi")
                self.assertEqual((network.rules[0].rule, network.rules[0].origin), ("allow preset:pypi", "sandbox"))
                network = await sandbox.network.set(mode="none", secrets=[])
                self.assertEqual((network.mode, network.secrets), ("none", []))
                async with sandbox.network.log(tail=5) as log:
                    self.assertEqual([entry.event async for entry in log if entry.event == "connected"], [])
            await forkd.secrets.remove("PY_KEY")
            self.assertIn("pypi", [each.name for each in await forkd.network.presets.list()])

    async def test_workspaces(self) -> None:
        async with AsyncForkd() as forkd:
            sandbox = await forkd.workspaces.create("py-dev", TAG)
            await sandbox.files.write("/srv/notes", "kept")
            self.assertEqual((await forkd.workspaces.suspend("py-dev")).status, "suspended")
            self.assertEqual((await forkd.workspaces.resume("py-dev")).status, "running")
            again = await forkd.workspaces.sandbox("py-dev")
            self.assertEqual(await again.files.read_text("/srv/notes"), "kept")
            self.assertEqual([each.name async for each in forkd.workspaces.list()], ["py-dev"])
            await forkd.workspaces.remove("py-dev")

    async def test_snapshots(self) -> None:
        async with AsyncForkd() as forkd:
            heard = []
            branch = await forkd.snapshots.derive(TAG, "py-derived", "echo made; echo data > /srv/data", on_stdout=heard.append)
            self.assertEqual((branch.tag, heard), ("py-derived", ["made\n"]))
            with self.assertRaises(CommandError):
                await forkd.snapshots.derive("py-derived", "py-never", "exit 1")
            seen = []
            packed = await forkd.snapshots.pack("py-derived", level=1, on_progress=lambda each: seen.append(each.done))
            async with forkd.snapshots.archive("py-derived", level=1) as stream:
                archive = await stream.read()
            self.assertEqual((len(archive), packed.snapshots), (packed.archive_bytes, 2))
            unpacked = await forkd.snapshots.unpack(archive, tag="py-again")
            self.assertEqual((unpacked.snapshot.tag, [each["existed"] for each in unpacked.chain]), ("py-again", [True, False]))
            await forkd.snapshots.remove("py-again")
            removed = await forkd.snapshots.remove("py-derived")
            self.assertEqual([each["tag"] for each in removed.removed], ["py-derived"])
            with self.assertRaises(NotFoundError) as caught:
                await forkd.create("py-derived")
            self.assertEqual(caught.exception.code, "snapshot_not_found")

    async def test_a_build_that_fails_names_the_file(self) -> None:
        steps = []
        async with AsyncForkd() as forkd:
            with tempfile.NamedTemporaryFile(suffix=".tar") as archive:
                archive.write(b"not an archive" * 100)
                archive.flush()
                os.chmod(archive.name, 0o644)
                with self.assertRaises(InvalidRequestError) as caught:
                    await forkd.snapshots.build("py-never", rootfs=archive.name, on_progress=steps.append)
            self.assertEqual(caught.exception.code, "invalid_image")
            self.assertEqual([each async for each in forkd.snapshots.list(tag="py-never")], [])


@unittest.skipIf(IS_ASYNC, "the original SDK has no asyncio")
class Original(unittest.TestCase):
    def test_programs_of_the_original_work(self) -> None:
        from forkd import Controller, ControllerError, Sandbox

        controller = Controller()
        self.assertIn(TAG, [each["tag"] for each in controller.list_snapshots()])
        child = controller.spawn_sandboxes(TAG, n=1, per_child_netns=True)[0]
        self.assertEqual(controller.exec_command(child["id"], ["echo", "hi"], timeout_secs=20)["stdout"], "hi\n")
        self.assertEqual(controller.eval_code(child["id"], "1 + 1")["result"], "2")
        self.assertTrue(controller.ping_sandbox(child["id"])["ok"])
        branch = controller.branch_sandbox(child["id"], tag="py-original")
        self.assertEqual(branch["branched_from"], child["id"])
        controller.kill_sandbox(child["id"])
        controller.delete_snapshot("py-original")
        with self.assertRaises(ControllerError):
            controller.get_sandbox(child["id"])
        with Sandbox(tag=TAG, timeout=20) as sandbox:
            self.assertEqual(sandbox.commands.run("echo hi", timeout=5).stdout, "hi\n")
            self.assertEqual(str(sandbox.eval("sum(range(10))")), "45")
