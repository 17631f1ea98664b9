"""What calls about archives of snapshots return."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, List

from ._convert import Model
from .reports import SnapshotInfo


@dataclass(frozen=True)
class PackProgress(Model):
    """Progress of packing."""

    #: "verify" counts snapshots, "pack" counts bytes of files.
    phase: str
    done: int
    total: int
    elapsed_secs: float


@dataclass(frozen=True)
class PackedArchive(Model):
    """The archive of a snapshot and its parents."""

    tag: str
    id: str
    #: Of the OCI manifest; it does not depend on the tag.
    digest: str
    level: int
    archive_bytes: int
    file_bytes: int
    #: How many snapshots it has.
    snapshots: int


@dataclass(frozen=True)
class UnpackedArchive(Model):
    """The snapshots of an archive that was unpacked."""

    snapshot: SnapshotInfo
    #: Objects with `tag`, `id`, `existed` and perhaps `instead_of`, from the bottom of the chain.
    chain: List[Dict[str, Any]]
