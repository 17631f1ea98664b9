"""What only the blocking flavour has: sockets, threads, the names of the original SDK, TLS."""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import ssl
import subprocess
import tempfile
import threading
import unittest
from concurrent.futures import ThreadPoolExecutor

import forkd
from forkd import AsyncForkd, Controller, ControllerError, DaemonUnreachableError, Forkd, GuestError, Sandbox
from forkd._convert import to_model
from forkd.models import SandboxInfo
from host import SANDBOX, SOON, Host, info


def echo(asked, reply):
    """A tunnel that sends a greeting with its head, and then everything back."""
    if asked.headers.get("upgrade") != "forkd-tcp":
        reply.json({"error": "Upgrade", "code": "invalid_request", "details": {}}, 400)
        return
    reply.raw(b"HTTP/1.1 101 X\r\nconnection: Upgrade\r\nupgrade: forkd-tcp\r\n\r\nhello ")
    while True:
        data = reply.connection.recv(65536)
        if not data:
            break
        reply.raw(data)
    reply.connection.shutdown(socket.SHUT_WR)


class Tunnels(unittest.TestCase):
    def test_connect_gives_a_socket_that_has_every_byte(self) -> None:
        with Host(echo) as host:
            sandbox = Sandbox._of(Forkd(socket=host.socket)._client, to_model(SandboxInfo, info()))
            with sandbox.ports.connect(3000) as tunnel:
                tunnel.settimeout(SOON)
                tunnel.sendall(b"world")
                tunnel.shutdown(socket.SHUT_WR)
                received = b""
                while True:
                    piece = tunnel.recv(3)
                    if not piece:
                        break
                    received += piece
            self.assertEqual(received, b"hello world")
            self.assertEqual(host.asked[0].path, f"/v1/sandboxes/{SANDBOX}/ports/3000/tcp")

    def test_connect_gives_asyncio_streams(self) -> None:
        async def main(path: str) -> bytes:
            sandbox = forkd.AsyncSandbox._of(AsyncForkd(socket=path)._client, to_model(SandboxInfo, info()))
            reader, writer = await sandbox.ports.connect(3000)
            writer.write(b"x" * 3_000_000)
            writer.write_eof()
            received = await asyncio.wait_for(reader.read(), SOON)
            writer.close()
            await writer.wait_closed()
            return received

        with Host(echo) as host:
            self.assertEqual(asyncio.run(main(host.socket)), b"hello " + b"x" * 3_000_000)

    def test_a_refusal_is_an_error(self) -> None:
        body = {"error": "No server", "code": "port_refused", "details": {}}
        with Host(lambda asked, reply: reply.json(body, 502)) as host:
            sandbox = Sandbox._of(Forkd(socket=host.socket)._client, to_model(SandboxInfo, info()))
            with self.assertRaises(GuestError):
                sandbox.ports.connect(3000)


class Threads(unittest.TestCase):
    def test_threads_share_a_client(self) -> None:
        with Host(lambda asked, reply: reply.json({**info(), "hostname": asked.path})) as host:
            with Forkd(socket=host.socket) as client:
                ids = [f"sb-{number:024x}" for number in range(64)]
                with ThreadPoolExecutor(16) as pool:
                    names = list(pool.map(lambda each: client.sandboxes.get(each).info.hostname, ids))
            self.assertEqual(names, [f"/v1/sandboxes/{each}" for each in ids])
            self.assertLessEqual(host.connections, 16)

    def test_a_child_of_fork_does_not_use_the_connections_of_its_parent(self) -> None:
        with Host(lambda asked, reply: reply.json({"version": "1", "api": "v1", "pid": 1})) as host:
            client = Forkd(socket=host.socket)
            client.version()
            child = os.fork()
            if child == 0:
                try:
                    client.version()
                    os._exit(0)
                except BaseException:
                    os._exit(1)
            self.assertEqual(os.waitpid(child, 0)[1], 0)
            client.version()
            self.assertEqual(host.connections, 2)

    def test_closing_a_stream_from_another_thread_ends_its_reader(self) -> None:
        def answer(asked, reply):
            reply.begin()
            reply.line({"type": "started", "exec_id": 1, "pid": 2})
            reply.wait_closed()

        with Host(answer) as host:
            sandbox = Sandbox._of(Forkd(socket=host.socket)._client, to_model(SandboxInfo, info()))
            handle = sandbox.commands.stream("sleep 1000")
            threading.Timer(0.2, handle.close).start()
            self.assertEqual([event.type for event in handle], ["started"])


