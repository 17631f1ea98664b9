"""Answers about registries of snapshots."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, List, Optional

from ._convert import Model
from .reports import SnapshotInfo


@dataclass(frozen=True)
class TransferProgress(Model):
    """Progress of a push or a pull."""

    #: Such as "pack", "send", "fetch" or "check".
    step: str
    message: str
    elapsed_secs: float
    done_bytes: Optional[int] = None
    total_bytes: Optional[int] = None


@dataclass(frozen=True)
class PushResult(Model):
    """What a push sent."""

    tag: str
    #: Where it is now; without the query of a URL.
    reference: str
    #: Bytes of all its blobs.
    total_bytes: int
    #: Bytes that were sent; the registry had the rest.
    moved_bytes: int
    duration_secs: float
    #: Digest of its manifest.
    digest: Optional[str] = None


@dataclass(frozen=True)
class PulledSnapshot(Model):
    """A snapshot of the chain that a pull fetched."""

    tag: str
    #: Whether it was here already.
    existed: bool


@dataclass(frozen=True)
class TrustReport(Model):
    """What the signatures of a pulled snapshot are worth."""

    #: "require", "warn" or "off".
    policy: str
    #: "signed", "unsigned", "untrusted" or "unchecked".
    outcome: str
    #: The same as a sentence.
    text: str
    #: Fingerprint of the key.
    signer: Optional[str] = None


@dataclass(frozen=True)
class SignResult(Model):
    """Where a signature was attached."""

    #: The repository and the digest.
    reference: str
    digest: str
    #: Tag of the signatures.
    signature_tag: str
    #: Fingerprint of the key.
    fingerprint: str


@dataclass(frozen=True)
class PullResult(Model):
    """What a pull fetched."""

    reference: str
    digest: str
    #: The chain from the bottom.
    snapshots: List[PulledSnapshot]
    #: Bytes that were fetched; the rest was here.
    moved_bytes: int
    duration_secs: float
    trust: TrustReport
    #: Whether it was built here from its recipe.
    rebuilt: bool
    snapshot: SnapshotInfo


@dataclass(frozen=True)
class FoundSnapshot(Model):
    """A snapshot of a registry."""

    #: What `pull()` takes.
    reference: str
    digest: str
    #: Bytes of all its blobs.
    total_bytes: int
    #: Keys such as "forkd.snapshot.recipe".
    annotations: Dict[str, str]


@dataclass(frozen=True)
class SearchResult(Model):
    """The snapshots of a registry."""

    registry: str
    found: List[FoundSnapshot]
    #: Whether there are more than were looked at.
    truncated: bool
