"""Blocking sockets as an `Io`. No coroutine here ever suspends."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from types import TracebackType
from typing import Optional, Type

from .io import Bytes, DeadlineReached, Place
from .tls import tls_context


class BlockingRaw:
    """A connection over a socket of this process."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected

    async def receive(self, most: int, until: Optional[float]) -> bytes:
        self._limit(until)
        try:
            return self._socket.recv(most)
        except socket.timeout:
            raise DeadlineReached() from None
        except ssl.SSLEOFError:
            # The peer closed the connection without the closing message of TLS. HTTP says where an answer ends.
            return b""

    async def send(self, data: Bytes, until: Optional[float]) -> None:
        view = memoryview(data)
        sent = 0
        while sent < len(view):
            self._limit(until)
            try:
                sent += self._socket.send(view[sent : sent + 1_048_576])
            except socket.timeout:
                raise DeadlineReached() from None

    def has_input(self) -> bool:
        try:
            if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending() > 0:
                return True
            poll = select.poll()
            poll.register(self._socket, select.POLLIN)
            return bool(poll.poll(0))
        except (OSError, ValueError):
            return True

    def close(self) -> None:
        try:
            # Wakes a thread that receives.
            self._socket.shutdown(socket.SHUT_RDWR)
        except (OSError, ValueError):
            pass
        self._socket.close()

    def detach(self) -> socket.socket:
        self._socket.settimeout(None)
        return self._socket

    def _limit(self, until: Optional[float]) -> None:
        if until is None:
            self._socket.settimeout(None)
            return
        left = until - time.monotonic()
        if left <= 0:
            raise DeadlineReached()
        self._socket.settimeout(left)


class BlockingLock:
    """A lock of threads with the interface of the core."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    async def __aenter__(self) -> None:
        self._lock.acquire()

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self._lock.release()


class BlockingIo:
    """Connections, time and locks for programs without asyncio."""

    async def connect(self, place: Place, until: Optional[float]) -> BlockingRaw:
        left = None if until is None else max(0.001, until - time.monotonic())
        try:
            if place.socket is not None:
                plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
                try:
                    plain.settimeout(left)
                    plain.connect(place.socket)
                except BaseException:
                    plain.close()
                    raise
                return BlockingRaw(plain)
            plain = socket.create_connection((place.host, place.port), timeout=left)
            try:
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                if not place.secure:
                    return BlockingRaw(plain)
                return BlockingRaw(tls_context(place).wrap_socket(plain, server_hostname=place.host))
            except BaseException:
                plain.close()
                raise
        except socket.timeout:
            raise DeadlineReached() from None

    async def sleep(self, secs: float) -> None:
        time.sleep(secs)

    def lock(self) -> BlockingLock:
        return BlockingLock()
