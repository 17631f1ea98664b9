"""Calls, lists, files and failures of the connection."""

from __future__ import annotations

import asyncio
import io
import json
import threading
import time
import unittest
from datetime import datetime, timezone

from forkd import (
    AsyncForkd,
    AsyncSandbox,
    AuthenticationError,
    CapacityError,
    ConflictError,
    DaemonUnreachableError,
    ForkdError,
    ForkError,
    GuestError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    TimeoutError,
)
from host import SANDBOX, SOON, Host, info

SNAPSHOT = {
    "tag": "python",
    "dir": "/s/python",
    "created_at_unix": 1794812339.887,
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


class Calls(unittest.IsolatedAsyncioTestCase):
    async def test_create_sends_the_fields_of_the_wire_and_converts_the_answer(self) -> None:
        with Host(lambda asked, reply: reply.json([info(expires_at_unix=1794815939.5)], 201)) as host:
            sandbox = await AsyncSandbox.create(
                "python",
                env={"snake_case": "1", "camelCase": "2"},
                ttl=0.5,
                idle_timeout=60,
                network={"mode": "filtered", "rules": ["allow example.com:443"]},
                values={"seed": 1, "x_ms": 2},
                idempotency_key="job-1",
                forkd=AsyncForkd(socket=host.socket),
            )
            (asked,) = host.asked
            self.assertEqual((asked.method, asked.path), ("POST", "/v1/sandboxes"))
            self.assertEqual(asked.headers["idempotency-key"], "job-1")
            expected = {
                "snapshot_tag": "python",
                "env": {"snake_case": "1", "camelCase": "2"},
                "ttl_secs": 1,
                "idle_timeout_secs": 60,
                "network": {"mode": "filtered", "rules": ["allow example.com:443"]},
                "vary": [{"values": {"seed": 1, "x_ms": 2}}],
            }
            self.assertEqual(asked.json, expected)
            self.assertEqual((sandbox.info.ready_secs, sandbox.info.from_), (0.0815, "start"))
            self.assertEqual(sandbox.info.created_at, datetime.fromtimestamp(1794812339.887, timezone.utc))
            self.assertEqual(sandbox.info.labels, {"Job-Id": "42", "created_at_unix": "label"})
            self.assertEqual(sandbox.info.raw["ready_ms"], 81.5)

    async def test_a_key_is_pinned_and_a_policy_reset_by_none(self) -> None:
        key = {"fingerprint": "sha256:00", "algorithm": "ed25519", "public_key": "PEM", "pinned_at_unix": 1}
        entry = {"repository": "r.example/py", "policy": "require", "is_set": False, "keys": [key]}
        with Host(lambda asked, reply: reply.json([entry] if asked.method == "GET" else entry)) as host:
            forkd = AsyncForkd(socket=host.socket)
            self.assertEqual((await forkd.trust.pin("r.example/py", "PEM")).keys[0].algorithm, "ed25519")
            await forkd.trust.set_policy("r.example/py", None)
            self.assertEqual((await forkd.trust.list())[0].policy, "require")
            await forkd.trust.unpin("r.example/py", "sha256:00")
            await forkd.trust.remove("r.example/py")
            pinned, reset, _, unpinned, _ = host.asked
            self.assertEqual(pinned.json, {"repository": "r.example/py", "public_key": "PEM"})
            self.assertEqual(reset.json, {"repository": "r.example/py", "policy": None})
            self.assertEqual(unpinned.query["fingerprint"], ["sha256:00"])

    async def test_an_sbom_keeps_its_own_names(self) -> None:
        document = {"spdxVersion": "SPDX-2.3", "created_unix": 1}
        with Host(lambda asked, reply: reply.json(document)) as host:
            self.assertEqual(await AsyncForkd(socket=host.socket).snapshots.sbom("py"), document)
            self.assertEqual(host.asked[0].path, "/v1/snapshots/py/sbom")

    async def test_the_pool_is_set_by_a_number_and_automatic_by_none(self) -> None:
        shelf = {"tag": "py", "ready": 1, "making": 0, "wanted": 1, "is_set": True, "child_mib": 30}
        pool = {"budget_mib": 100, "used_mib": 30, "snapshots": [shelf]}
        with Host(lambda asked, reply: reply.json(pool)) as host:
            forkd = AsyncForkd(socket=host.socket)
            self.assertEqual((await forkd.pool.set("py", 1)).snapshots[0].wanted, 1)
            await forkd.pool.set("py", None)
            self.assertEqual((await forkd.pool.get()).used_mib, 30)
            self.assertEqual([asked.json for asked in host.asked[:2]], [{"ready": 1}, {"ready": None}])

    async def test_a_push_and_a_pull_report_progress_and_their_result(self) -> None:
        progress = {"type": "progress", "step": "send", "message": "sending", "done_bytes": 5, "elapsed_ms": 1500}
        pushed = {"tag": "py", "reference": "r/x:v1", "total_bytes": 9, "moved_bytes": 5, "duration_ms": 2000}
        chain = [{"tag": "base", "existed": True}, {"tag": "py", "existed": False}]
        pulled = {"reference": "r/x:v1", "digest": "sha256:0", "snapshots": chain, "moved_bytes": 5}
        trust = {"policy": "warn", "outcome": "unsigned", "text": "Nobody has signed r/x"}
        pulled = {**pulled, "duration_ms": 10, "trust": trust, "rebuilt": False, "snapshot": SNAPSHOT}
        answers = {
            "/v1/hub/push": [progress, {"type": "pushed", "push": pushed}],
            "/v1/hub/pull": [progress, {"type": "pulled", "pull": pulled}],
        }

        def answer(asked, reply):
            reply.begin()
            for line in answers[asked.path]:
                reply.line(line)
            reply.end()

        seen = []
        with Host(answer) as host:
            forkd = AsyncForkd(socket=host.socket)
            auth = {"username": "me", "password": "p"}
            sent = await forkd.hub.push("py", "r/x:v1", auth=auth, on_progress=seen.append)
            self.assertEqual((sent.moved_bytes, sent.duration_secs, sent.digest), (5, 2.0, None))
            self.assertEqual([(each.step, each.elapsed_secs, each.done_bytes) for each in seen], [("send", 1.5, 5)])
            got = await forkd.hub.pull("r/x:v1", force=True)
            self.assertEqual([each.existed for each in got.snapshots], [True, False])
            self.assertEqual((got.snapshot.tag, got.trust.outcome, got.trust.signer), ("python", "unsigned", None))
            self.assertEqual(host.asked[0].json, {"tag": "py", "reference": "r/x:v1", "auth": auth})
            self.assertEqual(host.asked[1].json, {"reference": "r/x:v1", "force": True})

    async def test_a_signature_is_attached_to_a_digest(self) -> None:
        answer = {"reference": "r/x@sha256:0", "digest": "sha256:0", "signature_tag": "t", "fingerprint": "f"}
        with Host(lambda asked, reply: reply.json(answer)) as host:
            signed = await AsyncForkd(socket=host.socket).hub.sign("r/x", "sha256:0", signature="s", public_key="k")
            self.assertEqual((signed.signature_tag, signed.fingerprint), ("t", "f"))
            expected = {"reference": "r/x", "digest": "sha256:0", "signature": "s", "public_key": "k"}
            self.assertEqual(host.asked[0].json, expected)

    async def test_a_search_lists_the_snapshots_of_a_registry(self) -> None:
        found = {"reference": "r/x:v1", "digest": "sha256:0", "total_bytes": 9, "annotations": {"a_ms": "1"}}
        answer = {"registry": "r", "found": [found], "truncated": False}
        with Host(lambda asked, reply: reply.json(answer)) as host:
            result = await AsyncForkd(socket=host.socket).hub.search("r", text="x")
            self.assertEqual(result.found[0].annotations, {"a_ms": "1"})
            self.assertEqual(host.asked[0].json, {"registry": "r", "text": "x"})

    async def test_unknown_arguments_are_type_errors(self) -> None:
        forkd = AsyncForkd(socket="/nowhere")
        with self.assertRaises(TypeError):
            await forkd.fork("python", count=3)  # type: ignore[call-arg]
        with self.assertRaises(TypeError):
            await forkd.fork("python", env={"A": 1})  # type: ignore[dict-item]
        with self.assertRaises(TypeError):
            await forkd.fork("python", secrets="KEY")

    async def test_a_child_that_fails_is_an_error_in_the_list(self) -> None:
        failed = {"error": "no memory", "code": "capacity_exhausted", "details": {}, "index": 1}
        with Host(lambda asked, reply: reply.json([info(), failed], 201)) as host:
            children = await AsyncForkd(socket=host.socket).fork("python", 2)
            self.assertIsInstance(children[0], AsyncSandbox)
            self.assertIsInstance(children[1], ForkError)
            self.assertEqual((children[1].index, children[1].code), (1, "capacity_exhausted"))

    async def test_errors_have_the_class_of_their_code(self) -> None:
        codes = {
            "invalid_request": (400, InvalidRequestError),
            "unauthenticated": (401, AuthenticationError),
            "snapshot_not_found": (404, NotFoundError),
            "sandbox_dead": (409, ConflictError),
            "rate_limited": (429, CapacityError),
            "kernel_failed": (502, GuestError),
            "daemon_stopping": (503, DaemonUnreachableError),
            "deadline_exceeded": (504, TimeoutError),
            "some_new_code": (418, InternalError),
        }
        for code, (status, kind) in codes.items():
            body = {"error": "why", "code": code, "details": {"a": 1}, "request_id": "r1"}
            with Host(lambda asked, reply: reply.json(body, status)) as host:
                with self.assertRaises(kind) as caught:
                    await AsyncForkd(socket=host.socket).status()
                self.assertEqual(caught.exception.details["a"], 1)
                self.assertEqual(caught.exception.request_id, "r1")

    async def test_a_remedy_has_the_words_of_this_sdk(self) -> None:
        remedy = {"action": "resume", "id": SANDBOX, "text": "POST …/resume"}
        body = {"error": "It is paused", "code": "sandbox_paused", "details": {}, "remedy": remedy}
        with Host(lambda asked, reply: reply.json(body, 409)) as host:
            with self.assertRaises(ConflictError) as caught:
                await AsyncForkd(socket=host.socket).status()
        self.assertEqual(caught.exception.remedy, "Call `sandbox.resume()` to resume it.")
        self.assertIn("sandbox.resume()", str(caught.exception))

    async def test_lists_read_every_page(self) -> None:
        def answer(asked, reply):
            if "cursor" in asked.query:
                reply.json([info(index=2)])
            else:
                reply.json([info(index=0), info(index=1)], x_next_cursor="c1")

        with Host(answer) as host:
            forkd = AsyncForkd(socket=host.socket)
            pages = AsyncSandbox.list(labels={"job": "4 2"}, state="running", forkd=forkd)
            self.assertEqual([each.info.index async for each in pages], [0, 1, 2])
            self.assertEqual(host.asked[0].query["label"], ["job=4 2"])
            self.assertEqual(host.asked[1].query["cursor"], ["c1"])
            self.assertEqual(len(await AsyncSandbox.list(limit=1, forkd=forkd).all()), 1)
            one = AsyncSandbox.list(forkd=forkd)
            self.assertEqual([len(await one.page()), len(await one.page()), one.has_next], [2, 1, False])

    async def test_null_removes_a_time_and_a_missing_one_stays(self) -> None:
        with Host(lambda asked, reply: reply.json(info())) as host:
            sandbox = await AsyncSandbox.connect(SANDBOX, forkd=AsyncForkd(socket=host.socket))
            await sandbox.set_timeouts(ttl=None, auto_resume=True)
            self.assertEqual(host.asked[-1].json, {"ttl_secs": None, "auto_resume": True})

    async def test_kill_says_whether_there_was_a_sandbox(self) -> None:
        gone = {"error": "gone", "code": "sandbox_not_found", "details": {}}

        def answer(asked, reply):
            if asked.method == "GET":
                reply.json(info())
            elif sum(each.method == "DELETE" for each in host.asked) == 1:
                reply.empty()
            else:
                reply.json(gone, 404)

        with Host(answer) as host:
            async with await AsyncSandbox.connect(SANDBOX, forkd=AsyncForkd(socket=host.socket)) as sandbox:
                self.assertTrue(await sandbox.kill())
                self.assertFalse(await sandbox.kill())

    async def test_tcp_sends_the_token_and_the_prefix_of_the_url(self) -> None:
        with Host(lambda asked, reply: reply.json({"version": "1", "api": "v1", "pid": 3}), tcp=True) as host:
            forkd = AsyncForkd(url=f"{host.url}/below/", token="s3cret")
            self.assertEqual((await forkd.version()).pid, 3)
            self.assertEqual(host.asked[0].path, "/below/version")
            self.assertEqual(host.asked[0].headers["authorization"], "Bearer s3cret")


class Connections(unittest.IsolatedAsyncioTestCase):
    async def test_calls_share_a_connection(self) -> None:
        with Host(lambda asked, reply: reply.json({"version": "1", "api": "v1", "pid": 3})) as host:
            async with AsyncForkd(socket=host.socket) as forkd:
                for _ in range(5):
                    await forkd.version()
            self.assertEqual(host.connections, 1)

    async def test_a_call_uses_another_connection_if_the_idle_one_was_closed(self) -> None:
        def answer(asked, reply):
            reply.json({"removed": [], "dry_run": True})
            reply.cut()
            closed.set()

        closed = threading.Event()
        with Host(answer) as host:
            forkd = AsyncForkd(socket=host.socket)
            for _ in range(3):
                closed.clear()
                await forkd.cleanup(dry_run=True)
                self.assertTrue(await asyncio.to_thread(closed.wait, SOON))
            self.assertEqual(len(host.asked), 3)

    async def test_a_post_that_may_have_arrived_is_not_repeated(self) -> None:
        def answer(asked, reply):
            if asked.earlier == 0:
                reply.json({"removed": [], "dry_run": True})
            else:
                reply.cut()

        with Host(answer) as host:
            forkd = AsyncForkd(socket=host.socket)
            await forkd.cleanup(dry_run=True)
            with self.assertRaises(DaemonUnreachableError):
                await forkd.cleanup(dry_run=True)
            self.assertEqual(len(host.asked), 2)

    async def test_a_get_is_repeated_once_on_a_new_connection(self) -> None:
        def answer(asked, reply):
            if asked.earlier == 0:
                reply.json({"version": "1", "api": "v1", "pid": 3})
            else:
                reply.cut()

        with Host(answer) as host:
            forkd = AsyncForkd(socket=host.socket)
            await forkd.version()
            self.assertEqual((await forkd.version()).pid, 3)
            self.assertEqual(len(host.asked), 3)

    async def test_no_daemon_names_the_socket_and_a_remedy(self) -> None:
        with self.assertRaises(DaemonUnreachableError) as caught:
            await AsyncForkd(socket="/nowhere/forkd.sock").status()
        self.assertIsInstance(caught.exception, ConnectionError)
        self.assertIn("/nowhere/forkd.sock", caught.exception.message)
        self.assertIn("forkd up", str(caught.exception.remedy))
        self.assertIs(caught.exception.details["sent"], False)

    async def test_a_daemon_that_does_not_answer_ends_with_the_deadline(self) -> None:
        with Host(lambda asked, reply: reply.wait_closed()) as host:
            began = time.monotonic()
            with self.assertRaises(TimeoutError) as caught:
                await AsyncForkd(socket=host.socket).status(timeout=0.2)
            self.assertEqual(caught.exception.code, "deadline_exceeded")
            self.assertGreaterEqual(time.monotonic() - began, 0.2)

    async def test_a_proxy_that_answers_with_html_is_not_taken_for_the_daemon(self) -> None:
        page = b"<html>Sign in</html>"

        for status, code in ((200, "internal"), (403, "internal"), (502, "daemon_unreachable")):

            def page_of(asked, reply, status=status):
                reply.head(status, {"content-type": "text/html", "content-length": str(len(page))})
                reply.raw(page)

            with Host(page_of) as host:
                forkd = AsyncForkd(socket=host.socket)
                sandbox = AsyncSandbox._of(forkd._client, (await _sandbox(host)).info)
                for call in (forkd.status, lambda: sandbox.files.read("/etc/passwd"), lambda: forkd.fork("x")):
                    with self.assertRaises(ForkdError) as caught:
                        await call()
                    self.assertEqual(caught.exception.code, code)
                    self.assertIn("Sign in", caught.exception.details["body"])

    async def test_another_protocol_is_not_taken_for_the_daemon(self) -> None:
        with Host(lambda asked, reply: reply.raw(b"SSH-2.0-OpenSSH_9.6\r\n")) as host:
            with self.assertRaises(DaemonUnreachableError) as caught:
                await AsyncForkd(socket=host.socket).status()
            self.assertIn("SSH-2.0", caught.exception.message)

    async def test_an_answer_that_is_cut_is_an_error(self) -> None:
        def answer(asked, reply):
            reply.head(200, {"content-type": "application/json", "content-length": "1000"})
            reply.raw(b'{"version"')
            reply.cut()

        with Host(answer) as host:
            with self.assertRaises(DaemonUnreachableError) as caught:
                await AsyncForkd(socket=host.socket).version()
            self.assertIs(caught.exception.details["cut"], True)

    async def test_an_answer_of_another_form_is_an_error(self) -> None:
        for value in (None, [], {"version": 1}, {"version": "1", "api": "v1"}, "text"):
            with Host(lambda asked, reply: reply.json(value)) as host:
                with self.assertRaises(InternalError):
                    await AsyncForkd(socket=host.socket).version()

    async def test_a_header_cannot_begin_another_one(self) -> None:
        with Host(lambda asked, reply: reply.json([info()], 201)) as host:
            with self.assertRaises(ValueError):
                await AsyncForkd(socket=host.socket).create("x", idempotency_key="a\r\nx-evil: 1")
            self.assertEqual(host.asked, [])


class Files(unittest.IsolatedAsyncioTestCase):
    entry = {
        "name": "a",
        "path": "/a",
        "type": "file",
        "size": 1,
        "mode": "0644",
        "mtime_unix": 1.5,
        "uid": 0,
        "gid": 0,
    }

    async def test_write_takes_text_bytes_files_and_iterables(self) -> None:
        big = bytes(range(256)) * 8192
        with Host(lambda asked, reply: reply.json(self.entry)) as host:
            files = (await _sandbox(host)).files
            contents = ["tëxt", b"\xff\0", bytearray(b"x"), io.BytesIO(big), [b"1", b"", b"2"], (b for b in [b"3"])]
            for content in contents:
                await files.write("/a b/ü", content, mode="0600", append=True)
            bodies = ["tëxt".encode(), b"\xff\0", b"x", big, b"12", b"3"]
            self.assertEqual([asked.body for asked in host.asked], bodies)
            self.assertEqual(host.asked[0].query, {"path": ["/a b/ü"], "mode": ["0600"], "append": ["true"]})

    async def test_no_bytes_are_no_request(self) -> None:
        with Host(lambda asked, reply: reply.json(self.entry)) as host:
            files = (await _sandbox(host)).files
            self.assertEqual(await files.read("/a", limit=0), b"")
            with self.assertRaises(ValueError):
                await files.stream("/a", limit=-1)
            self.assertEqual(host.asked, [])

    async def test_a_source_that_fails_leaves_its_own_error_and_no_whole_request(self) -> None:
        def source():
            yield b"first"
            raise OSError("disk of the client")

        with Host(lambda asked, reply: reply.json(self.entry)) as host:
            with self.assertRaisesRegex(OSError, "disk of the client"):
                await (await _sandbox(host)).files.write("/a", source())
            with self.assertRaises(TypeError):
                await (await _sandbox(host)).files.write("/a", io.StringIO("text"))
            self.assertEqual(host.asked, [])

    async def test_an_early_refusal_of_an_upload_is_the_error(self) -> None:
        refusal = {"error": "Disk full", "code": "disk_full", "details": {}}

        def endless():
            while True:
                yield b"x" * 65536

        listener = _early(refusal)
        with listener as host:
            with self.assertRaises(CapacityError):
                await (await _sandbox(host)).files.write("/a", endless())

    async def test_a_download_that_is_cut_names_the_reason(self) -> None:
        def answer(asked, reply):
            if asked.path.endswith("/files"):
                reply.begin("application/octet-stream")
                reply.chunk(b"half")
                reply.cut()
            else:
                reply.json(info(state="dead", reason="it ran out of memory"))

        with Host(answer) as host:
            with self.assertRaises(ConflictError) as caught:
                await (await _sandbox(host)).files.read("/a")
            self.assertEqual(caught.exception.code, "sandbox_dead")
            self.assertIn("out of memory", caught.exception.message)

    async def test_leaving_a_download_closes_it(self) -> None:
        closed = threading.Event()

        def answer(asked, reply):
            reply.begin("application/octet-stream")
            reply.chunk(b"first")
            reply.wait_closed()
            closed.set()

        with Host(answer) as host:
            async with (await _sandbox(host)).files.stream("/a") as stream:
                async for piece in stream:
                    self.assertEqual(piece, b"first")
                    break
            self.assertTrue(await asyncio.to_thread(closed.wait, SOON))

    async def test_watch_begins_after_its_first_line_and_ends_with_its_error(self) -> None:
        def answer(asked, reply):
            reply.begin()
            reply.line({"type": "started", "path": "/srv"})
            reply.line({"type": "create", "path": "new", "from": "old"})
            reply.line({"type": "error", "error": "The directory is gone", "code": "file_not_found", "details": {}})
            reply.end()

        with Host(answer) as host:
            async with (await _sandbox(host)).files.watch("/srv", recursive=True) as watch:
                seen = []
                with self.assertRaises(NotFoundError):
                    async for event in watch:
                        seen.append((event.type, event.path, event.old_path))
                self.assertEqual(seen, [("create", "new", "old")])
            self.assertEqual(host.asked[0].query, {"path": ["/srv"], "recursive": ["true"]})


class Events(unittest.IsolatedAsyncioTestCase):
    @staticmethod
    def event(number: int, kind: str = "sandbox.created", **fields: object) -> bytes:
        value = {"id": f"abc-{number}", "type": kind, "at_unix": 1.0, **fields}
        return f"id: abc-{number}\nevent: {kind}\ndata: {json.dumps(value)}\n\n".encode()

    async def test_events_continue_after_the_last_one(self) -> None:
        def answer(asked, reply):
            reply.begin("text/event-stream")
            last = asked.headers.get("last-event-id")
            reply.chunk(b": listening\n\n")
            if last is None:
                frame = self.event(1, reason="a\u2028b")
                reply.chunk(frame[:20])
                reply.chunk(frame[20:])
                reply.cut()
            elif last == "abc-1":
                reply.chunk(self.event(2) + self.event(3, "overflow"))
                reply.end()
            else:
                self.assertEqual(last, "000000000000-0")
                reply.chunk(self.event(4, "reset"))
                reply.chunk(self.event(5, "revoked", reason="The key was removed"))
                reply.end()

        with Host(answer) as host:
            seen = []
            with self.assertRaises(AuthenticationError):
                async with AsyncForkd(socket=host.socket).events(types=["sandbox.*"]) as events:
                    async for event in events:
                        seen.append((event.id, event.reason))
            self.assertEqual(seen, [("abc-1", "a\u2028b"), ("abc-2", None), ("abc-4", None)])

    async def test_without_retry_a_lost_stream_is_an_error(self) -> None:
        def answer(asked, reply):
            reply.begin("text/event-stream")
            reply.cut()

        with Host(answer) as host:
            with self.assertRaises(DaemonUnreachableError):
                async for _ in AsyncForkd(socket=host.socket).events(retry=0):
                    pass


def _early(refusal: object) -> Host:
    """A server that answers as soon as it has the head of an upload."""
    body = json.dumps(refusal).encode()

    class Early(Host):
        def _serve(self, connection, handler):
            head = b""
            while b"\r\n\r\n" not in head:
                head += connection.recv(4096)
            connection.sendall(
                b"HTTP/1.1 507 X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body)
            )
            connection.settimeout(SOON)
            try:
                while connection.recv(65536):
                    pass
            except OSError:
                pass
            connection.close()

    return Early(lambda asked, reply: None)


async def _sandbox(host: Host) -> AsyncSandbox:
    from forkd._convert import to_model
    from forkd.models import SandboxInfo

    return AsyncSandbox._of(AsyncForkd(socket=host.socket)._client, to_model(SandboxInfo, info()))
