"""Operations on snapshots that are more than one call."""

from __future__ import annotations

from typing import Any, Callable, Dict, Optional

from .._convert import to_model
from ..archives import PackedArchive, PackProgress
from ..errors import make_error
from ..reports import BuildProgress, SnapshotInfo, VerifyProgress, VerifyReport
from .client import Client, deadline, long_secs
from .command import told
from .follow import Follow


async def build(
    client: Client,
    request: Dict[str, Any],
    on_progress: Optional[Callable[[BuildProgress], Any]],
    timeout: Optional[float],
) -> SnapshotInfo:
    """Builds a snapshot. Leaving early stops the build and removes its files."""
    lines = await client.lines("createSnapshot", request, timeout)
    try:
        while True:
            line = await lines.next()
            if line is None:
                break
            if line.get("type") in ("progress", "step") and on_progress is not None:
                await told(on_progress(to_model(BuildProgress, line)))
            elif line.get("type") == "snapshot":
                return to_model(SnapshotInfo, line.get("snapshot"))
    finally:
        lines.close()
    raise _ended(f'snapshot "{request["tag"]}" was made')


async def verify(
    client: Client,
    request: Dict[str, Any],
    on_progress: Optional[Callable[[VerifyProgress], Any]],
    timeout: Optional[float],
) -> VerifyReport:
    """Checks the children of a snapshot. Leaving early removes the children."""
    lines = await client.lines("verifySnapshot", request, timeout)
    try:
        while True:
            line = await lines.next()
            if line is None:
                break
            if line.get("type") in ("progress", "hazard") and on_progress is not None:
                await told(on_progress(to_model(VerifyProgress, line)))
            elif line.get("type") == "report":
                return to_model(VerifyReport, line.get("report"))
    finally:
        lines.close()
    raise _ended(f'snapshot "{request["tag"]}" was checked')


async def pack(
    client: Client,
    request: Dict[str, Any],
    on_progress: Optional[Callable[[PackProgress], Any]],
    timeout: Optional[float],
) -> PackedArchive:
    """Prepares the archive of a snapshot. Leaving early stops it."""
    lines = await client.lines("packSnapshot", request, timeout)
    try:
        while True:
            line = await lines.next()
            if line is None:
                break
            if line.get("type") == "progress" and on_progress is not None:
                await told(on_progress(to_model(PackProgress, line)))
            elif line.get("type") == "packed":
                return to_model(PackedArchive, line.get("packed"))
    finally:
        lines.close()
    raise _ended(f'snapshot "{request["tag"]}" was packed')


async def ready(client: Client, tag: str, timeout: Optional[float]) -> SnapshotInfo:
    """Waits until a branch made with wait=False is on disk."""
    until = deadline(timeout, long_secs)
    early = await _settled(client, tag)
    if early is not None:
        return early
    follow = Follow(client, {"type": "snapshot.*", "tag": tag}, None, 30.0, until)
    try:
        # Opens the stream before it reads the list again, so that it misses no change.
        await follow.open()
        while True:
            found = await _settled(client, tag)
            if found is not None:
                return found
            await follow.next()
    finally:
        follow.close()


async def _settled(client: Client, tag: str) -> Optional[SnapshotInfo]:
    entries, _ = await client.page("listSnapshots", {"tag": tag})
    found = [each for each in (to_model(SnapshotInfo, entry) for entry in entries) if each.tag == tag]
    if not found:
        raise make_error(
            "snapshot_not_found", f'No snapshot has the tag "{tag}"', {"tag": tag}, {"action": "list_snapshots"}
        )
    snapshot = found[0]
    if snapshot.status == "ready":
        return snapshot
    if snapshot.status == "writing":
        return None
    why = snapshot.warning or "the daemon does not say why"
    raise make_error("snapshot_failed", f'Snapshot "{tag}" could not be written: {why}', {"tag": tag})


def _ended(what: str) -> Exception:
    return make_error("daemon_unreachable", f"The daemon's answer ended before {what}", {"cut": True})