class Original(unittest.TestCase):
    """Names and arguments of the original SDK."""

    def test_controller_answers_with_objects_of_the_wire(self) -> None:
        def answer(asked, reply):
            if asked.path == "/v1/snapshots":
                reply.json([{"tag": "pyagent"}])
            elif asked.method == "POST" and asked.path == "/v1/sandboxes":
                reply.json([info()], 201)
            elif asked.path.endswith("/exec"):
                reply.json({"stdout": "hi\n", "stderr": "", "exit_code": 0})
            elif asked.method == "DELETE":
                reply.empty()
            else:
                reply.json({"error": "none", "code": "sandbox_not_found", "details": {}}, 404)

        with Host(answer, tcp=True) as host:
            controller = Controller(base_url=host.url + "/", token="t", timeout=20)
            self.assertEqual(controller.list_snapshots(), [{"tag": "pyagent"}])
            children = controller.spawn_sandboxes("pyagent", n=1, per_child_netns=True, memory_limit_mib=256)
            self.assertEqual(children[0]["id"], SANDBOX)
            sent = {"snapshot_tag": "pyagent", "n": 1, "per_child_netns": True, "memory_limit_mib": 256}
            self.assertEqual(host.asked[-1].json, sent)
            self.assertEqual(controller.exec_command(SANDBOX, ["echo", "hi"], timeout_secs=5)["stdout"], "hi\n")
            controller.kill_sandbox(SANDBOX)
            with self.assertRaises(ControllerError) as caught:
                controller.get_sandbox("sb-none")
            self.assertEqual((caught.exception.status, caught.exception.body["code"]), (404, "sandbox_not_found"))
            self.assertIsInstance(caught.exception, RuntimeError)

    def test_the_constructor_of_sandbox_forks(self) -> None:
        with Host(lambda asked, reply: reply.empty() if asked.method == "DELETE" else reply.json([info()], 201)) as host:
            os.environ["FORKD_SOCKET"] = host.socket
            try:
                with Sandbox(tag="pyagent", timeout=5) as sandbox:
                    self.assertEqual(sandbox.tag, "python")
                    self.assertEqual(sandbox.commands._default_timeout, 5.0)
                with Sandbox():
                    self.assertEqual(host.asked[-1].json, {"snapshot_tag": "pyagent"})
                with self.assertRaises(forkd.UnsupportedError):
                    Sandbox(target="10.42.0.2:8888", spawn=False)
            finally:
                del os.environ["FORKD_SOCKET"]
            self.assertEqual([asked.method for asked in host.asked], ["POST", "DELETE", "POST", "DELETE"])


class Tls(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.temporary = tempfile.TemporaryDirectory()
        cls.certificate = os.path.join(cls.temporary.name, "cert.pem")
        key = os.path.join(cls.temporary.name, "key.pem")
        name = ["-subj", "/CN=forkd", "-addext", "subjectAltName=IP:127.0.0.1"]
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        subprocess.run([*made, *name, "-keyout", key, "-out", cls.certificate], check=True, capture_output=True)
        cls.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        cls.context.load_cert_chain(cls.certificate, key)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.temporary.cleanup()

    def test_both_flavours_trust_the_given_certificates(self) -> None:
        async def ask(url: str) -> int:
            async with AsyncForkd(url=url, token="t", ca_file=self.certificate) as client:
                await client.version()
                return (await client.version()).pid

        with Host(lambda asked, reply: reply.json({"version": "1", "api": "v1", "pid": 3}), tcp=True, tls=self.context) as host:
            with Forkd(url=host.url, token="t", ca_file=self.certificate) as client:
                self.assertEqual([client.version().pid, client.version().pid], [3, 3])
            self.assertEqual(asyncio.run(ask(host.url)), 3)
            self.assertEqual(host.connections, 2)
            self.assertEqual(host.asked[0].headers["authorization"], "Bearer t")

    def test_other_certificates_and_protocols_are_refused_with_a_remedy(self) -> None:
        with Host(lambda asked, reply: reply.json({}), tcp=True, tls=self.context) as host:
            with self.assertRaises(DaemonUnreachableError) as caught:
                Forkd(url=host.url).version()
            self.assertIn("ca_file", str(caught.exception.remedy))
            with self.assertRaises(DaemonUnreachableError):
                Forkd(url=host.url.replace("https", "http")).version(timeout=SOON)
            self.assertEqual(host.asked, [])
        with Host(lambda asked, reply: reply.json({}), tcp=True) as host:
            with self.assertRaises(DaemonUnreachableError) as caught:
                Forkd(url=host.url.replace("http", "https")).version(timeout=SOON)
            self.assertIn("http://", str(caught.exception.remedy))


class Errors(unittest.TestCase):
    def test_errors_survive_pickling(self) -> None:
        for error in (
            forkd.NotFoundError("sandbox_not_found", "gone", {"id": "x"}, {"action": "list_sandboxes"}),
            forkd.TimeoutError("deadline_exceeded", "late"),
            forkd.ForkError("disk_full", "full", index=3),
        ):
            again = pickle.loads(pickle.dumps(error))
            self.assertEqual((type(again), again.code, str(again)), (type(error), error.code, str(error)))
