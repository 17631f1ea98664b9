"""Answers about snapshots, code and the daemon, as typed objects. Times are seconds or `datetime` in UTC."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, List, Optional

from ._convert import Model


@dataclass(frozen=True)
class SnapshotInfo(Model):
    """A snapshot."""

    tag: str
    #: Directory on the daemon's host.
    dir: str
    created_at: datetime
    #: "writing", "ready" or "failed".
    status: str
    #: False if this host would refuse to restore it; `warning` says why.
    bootable: bool
    memory_mib: int
    vcpus: int
    accelerator: str
    languages: List[str]
    physical_bytes: int
    #: What removing it would free.
    own_bytes: int
    #: Everything that it takes on disk.
    total_bytes: int
    warning: Optional[str] = None
    recipe: Optional[str] = None
    image: Optional[str] = None
    parent_tag: Optional[str] = None
    #: Sandbox that it was branched from.
    branched_from: Optional[str] = None
    mode: Optional[str] = None
    #: How long the source was stopped.
    pause_secs: Optional[float] = None


@dataclass(frozen=True)
class Hazard(Model):
    """One check of fork safety and its outcome."""

    id: str
    title: str
    policy: str
    mechanism: str
    #: "pass", "warn", "fail" or "not_applicable".
    outcome: str
    detail: str
    checked_at: datetime
    duration_secs: float
    absent: Optional[bool] = None
    remedy: Optional[str] = None


@dataclass(frozen=True)
class Verification(Model):
    """Result of a check of the children of a snapshot."""

    tag: str
    snapshot_id: str
    verified_at: datetime
    forkd_version: str
    engine: str
    accelerator: str
    #: The worst outcome of all hazards: "pass", "warn" or "fail".
    outcome: str
    #: Whether the result counts for this host and version.
    current: bool
    hazards: List[Hazard]


@dataclass(frozen=True)
class VerifyReport(Verification):
    """Result of `snapshots.verify()`."""

    #: How many children were checked: forked, pooled and branched.
    children: Dict[str, int]
    duration_secs: float
    #: With `keep`: sandboxes and snapshots that were left.
    kept: Optional[Dict[str, Any]] = None


@dataclass(frozen=True)
class SnapshotDetail(SnapshotInfo):
    """Everything about a snapshot."""

    memory_logical_bytes: int = 0
    memory_physical_bytes: int = 0
    vmstate_bytes: int = 0
    disk_bytes: int = 0
    rootfs_bytes: int = 0
    rootfs_physical_bytes: int = 0
    #: Digest of its manifest.
    id: str = ""
    #: 0: its memory has no parent.
    chain_depth: int = 0
    #: Parents, nearest first.
    ancestors: Optional[List[str]] = None
    #: Snapshots and paused sandboxes that are layers over it.
    dependents: Optional[List[str]] = None
    layer_bytes: int = 0
    flat_cache_bytes: int = 0
    parent_content_hash: Optional[str] = None
    #: Live sandboxes forked from it.
    sandboxes: Optional[List[str]] = None
    #: What its container image says: digest, entrypoint, cmd, workdir, user, ports, volumes, labels.
    image_config: Optional[Dict[str, Any]] = None
    #: Hazards without whose check it is not forked.
    require: Optional[List[str]] = None
    verification: Optional[Verification] = None
    manifest: Optional[Dict[str, Any]] = None


@dataclass(frozen=True)
class BranchInfo(SnapshotInfo):
    """The snapshot that a branch made, and its timings."""

    #: From the request until the source ran again.
    resumed_secs: float = 0.0
    #: Time that the guest lost by its own clock.
    stall_secs: Optional[float] = None
    #: From the request until the snapshot was written; None before.
    total_secs: Optional[float] = None
    #: Memory that differed from the parent.
    diff_logical_bytes: int = 0
    diff_physical_bytes: Optional[int] = None
    #: Parts of the pause.
    timings_secs: Optional[Dict[str, float]] = None


@dataclass(frozen=True)
class BuildProgress(Model):
    """Progress of a build: within a step (`type` "progress"), or the end of one ("step")."""

    #: "progress" or "step".
    type: str
    step: str
    message: str
    elapsed_secs: Optional[float] = None
    duration_secs: Optional[float] = None


@dataclass(frozen=True)
class VerifyProgress(Model):
    """Progress of a verification: a message ("progress"), or a hazard that was checked ("hazard")."""

    #: "progress" or "hazard".
    type: str
    message: Optional[str] = None
    elapsed_secs: Optional[float] = None
    hazard: Optional[Hazard] = None


@dataclass(frozen=True)
class RemovedSnapshots(Model):
    """Everything that removing a snapshot removed."""

    #: Objects with `tag`, in the order of removal.
    removed: List[Dict[str, Any]]
    freed_bytes: int
    dry_run: bool


@dataclass(frozen=True)
class Display(Model):
    """An object that code displayed, or the value of its last expression, in every form that it has."""

    #: Whether it is the value of the last expression.
    is_main_result: bool
    text: Optional[str] = None
    html: Optional[str] = None
    markdown: Optional[str] = None
    svg: Optional[str] = None
    latex: Optional[str] = None
    javascript: Optional[str] = None
    #: Images and PDF are base64; `bytes_of("png")` has the bytes.
    png: Optional[str] = field(default=None, repr=False)
    jpeg: Optional[str] = field(default=None, repr=False)
    pdf: Optional[str] = field(default=None, repr=False)
    #: A value of JSON.
    json: Any = None
    #: A table: its columns, each a list of values.
    data: Optional[Dict[str, Any]] = None
    #: The data of a figure.
    chart: Optional[Dict[str, Any]] = None
    #: Forms of other MIME types.
    extra: Optional[Dict[str, Any]] = None
    #: Forms that are left out or cut because of their size.
    truncated_parts: Optional[List[str]] = None

    def formats(self) -> List[str]:
        """Names of the forms that it has."""
        names = "text html markdown svg latex javascript png jpeg pdf json data chart".split()
        return [name for name in names if self.raw.get(name) is not None]

    def bytes_of(self, name: str) -> Optional[bytes]:
        """The bytes of "png", "jpeg" or "pdf"; None if it has no such form."""
        value = self.raw.get(name)
        return base64.b64decode(value) if isinstance(value, str) else None


@dataclass(frozen=True)
class ErrorInfo(Model):
    """The exception of code as data."""

    #: Name of the class of the exception.
    name: str
    value: str
    #: Objects with `file`, `line`, `function` and `text`, from the outermost call on; only code of the user.
    frames: List[Dict[str, Any]]


@dataclass(frozen=True)
class EvalResult(Model):
    """What code printed and returned. `str(result)` is the printed form of its value."""

    stdout: str
    stderr: str
    #: 0, or 1 when the code raised.
    exit_code: int
    interrupted: bool
    timed_out: bool
    #: Whether something is cut; `truncated_parts` says what.
    truncated: bool
    #: Whether the interpreter was started again for this code: earlier variables are gone.
    restarted: bool
    language: str
    context: str
    duration_secs: float
    #: Printed form of the value of the last expression; None if there is none.
    result: Optional[str] = None
    #: The same as a value, if it can be written as JSON.
    result_json: Any = None
    #: `Name: message` when the code raised.
    error: Optional[str] = None
    traceback: Optional[str] = None
    #: The exception as data, if the interpreter describes it.
    error_info: Optional[ErrorInfo] = None
    #: What the code displayed and the value of the last expression, in order.
    results: List[Display] = field(default_factory=list)
    #: How many results were left out, because there were too many.
    results_dropped: Optional[int] = None
    #: Number of this code in its context, from 1.
    execution_count: Optional[int] = None
    truncated_parts: Optional[List[str]] = None
    #: Bytes of the whole printed form, if `result` is cut.
    result_bytes: Optional[int] = None
    #: Why the warm-up of an interpreter that was started again did not succeed.
    warmup_error: Optional[str] = None

    @property
    def text(self) -> Optional[str]:
        """Printed form of the value of the last expression; the same as `result`."""
        return self.result

    def __str__(self) -> str:
        return self.result or ""


@dataclass(frozen=True)
class Version(Model):
    """Version of the daemon."""

    version: str
    api: str
    pid: int


@dataclass(frozen=True)
class Status(Model):
    """State of the daemon."""

    version: str
    pid: int
    data_dir: str
    runtime_dir: str
    accelerator: str
    uptime_secs: float
    rss_bytes: int
    sandboxes: int
    snapshots: int
    #: Children that wait ready to be handed out, by tag.
    pool: Dict[str, int]
    image_cache_bytes: Optional[int] = None
    audit: Optional[Dict[str, Any]] = None


@dataclass(frozen=True)
class Check(Model):
    """One check of the host."""

    name: str
    #: "ok", "warn" or "fail".
    outcome: str
    detail: str
    remedy: Optional[str] = None
    remedy_data: Optional[Dict[str, Any]] = None


@dataclass(frozen=True)
class DoctorReport(Model):
    """Checks of the host."""

    ok: bool
    accelerator: str
    checks: List[Check]
    daemon: Optional[Dict[str, Any]] = None


@dataclass(frozen=True)
class SandboxStats(Model):
    """What one sandbox uses of the host."""

    id: str
    snapshot_tag: str
    state: str
    uptime_secs: float
    disk_bytes: int
    sampled_at: datetime
    workspace: Optional[str] = None
    owner: Optional[str] = None
    pid: Optional[int] = None
    cpu_seconds: Optional[float] = None
    private_bytes: Optional[int] = None
    shared_bytes: Optional[int] = None
    pss_bytes: Optional[int] = None


@dataclass(frozen=True)
class Stats(Model):
    """What the sandboxes use of the host."""

    sampled_at: datetime
    sandboxes: List[SandboxStats]


@dataclass(frozen=True)
class Tree(Model):
    """Lineage of snapshots and sandboxes, as objects of the wire."""

    snapshots: List[Dict[str, Any]]
    sandboxes: List[Dict[str, Any]]


@dataclass(frozen=True)
class GcReport(Model):
    """What `gc()` removed, or would remove."""

    #: Objects with `kind`, `name`, `bytes`.
    removed: List[Dict[str, Any]]
    freed_bytes: int
    dry_run: bool
    kept_image_bytes: Optional[int] = None


@dataclass(frozen=True)
class CleanupReport(Model):
    """What `cleanup()` removed, or would remove."""

    #: Objects with `kind`, `name`, `detail`.
    removed: List[Dict[str, Any]]
    dry_run: bool


@dataclass(frozen=True)
class ShutdownResult(Model):
    """What a shutdown stopped and kept."""

    stopped: int
    kept: int
    saved: Optional[List[str]] = None
    unsaved: Optional[List[Dict[str, Any]]] = None
    lost: Optional[List[Dict[str, Any]]] = None
