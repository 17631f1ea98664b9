"""The files of one sandbox."""

from __future__ import annotations

from typing import Any, Dict, List, Optional

from .._convert import to_model, to_models
from .._core.client import Client
from .._core.content import Download, body_of, open_watch
from ..errors import ForkdError
from ..models import FileEntry, WatchEvent
from ._flavour import Content, Opening, opening, result_of
from .streams import AsyncByteStream, AsyncLineStream


class AsyncFiles:
    """Reads and changes files of one sandbox. Paths are absolute, or begin with `~` for the home of the user.

    Every call takes `user` (name, uid, name:group or uid:gid; default: root) and `timeout` in seconds.
    """

    def __init__(self, client: Client, sandbox_id: str) -> None:
        self._client = client
        self._id = sandbox_id

    async def read(
        self,
        path: str,
        *,
        offset: int = 0,
        limit: Optional[int] = None,
        user: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> bytes:
        """Reads a file into memory.

        offset: first byte to read; default: 0
        limit: maximum number of bytes; default: to the end
        """
        if limit == 0:
            return b""
        download = await result_of(Download.open(self._client, self._id, path, offset, limit, user, timeout))
        return await result_of(download.read())

    async def read_text(
        self,
        path: str,
        *,
        encoding: str = "utf-8",
        errors: str = "strict",
        user: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> str:
        """Reads a text file into memory.

        encoding: default: "utf-8"
        errors: what to do with other bytes, as in `bytes.decode()`; default: "strict"
        """
        return (await self.read(path, user=user, timeout=timeout)).decode(encoding, errors)

    def stream(
        self,
        path: str,
        *,
        offset: int = 0,
        limit: Optional[int] = None,
        user: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Opening[AsyncByteStream]:
        """Reads a file in pieces, as they arrive. The arguments are those of `read()`."""
        return opening(self._stream(path, offset, limit, user, timeout))

    async def _stream(
        self, path: str, offset: int, limit: Optional[int], user: Optional[str], timeout: Optional[float]
    ) -> AsyncByteStream:
        return AsyncByteStream(await result_of(Download.open(self._client, self._id, path, offset, limit, user, timeout)))

    async def write(
        self,
        path: str,
        content: Content,
        *,
        mode: Optional[str] = None,
        append: bool = False,
        exclusive: bool = False,
        in_place: bool = False,
        user: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> FileEntry:
        """Writes a file and creates missing directories.

        Unless it appends or writes in place, it replaces the file in one step, after all content has arrived.

        content: text, bytes, a file opened with mode "rb", or an iterable of bytes
        mode: octal text for a new file; default: "0644"
        append: appends to the file; default: False
        exclusive: refuses to replace an existing file; default: False
        in_place: writes into the file itself; default: False
        """
        given = {
            "id": self._id,
            "path": path,
            "mode": mode,
            "append": append or None,
            "exclusive": exclusive or None,
            "in_place": in_place or None,
            "user": user,
        }
        body, source = body_of(content)
        return to_model(FileEntry, await result_of(self._client.upload("writeFile", given, body, source, timeout)))

    async def list(
        self, path: str, *, depth: int = 1, user: Optional[str] = None, timeout: Optional[float] = None
    ) -> List[FileEntry]:
        """Lists the entries of a directory.

        depth: levels below the directory, 1 to 64; links are not followed; default: 1
        """
        answer = await self._call("listFiles", timeout, path=path, depth=None if depth == 1 else depth, user=user)
        return to_models(FileEntry, answer)

    def watch(
        self,
        path: str,
        *,
        recursive: bool = False,
        include_entry: bool = False,
        user: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Opening[AsyncLineStream[WatchEvent]]:
        """Watches a directory. Changes after this call are reported; leaving `async with` ends the watch.

        A watch ends with an error when the directory is removed, or the sandbox is paused or stops: open it again,
        and list the directory.

        recursive: also watches directories below it; default: False
        include_entry: describes the changed file; default: False
        timeout: seconds after which the watch fails; default: no limit
        """
        given = {
            "id": self._id,
            "path": path,
            "recursive": recursive or None,
            "include_entry": include_entry or None,
            "user": user,
        }
        return opening(self._watch(given, timeout))

    async def _watch(self, given: Dict[str, Any], timeout: Optional[float]) -> AsyncLineStream[WatchEvent]:
        lines = await result_of(open_watch(self._client, given, timeout))
        return AsyncLineStream(lines, lambda line: to_model(WatchEvent, line))

    async def stat(
        self, path: str, *, follow: bool = False, user: Optional[str] = None, timeout: Optional[float] = None
    ) -> FileEntry:
        """Describes a file.

        follow: describes the target of a link; default: False
        """
        answer = await self._call("statFile", timeout, path=path, follow=follow or None, user=user)
        return to_model(FileEntry, answer)

    async def exists(self, path: str, *, user: Optional[str] = None, timeout: Optional[float] = None) -> bool:
        """Whether there is a file, directory or link with this path."""
        try:
            await self.stat(path, user=user, timeout=timeout)
        except ForkdError as error:
            if error.code != "file_not_found":
                raise
            return False
        return True

    async def mkdir(
        self,
        path: str,
        *,
        mode: Optional[str] = None,
        parents: bool = True,
        user: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> None:
        """Makes a directory.

        mode: octal text; default: "0755"
        parents: makes missing parents too; default: True
        """
        await self._call("makeDirectory", timeout, path=path, mode=mode, parents=parents, user=user)

    async def move(
        self, source: str, target: str, *, user: Optional[str] = None, timeout: Optional[float] = None
    ) -> None:
        """Moves or renames a file or directory."""
        await self._call("moveFile", timeout, **{"from": source, "to": target, "user": user})

    async def remove(
        self, path: str, *, recursive: bool = False, user: Optional[str] = None, timeout: Optional[float] = None
    ) -> None:
        """Removes a file.

        recursive: also removes a directory with its content; default: False
        """
        await self._call("removeFile", timeout, path=path, recursive=recursive, user=user)

    async def chmod(
        self,
        path: str,
        mode: str,
        *,
        recursive: bool = False,
        user: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> None:
        """Sets the mode (octal text).

        recursive: sets the mode of everything below too; default: False
        """
        await self._call("chmodFile", timeout, path=path, mode=mode, recursive=recursive, user=user)

    async def _call(self, route: str, timeout: Optional[float], **given: Any) -> Any:
        return await result_of(self._client.call(route, {"id": self._id, **given}, timeout))
