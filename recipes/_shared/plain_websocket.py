"""A small WebSocket client over a connected socket, for the demos: text messages, no extensions."""

import base64
import hashlib
import os
import socket
import struct

_guid = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_most_bytes = 64 * 1024 * 1024


class WebSocket:
    """Sends and receives texts. `connection` is what `sandbox.ports.connect()` returns."""

    def __init__(self, connection: socket.socket, path: str, host: str = "127.0.0.1", timeout: float = 300):
        self._connection = connection
        self._buffer = b""
        connection.settimeout(timeout)
        key = base64.b64encode(os.urandom(16)).decode()
        lines = [
            f"GET {path} HTTP/1.1",
            f"Host: {host}",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            f"Sec-WebSocket-Key: {key}",
        ]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())
        while b"\r\n\r\n" not in self._buffer:
            if len(self._buffer) > 65536:
                raise ConnectionError("the server sent more than 64 KiB of headers")
            self._receive()
        head, self._buffer = self._buffer.split(b"\r\n\r\n", 1)
        expected = base64.b64encode(hashlib.sha1((key + _guid).encode()).digest())
        if not head.startswith(b"HTTP/1.1 101") or expected not in head:
            raise ConnectionError(f"not a WebSocket: {head[:200]!r}")

    def send(self, text: str) -> None:
        self._send(1, text.encode())

    def receive(self) -> str:
        """The next message. Answers pings on the way."""
        message = b""
        while True:
            first, second = self._read(2)
            size = second & 127
            if size > 125:
                (size,) = struct.unpack("!H" if size == 126 else "!Q", self._read(2 if size == 126 else 8))
            if size + len(message) > _most_bytes:
                raise ConnectionError(f"a message of more than {_most_bytes} bytes")
            payload = self._read(size)
            kind = first & 15
            if kind == 8:
                raise ConnectionError("the server closed the WebSocket")
            if kind == 9:
                self._send(10, payload)
            if kind > 7:
                continue
            message += payload
            if first & 128:
                return message.decode()

    def _send(self, kind: int, payload: bytes) -> None:
        size = len(payload)
        if size < 126:
            head = struct.pack("!BB", 128 | kind, 128 | size)
        elif size < 65536:
            head = struct.pack("!BBH", 128 | kind, 128 | 126, size)
        else:
            head = struct.pack("!BBQ", 128 | kind, 128 | 127, size)
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[index % 4] for index, byte in enumerate(payload))
        self._connection.sendall(head + mask + masked)

    def _read(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._receive()
        piece, self._buffer = self._buffer[:size], self._buffer[size:]
        return piece

    def _receive(self) -> None:
        piece = self._connection.recv(65536)
        if not piece:
            raise ConnectionError("the server closed the connection")
        self._buffer += piece
