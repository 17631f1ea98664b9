"""Transfers of files."""

from __future__ import annotations

import inspect
from typing import Any, Dict, List, Optional, Tuple

from .._convert import wrong_answer
from ..errors import ForkdError, make_error
from .client import Client, Lines, Pieces, silence_secs
from .io import Bytes
from .pool import Source

_piece = 262_144


class Download:
    """The content of a file, piece by piece."""

    def __init__(self, client: Client, sandbox_id: str, path: str, pieces: Pieces) -> None:
        self._client = client
        self._id = sandbox_id
        self._path = path
        self._pieces = pieces

    @staticmethod
    async def open(
        client: Client,
        sandbox_id: str,
        path: str,
        offset: int,
        limit: Optional[int],
        user: Optional[str],
        timeout: Optional[float],
    ) -> Download:
        """Opens a file of a sandbox."""
        if limit is not None and limit < 1:
            # On the wire, 0 means to the end.
            raise ValueError(f"limit must be 1 or more, not {limit}")
        given = {"id": sandbox_id, "path": path, "offset": offset or None, "limit": limit, "user": user}
        pieces = await client.pieces("readFile", given, timeout, silence=silence_secs)
        return Download(client, sandbox_id, path, pieces)

    async def next(self) -> Optional[bytes]:
        """The next piece; None at the end."""
        try:
            return await self._pieces.next()
        except ForkdError as error:
            why = await self._who_cut(error)
            if why is error:
                raise
            raise why from error

    async def read(self) -> bytes:
        """Everything."""
        all_pieces: List[bytes] = []
        try:
            while True:
                piece = await self.next()
                if piece is None:
                    return b"".join(all_pieces)
                all_pieces.append(piece)
        finally:
            self.close()

    def close(self) -> None:
        """Ends the transfer."""
        self._pieces.close()

    async def _who_cut(self, error: ForkdError) -> ForkdError:
        """The daemon can only cut an answer that has begun. If it still answers, the guest was the reason."""
        if error.details.get("cut") is not True:
            return error
        try:
            about = await self._client.call("getSandbox", {"id": self._id}, 10.0)
        except ForkdError:
            return error
        message = f'The transfer of "{self._path}" from {self._id} was cut'
        details = {"path": self._path, "cut": True}
        state = about.get("state") if isinstance(about, dict) else None
        if state == "dead":
            reason = about.get("reason") or "unknown reason"
            return make_error("sandbox_dead", f"{message}: the sandbox is dead ({reason})", details)
        if state == "paused":
            return make_error("sandbox_paused", f"{message}: the sandbox was paused", details)
        remedy = {"action": "show_logs", "id": self._id}
        return make_error("agent_unreachable", f"{message}: the guest did not send the rest", details, remedy)


async def open_watch(client: Client, given: Dict[str, Any], timeout: Optional[float]) -> Lines:
    """Opens a watch of a directory. Its first line says that nothing is missed from now on."""
    lines = await client.lines("watchFiles", given, timeout)
    try:
        first = await lines.next()
        if first is None or first.get("type") != "started":
            raise wrong_answer("it does not say that the watch has started")
    except BaseException:
        lines.close()
        raise
    return lines


def body_of(content: Any) -> Tuple[Optional[bytes], Optional[Source]]:
    """Content of a file as a whole body, or as a source of pieces."""
    if isinstance(content, str):
        return content.encode(), None
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content), None
    if hasattr(content, "read"):
        return None, _from_file(content)
    if hasattr(content, "__aiter__"):
        return None, _from_async(content)
    if hasattr(content, "__iter__"):
        return None, _from_iterable(content)
    raise TypeError(f"content must be text, bytes, a file or an iterable of bytes, not {type(content).__name__}")


def _checked(piece: Any) -> Bytes:
    if not isinstance(piece, (bytes, bytearray, memoryview)):
        raise TypeError(f"content must give bytes, not {type(piece).__name__}: open the file with mode 'rb'")
    return piece


def _from_file(file: Any) -> Source:
    async def read() -> Bytes:
        piece = file.read(_piece)
        if inspect.isawaitable(piece):
            piece = await piece
        return _checked(piece)

    return read


def _from_iterable(content: Any) -> Source:
    iterator = iter(content)

    async def read() -> Bytes:
        for piece in iterator:
            if len(_checked(piece)) > 0:
                return _checked(piece)
        return b""

    return read


def _from_async(content: Any) -> Source:
    iterator = content.__aiter__()

    async def read() -> Bytes:
        while True:
            try:
                piece = _checked(await iterator.__anext__())
            except StopAsyncIteration:
                return b""
            if len(piece) > 0:
                return piece

    return read
