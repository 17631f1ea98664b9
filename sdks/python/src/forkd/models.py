"""What the daemon answers, as typed objects. Times are seconds (`float`) or `datetime` in UTC."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Dict, List, Optional

from ._convert import Model


@dataclass(frozen=True)
class NotEnforced(Model):
    """A limit that the host cannot enforce."""

    limit: str
    reason: str


@dataclass(frozen=True)
class SandboxNetwork(Model):
    """The network of a sandbox in short."""

    #: "none", "filtered" or "open".
    mode: str
    #: How its machine is connected: "tap", "slirp" or "none".
    device: str
    #: Why it has less than was asked for.
    note: Optional[str] = None


@dataclass(frozen=True)
class SandboxInfo(Model):
    """State of a sandbox at the time of the answer."""

    id: str
    #: Snapshot that it descends from.
    snapshot_tag: str
    #: "running", "paused" or "dead".
    state: str
    created_at: datetime
    #: Position in the fork that made it, from 0.
    index: int
    hostname: str
    labels: Dict[str, str]
    vcpus: int
    memory_mib: int
    #: "kvm" or "tcg".
    accelerator: str
    #: Languages of `eval()`; the first is the default.
    languages: List[str]
    #: From the request to the first answer of the agent.
    ready_secs: float
    #: "pool": its machine waited ready until it was handed out; "start": its machine was started for it.
    from_: str = field(metadata={"wire": "from"})
    #: Branches of it so far.
    branch_count: int
    #: Why it stopped, or a note about its saved state.
    reason: Optional[str] = None
    #: "out_of_memory", "host_out_of_memory" or "disk_limit".
    reason_code: Optional[str] = None
    #: When its time to live ends.
    expires_at: Optional[datetime] = None
    #: Process id of the VMM on the host.
    pid: Optional[int] = None
    paused_at: Optional[datetime] = None
    workspace: Optional[str] = None
    #: Name of the key that made it.
    owner: Optional[str] = None
    limits: Optional[Dict[str, Any]] = None
    limits_not_enforced: Optional[List[NotEnforced]] = None
    idle_timeout_secs: Optional[float] = None
    #: "kill" or "pause".
    on_timeout: Optional[str] = None
    auto_resume: Optional[bool] = None
    #: "root", "user" or "none"; None without a machine.
    jail: Optional[str] = None
    network: Optional[SandboxNetwork] = None
    #: Names of its secrets.
    secrets: Optional[List[str]] = None


@dataclass(frozen=True)
class Ping(Model):
    """A round trip to the agent in the guest."""

    ok: bool
    round_trip_secs: float


@dataclass(frozen=True)
class CommandResult(Model):
    """Output and exit code of a command."""

    stdout: str
    stderr: str
    #: 128 + signal if a signal ended the command.
    exit_code: int
    #: Number of the command in its sandbox.
    exec_id: int
    #: Whether the command ran out of time.
    timed_out: bool
    #: Whether output is missing, because there was too much.
    truncated: bool
    duration_secs: float
    #: Signal that ended it, such as "SIGKILL".
    signal: Optional[str] = None

    @property
    def ok(self) -> bool:
        """Whether the exit code is 0."""
        return self.exit_code == 0


@dataclass(frozen=True)
class CommandInfo(Model):
    """A command that runs or has finished recently."""

    exec_id: int
    pid: int
    #: "running" or "finished".
    state: str
    #: The program.
    command: str
    stdout_bytes: int
    stderr_bytes: int
    #: Program and arguments, cut after 512 bytes.
    args: Optional[List[str]] = None
    #: Seconds since its start.
    age_secs: Optional[float] = None
    stdin_open: Optional[bool] = None
    pty: Optional[bool] = None
    exit_code: Optional[int] = None


@dataclass(frozen=True)
class ServiceInfo(Model):
    """A service that the recipe of the snapshot started."""

    name: str
    #: "running" or "exited".
    state: str
    exec_id: int
    pid: int
    command: str
    stdout_bytes: int
    stderr_bytes: int
    exit_code: Optional[int] = None


@dataclass(frozen=True)
class Context(Model):
    """A set of variables that `eval()` uses."""

    name: str
    language: str
    #: Working directory, if the interpreter reports it.
    cwd: Optional[str] = None


@dataclass(frozen=True)
class EvalInfo(Model):
    """Code that runs, or that a branch carried into this sandbox."""

    #: Such as "python-12".
    eval_id: str
    language: str
    #: "running" or "finished".
    state: str
    #: Whether a call reads its output; only others can be attached to.
    followed: bool
    context: Optional[str] = None


@dataclass(frozen=True)
class FileEntry(Model):
    """A file, directory or other entry in the guest."""

    name: str
    path: str
    #: "file", "directory", "symlink", "fifo", "socket", "block" or "char".
    type: str
    size: int
    #: Octal text, such as "0644".
    mode: str
    mtime: datetime
    uid: int
    gid: int
    #: Names of uid and gid in the guest, if they have any.
    owner: Optional[str] = None
    group: Optional[str] = None
    #: Text of a symbolic link.
    target: Optional[str] = None
    #: `path`, `type` and `mode` of the file that a symbolic link leads to; None if it leads nowhere.
    resolved: Optional[Dict[str, Any]] = None


@dataclass(frozen=True)
class WatchEvent(Model):
    """A change in a watched directory."""

    #: "create", "write", "chmod", "remove", "rename" (the old path) or "overflow" (changes were lost).
    type: str
    #: Relative to the watched directory; "." is the directory itself.
    path: str
    #: The old path of a file that was renamed ("create").
    old_path: Optional[str] = field(default=None, metadata={"wire": "from"})
    #: The file after the change, with `include_entry=True`.
    entry: Optional[FileEntry] = None


@dataclass(frozen=True)
class PortInfo(Model):
    """An open port of a sandbox."""

    port: int
    #: Whether requests to its address need no token.
    public: bool
    #: Path of the daemon's API below which requests go to the port.
    path: str
    opened_at: datetime
    #: Connections to the port at the moment.
    connections: int
    #: Its address; None while the daemon does not listen on TCP.
    url: Optional[str] = None
    expires_at: Optional[datetime] = None
    #: Opens the address of a port that is not public; only in the answer of `open()`.
    token: Optional[str] = None


@dataclass(frozen=True)
class NetworkRule(Model):
    """A rule of the network, and where it comes from."""

    rule: str
    #: "sandbox", "snapshot" or "settings".
    origin: str = field(metadata={"wire": "from"})


@dataclass(frozen=True)
class NetworkCounters(Model):
    """Counters of the network since the machine of the sandbox started."""

    connections: int
    open_connections: int
    denied: int
    failed: int
    bytes_sent: int
    bytes_received: int
    queries: int


@dataclass(frozen=True)
class NetworkInfo(Model):
    """Mode, rules, secrets and counters of the network of a sandbox."""

    #: "none", "filtered" or "open".
    mode: str
    device: str
    #: In the order in which they are tried.
    rules: List[NetworkRule]
    #: A connection must be allowed by each of these too.
    ceilings: List[Dict[str, Any]]
    secrets: List[str]
    counters: NetworkCounters
    note: Optional[str] = None


@dataclass(frozen=True)
class NetworkLogEntry(Model):
    """A connection or look-up of a sandbox. The guest chooses the name in it."""

    at: datetime
    #: "connected", "closed", "request", "denied", "failed" or "resolved".
    event: str
    #: "tcp", "udp" or "dns".
    protocol: str
    name: Optional[str] = None
    address: Optional[str] = None
    port: Optional[int] = None
    via: Optional[str] = None
    method: Optional[str] = None
    status: Optional[int] = None
    #: The rule that decided.
    rule: Optional[str] = None
    reason: Optional[str] = None
    #: A rule that would allow it.
    suggestion: Optional[str] = None
    bytes_sent: Optional[int] = None
    bytes_received: Optional[int] = None
    duration_secs: Optional[float] = None
    #: Entries that were left out before this one.
    suppressed: Optional[int] = None


@dataclass(frozen=True)
class PresetInfo(Model):
    """A named list of network rules."""

    name: str
    rules: List[str]
    #: "bundled", "changed" or "added".
    origin: str


@dataclass(frozen=True)
class SecretInfo(Model):
    """A secret, without its value."""

    name: str
    hosts: List[str]
    header: str
    format: str
    #: What guests see instead of the value.
    placeholder: str
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True)
class KeyInfo(Model):
    """A key for callers over HTTP."""

    name: str
    #: "read", "run" or "admin".
    scope: str
    created_at: datetime
    expired: bool
    expires_at: Optional[datetime] = None
    last_used: Optional[datetime] = None
    max_sandboxes: Optional[int] = None
    max_memory_mib: Optional[int] = None
    network: Optional[Dict[str, Any]] = None
    secrets: Optional[List[str]] = None
    #: The key itself; only in the answer of `create()`.
    key: Optional[str] = field(default=None, repr=False)


@dataclass(frozen=True)
class WorkspaceLost(Model):
    """Since when the changes of a workspace are lost, and why."""

    since: str
    reason: str


@dataclass(frozen=True)
class WorkspaceInfo(Model):
    """A sandbox with a name."""

    #: Id of its sandbox.
    id: str
    name: str
    source_snapshot_tag: str
    #: "running", "suspended", "stale" or "dead".
    status: str
    created_at: datetime
    last_active: datetime
    live_sandbox_id: Optional[str] = None
    lost: Optional[WorkspaceLost] = None


@dataclass(frozen=True)
class Event(Model):
    """Something that happened to a sandbox, a snapshot, a port or the daemon."""

    id: str
    #: Such as "sandbox.created"; ignore types that you do not know.
    type: str
    at: datetime
    tag: Optional[str] = None
    sandbox_id: Optional[str] = None
    #: The sandbox after the event.
    sandbox: Optional[SandboxInfo] = None
    port: Optional[int] = None
    #: Status of a snapshot after the event.
    status: Optional[str] = None
    reason: Optional[str] = None
    network: Optional[NetworkLogEntry] = None
