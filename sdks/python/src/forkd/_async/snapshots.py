"""The snapshots of the daemon."""

from __future__ import annotations

from typing import Any, Awaitable, Callable, Dict, Iterable, Mapping, Optional, Sequence, Union

from .._convert import to_model
from .._core import snapshots as core
from .._core.client import Client
from .._core.content import body_of
from .._core.follow import Pages
from .._core.requests import NetworkOption, argv_of, flag, life_fields, name_list
from ..archives import PackedArchive, PackProgress, UnpackedArchive
from ..errors import CommandError, ForkdError, ForkError, make_error
from ..reports import BuildProgress, RemovedSnapshots, SnapshotDetail, SnapshotInfo, VerifyProgress, VerifyReport
from ._flavour import Content, OnText, Opening, opening, result_of
from .sandbox import AsyncBranch, to_children
from .streams import AsyncByteStream, AsyncPaginator

#: Seconds that the sandbox of `derive()` may outlive the time of its command, if this program vanishes.
_grace_secs = 3600.0


class AsyncSnapshots:
    """Builds, lists and removes snapshots."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(
        self,
        *,
        tag: Optional[str] = None,
        state: Optional[str] = None,
        parent: Optional[str] = None,
        branched_from: Optional[str] = None,
        limit: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> AsyncPaginator[SnapshotInfo]:
        """Lists the snapshots that match all filters, ordered by tag; default: all.

        state: "writing", "ready" or "failed"
        parent: only direct layers over this snapshot
        branched_from: id of the sandbox that they were branched from
        limit: maximum number of entries
        """
        given = {"tag": tag, "state": state, "parent": parent, "branched_from": branched_from}
        pages = Pages(self._client, "listSnapshots", given, limit, timeout)
        return AsyncPaginator(pages, lambda each: to_model(SnapshotInfo, each))

    async def get(self, tag: str, *, verify: bool = False, timeout: Optional[float] = None) -> SnapshotDetail:
        """Describes a snapshot.

        verify: compares the digests of its files, which reads every byte; default: False
        """
        given = {"tag": tag, "verify": flag(verify)}
        return to_model(SnapshotDetail, await result_of(self._client.call("snapshotInfo", given, timeout)))

    async def sbom(self, tag: str, *, timeout: Optional[float] = None) -> Dict[str, Any]:
        """Returns the packages that the build found in the guest, as an SPDX 2.3 document."""
        document: Dict[str, Any] = await result_of(self._client.call("snapshotSbom", {"tag": tag}, timeout))
        return document

    async def build(
        self,
        tag: str,
        *,
        recipe: Optional[str] = None,
        rootfs: Optional[str] = None,
        image: Optional[str] = None,
        start: Optional[Mapping[str, int]] = None,
        kernel: Optional[str] = None,
        modules: Optional[str] = None,
        memory_mib: Optional[int] = None,
        vcpus: Optional[int] = None,
        disk_mib: Optional[int] = None,
        env: Optional[Mapping[str, str]] = None,
        run: Optional[Sequence[Union[str, Sequence[str]]]] = None,
        languages: Optional[Mapping[str, Mapping[str, str]]] = None,
        force: bool = False,
        no_cache: bool = False,
        on_progress: Optional[Callable[[BuildProgress], Union[None, Awaitable[None]]]] = None,
        timeout: Optional[float] = None,
    ) -> SnapshotInfo:
        """Builds a snapshot from a recipe, an image or a root file system. Leaving early removes what was built.

        recipe: absolute path of a recipe on the daemon's host
        rootfs: absolute path of an image, archive or directory on the daemon's host, instead of a recipe
        image: container image instead of a recipe: a name in a registry, oci:PATH or docker-archive:PATH
        start: starts ENTRYPOINT and CMD of the image; {} or {"ready_port": 8080}, until that port accepts
        run: commands to run in the parent before the snapshot; a text runs in a shell
        languages: warm-up of each language, such as {"python": {"warmup": "import numpy"}}
        force: replaces a snapshot with this tag; default: False
        no_cache: makes the root file system and the steps again; default: False
        on_progress: receives the progress; default: it is not reported
        timeout: seconds for the build; default: no limit
        """
        request: Dict[str, Any] = {
            "tag": tag,
            "recipe": recipe,
            "rootfs": rootfs,
            "image": image,
            "start": None if start is None else dict(start),
            "kernel": kernel,
            "modules": modules,
            "memory_mib": memory_mib,
            "vcpus": vcpus,
            "disk_mib": disk_mib,
            "env": None if env is None else dict(env),
            "run": None if run is None else [argv_of(each) for each in run],
            "languages": None if languages is None else {name: dict(each) for name, each in languages.items()},
            "force": force or None,
            "no_cache": no_cache or None,
        }
        return await result_of(core.build(self._client, request, on_progress, timeout))

    async def verify(
        self,
        tag: str,
        *,
        n: Optional[int] = None,
        only: Optional[Iterable[str]] = None,
        keep: bool = False,
        on_progress: Optional[Callable[[VerifyProgress], Union[None, Awaitable[None]]]] = None,
        timeout: Optional[float] = None,
    ) -> VerifyReport:
        """Forks children of a snapshot, checks that they are safe and kills them. See `outcome` of the report.

        n: number of children, 2 to 32; default: 4
        only: hazards to check; default: all
        keep: leaves the children and the branch for inspection; default: False
        on_progress: receives the progress and each hazard; default: it is not reported
        timeout: seconds for all of it; default: no limit
        """
        request = {"tag": tag, "n": n, "only": name_list("only", only), "keep": keep or None}
        return await result_of(core.verify(self._client, request, on_progress, timeout))

    async def ready(self, tag: str, *, timeout: Optional[float] = None) -> SnapshotInfo:
        """Waits until a branch made with `wait=False` is on disk; default timeout: 600 s."""
        return await result_of(core.ready(self._client, tag, timeout))

    async def pack(
        self,
        tag: str,
        *,
        level: Optional[int] = None,
        on_progress: Optional[Callable[[PackProgress], Union[None, Awaitable[None]]]] = None,
        timeout: Optional[float] = None,
    ) -> PackedArchive:
        """Prepares the archive of a snapshot and its parents, so that `archive()` with the same level begins at once.

        level: level of zstd, 1 (fast) to 19 (small); default: 7
        on_progress: receives the progress; default: it is not reported
        timeout: seconds for all of it; default: no limit
        """
        return await result_of(core.pack(self._client, {"tag": tag, "level": level}, on_progress, timeout))

    def archive(
        self, tag: str, *, level: Optional[int] = None, timeout: Optional[float] = None
    ) -> Opening[AsyncByteStream]:
        """Reads the archive of a snapshot and its parents in pieces.

        level: level of zstd, 1 (fast) to 19 (small); default: 7
        timeout: seconds for all of it; default: no limit
        """
        return opening(self._archive(tag, level, timeout))

    async def _archive(self, tag: str, level: Optional[int], timeout: Optional[float]) -> AsyncByteStream:
        given = {"tag": tag, "level": level}
        return AsyncByteStream(await result_of(self._client.pieces("snapshotArchive", given, timeout)))

    async def unpack(
        self,
        archive: Content,
        *,
        tag: Optional[str] = None,
        force: bool = False,
        timeout: Optional[float] = None,
    ) -> UnpackedArchive:
        """Makes the snapshots of an archive. They have their tags only when all of it was checked.

        An archive has no signature, and the trust list does not apply to it.

        archive: bytes, a file opened with mode "rb", or an iterable of bytes
        tag: tag of the snapshot; default: the tag under which it was packed
        force: replaces another snapshot that has the tag; default: False
        timeout: seconds for all of it; default: no limit
        """
        given = {"tag": tag, "force": flag(force)}
        body, source = body_of(archive)
        answer = await result_of(self._client.upload("unpackSnapshot", given, body, source, timeout))
        return to_model(UnpackedArchive, answer)

    async def compact(self, tag: str, to: str, *, timeout: Optional[float] = None) -> SnapshotInfo:
        """Copies a snapshot into a new one (`to`) without a parent."""
        return to_model(SnapshotInfo, await result_of(self._client.call("compact", {"tag": tag, "to": to}, timeout)))

    async def derive(
        self,
        source: str,
        tag: str,
        cmd: Union[str, Sequence[str]],
        *,
        env: Optional[Mapping[str, str]] = None,
        mode: Optional[str] = None,
        network: Optional[NetworkOption] = None,
        secrets: Optional[Iterable[str]] = None,
        on_stdout: Optional[OnText] = None,
        on_stderr: Optional[OnText] = None,
        timeout: float = 0,
    ) -> AsyncBranch:
        """Forks `source`, runs a command in the child, branches the child as `tag` and kills it.

        Raises CommandError and makes no snapshot if the command fails.

        timeout: kills the command after this many seconds and fails; default and 0: no limit
        mode: mode of the branch; default: "live"
        """
        ttl = timeout + _grace_secs if timeout > 0 else None
        fields = life_fields(network=network, secrets=secrets, ttl=ttl)
        answer = await result_of(self._client.call("fork", {"snapshot_tag": source, **fields}))
        child = to_children(self._client, answer)[0]
        if isinstance(child, ForkError):
            raise make_error(child.code, child.message, child.details, child.remedy_data)
        async with child:
            await child.commands.run(
                cmd, timeout, env=env, check=True, on_stdout=on_stdout, on_stderr=on_stderr
            )
            return await child.branch(tag, mode=mode)

    async def remove(
        self,
        tag: str,
        *,
        cascade: bool = False,
        force: bool = False,
        dry_run: bool = False,
        timeout: Optional[float] = None,
    ) -> RemovedSnapshots:
        """Removes a snapshot that nothing depends on. Returns everything that was removed.

        cascade: also removes the layers over it; default: False
        force: removes it anyway, which makes the layers over it unusable; default: False
        dry_run: only reports what would be removed; default: False
        """
        given = {"tag": tag, "cascade": flag(cascade), "force": flag(force), "dry_run": flag(dry_run)}
        return to_model(RemovedSnapshots, await result_of(self._client.call("removeSnapshot", given, timeout)))


__all__ = ["AsyncSnapshots", "CommandError", "ForkdError"]
