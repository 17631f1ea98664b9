"""A small HTTP server with real sockets, whose answers each test writes byte by byte if it has to."""

from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import tempfile
import threading
from dataclasses import dataclass
from typing import Any, Callable, Dict, List, Optional
from urllib.parse import parse_qs, urlsplit

SANDBOX = "sb-0123456789abcdef01234567"
#: Longest wait of a test for something that must happen.
SOON = 20.0


@dataclass
class Asked:
    """A request that the server received."""

    method: str
    path: str
    query: Dict[str, List[str]]
    headers: Dict[str, str]
    body: bytes
    #: How many requests came over this connection before.
    earlier: int

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Reply:
    """The other end of a request."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection

    def raw(self, data: bytes) -> None:
        self.connection.sendall(data)

    def json(self, value: Any, status: int = 200, **headers: str) -> None:
        body = json.dumps(value).encode()
        self.head(status, {"content-type": "application/json", "content-length": str(len(body)), **headers})
        self.raw(body)

    def empty(self) -> None:
        self.head(204, {})

    def head(self, status: int, headers: Dict[str, str]) -> None:
        lines = [f"HTTP/1.1 {status} X", *(f"{name.replace('_', '-')}: {value}" for name, value in headers.items())]
        self.raw(("\r\n".join(lines) + "\r\n\r\n").encode())

    def begin(self, kind: str = "application/x-ndjson") -> None:
        self.head(200, {"content-type": kind, "transfer-encoding": "chunked"})

    def chunk(self, data: bytes) -> None:
        self.raw(b"%x\r\n%s\r\n" % (len(data), data))

    def line(self, value: Any) -> None:
        self.chunk(json.dumps(value).encode() + b"\n")

    def end(self) -> None:
        self.raw(b"0\r\n\r\n")

    def cut(self) -> None:
        """Closes the connection in the middle of an answer."""
        try:
            self.connection.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.connection.close()

    def wait_closed(self) -> None:
        """Returns when the client has closed the connection."""
        self.connection.settimeout(SOON)
        try:
            while self.connection.recv(4096):
                pass
        except ConnectionError:
            pass


Handler = Callable[[Asked, Reply], None]


class Host:
    """Serves one address. `down()` and `up()` are a restart."""

    def __init__(self, handler: Optional[Handler] = None, *, tcp: bool = False, tls: Optional[ssl.SSLContext] = None):
        self.dir = tempfile.mkdtemp(prefix="forkd-py-")
        self.socket = os.path.join(self.dir, "s")
        self.asked: List[Asked] = []
        self.connections = 0
        self.failures: List[BaseException] = []
        self._tcp = tcp
        self._tls = tls
        self._port = 0
        self._open: List[socket.socket] = []
        self._listener: Optional[socket.socket] = None
        if handler is not None:
            self.up(handler)

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    @property
    def place(self) -> Dict[str, Any]:
        return {"url": self.url, "token": "t0ken"} if self._tcp else {"socket": self.socket}

    def up(self, handler: Handler) -> None:
        if self._tcp:
            listener = socket.socket(socket.AF_INET)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(("127.0.0.1", self._port))
            self._port = listener.getsockname()[1]
        else:
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(self.socket)
        listener.listen(128)
        self._listener = listener
        threading.Thread(target=self._accept, args=(listener, handler), daemon=True).start()

    def down(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            try:
                listener.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            listener.close()
            if not self._tcp:
                os.unlink(self.socket)
        for each in self._open:
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
        self._open = []

    def __enter__(self) -> Host:
        return self

    def __exit__(self, *_: Any) -> None:
        self.down()
        shutil.rmtree(self.dir)
        if self.failures:
            raise self.failures[0]

    def _accept(self, listener: socket.socket, handler: Handler) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            self.connections += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(connection, handler), daemon=True).start()

    def _serve(self, connection: socket.socket, handler: Handler) -> None:
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_side=True)
                self._open.append(connection)
            stream = connection.makefile("rb")
            earlier = 0
            while True:
                try:
                    asked = _read(stream, earlier)
                except UnicodeDecodeError:
                    # As servers do that are sent TLS.
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n")
                    break
                if asked is None:
                    break
                self.asked.append(asked)
                handler(asked, Reply(connection))
                earlier += 1
        except OSError:
            pass
        except BaseException as error:
            self.failures.append(error)
        finally:
            connection.close()


def _read(stream: Any, earlier: int) -> Optional[Asked]:
    first = stream.readline()
    if not first:
        return None
    method, target, _ = first.decode().split(" ", 2)
    headers: Dict[str, str] = {}
    while True:
        line = stream.readline().decode().rstrip("\r\n")
        if line == "":
            break
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip()
    body = b""
    if headers.get("transfer-encoding") == "chunked":
        while True:
            size = stream.readline()
            if not size:
                return None
            data = stream.read(int(size, 16))
            stream.readline()
            if data == b"":
                break
            body += data
    elif "content-length" in headers:
        body = stream.read(int(headers["content-length"]))
    parts = urlsplit(target)
    return Asked(method, parts.path, parse_qs(parts.query), headers, body, earlier)


def info(**changes: Any) -> Dict[str, Any]:
    """A sandbox as the daemon describes it."""
    return {
        "id": SANDBOX,
        "snapshot_tag": "python",
        "state": "running",
        "created_at_unix": 1794812339.887,
        "index": 0,
        "hostname": SANDBOX,
        "labels": {"Job-Id": "42", "created_at_unix": "label"},
        "vcpus": 1,
        "memory_mib": 512,
        "accelerator": "tcg",
        "languages": ["python"],
        "ready_ms": 81.5,
        "from": "start",
        "branch_count": 0,
        **changes,
    }
