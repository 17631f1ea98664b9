"""Connections of asyncio as an `Io`."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Awaitable, List, Optional, Tuple, TypeVar

from .io import Bytes, DeadlineReached, Place
from .tls import tls_context

T = TypeVar("T")

#: Bytes that wait to be read before the connection stops receiving.
_high_water = 1_048_576


class AioRaw(asyncio.Protocol):
    """A connection of an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._transport: Optional[asyncio.Transport] = None
        self._pieces: List[bytes] = []
        self._size = 0
        self._ended = False
        self._failure: Optional[BaseException] = None
        self._readable: Optional[asyncio.Future[None]] = None
        self._writable: Optional[asyncio.Future[None]] = None
        self._full = False
        self._paused = False

    # What the event loop calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)
        if self._size > _high_water and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        _wake(self._readable)

    def eof_received(self) -> bool:
        self._ended = True
        _wake(self._readable)
        # TLS cannot end one direction only.
        return self._transport is not None and self._transport.get_extra_info("sslcontext") is None

    def connection_lost(self, error: Optional[Exception]) -> None:
        self._ended = True
        self._failure = error
        _wake(self._readable)
        _wake(self._writable)

    def pause_writing(self) -> None:
        self._full = True

    def resume_writing(self) -> None:
        self._full = False
        _wake(self._writable)

    # What the core calls.

    async def receive(self, most: int, until: Optional[float]) -> bytes:
        while not self._pieces:
            if self._failure is not None:
                raise self._failure
            if self._ended:
                return b""
            self._readable = self._loop.create_future()
            try:
                await self._within(self._readable, until)
            finally:
                self._readable = None
        data = self._pieces[0]
        if len(data) <= most:
            del self._pieces[0]
        else:
            self._pieces[0] = data[most:]
            data = data[:most]
        self._size -= len(data)
        if self._paused and self._size <= _high_water // 2 and self._transport is not None:
            self._paused = False
            if not self._transport.is_closing():
                self._transport.resume_reading()
        return data

    async def send(self, data: Bytes, until: Optional[float]) -> None:
        if self._transport is None or self._transport.is_closing():
            raise self._failure or ConnectionResetError("the connection is closed")
        self._transport.write(data)
        while self._full and not self._ended_for_writing():
            self._writable = self._loop.create_future()
            try:
                await self._within(self._writable, until)
            finally:
                self._writable = None
        if self._failure is not None:
            raise self._failure

    def has_input(self) -> bool:
        if self._loop is not asyncio.get_running_loop():
            return True  # The connection belongs to an event loop that has ended.
        return bool(self._pieces) or self._ended

    def close(self) -> None:
        if self._transport is None:
            return
        try:
            self._transport.abort()
        except RuntimeError:
            pass  # The event loop is closed, and its connections with it.

    def detach(self) -> Tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        assert self._transport is not None
        reader = asyncio.StreamReader(loop=self._loop)
        protocol = asyncio.StreamReaderProtocol(reader, loop=self._loop)
        self._transport.set_protocol(protocol)
        protocol.connection_made(self._transport)
        if self._paused:
            self._transport.resume_reading()
        for piece in self._pieces:
            reader.feed_data(piece)
        if self._ended:
            reader.feed_eof()
        return reader, asyncio.StreamWriter(self._transport, protocol, reader, self._loop)

    def _ended_for_writing(self) -> bool:
        return self._failure is not None or self._transport is None or self._transport.is_closing()

    async def _within(self, event: asyncio.Future[None], until: Optional[float]) -> None:
        """Waits without a task: one task per receive would double the cost of a short call."""
        if until is None:
            await event
            return
        late = self._loop.call_later(max(0.0, until - time.monotonic()), _fail, event)
        try:
            await event
        finally:
            late.cancel()


class AioIo:
    """Connections, time and locks on asyncio."""

    async def connect(self, place: Place, until: Optional[float]) -> AioRaw:
        loop = asyncio.get_running_loop()
        if place.socket is not None:
            _, raw = await _limited(loop.create_unix_connection(lambda: AioRaw(loop), place.socket), until)
            return raw
        context = tls_context(place) if place.secure else None
        opening = loop.create_connection(lambda: AioRaw(loop), place.host, place.port, ssl=context)
        transport, raw = await _limited(opening, until)
        plain = transport.get_extra_info("socket")
        if plain is not None:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return raw

    async def sleep(self, secs: float) -> None:
        await asyncio.sleep(secs)

    def lock(self) -> asyncio.Lock:
        return asyncio.Lock()


async def _limited(work: Awaitable[T], until: Optional[float]) -> T:
    left = None if until is None else max(0.001, until - time.monotonic())
    try:
        return await asyncio.wait_for(work, left)
    except asyncio.TimeoutError:
        raise DeadlineReached() from None


def _wake(event: Optional[asyncio.Future[None]]) -> None:
    if event is not None and not event.done():
        event.set_result(None)


def _fail(event: asyncio.Future[None]) -> None:
    if not event.done():
        event.set_exception(DeadlineReached())
