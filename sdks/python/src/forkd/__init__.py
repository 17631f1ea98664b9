"""forkd: fork(2) for virtual machines. Sandboxes are forked from warm snapshots in milliseconds.

>>> from forkd import Sandbox
>>> with Sandbox.create("python-numpy") as sandbox:      # doctest: +SKIP
...     print(sandbox.commands.run("uname -a").stdout)
...     print(sandbox.eval("sum(range(10))"))

`Sandbox` and `Forkd` block; `AsyncSandbox` and `AsyncForkd` have the same methods for asyncio.
"""

from ._async.access import AsyncKeys, AsyncPool, AsyncSecrets, AsyncTrust
from ._async.commands import AsyncCommands, AsyncPty
from ._async.daemon import AsyncForkd, AsyncSandboxes
from ._async.files import AsyncFiles
from ._async.hub import AsyncHub
from ._async.machine import UNCHANGED, AsyncContexts
from ._async.network import AsyncNetwork, AsyncPorts, AsyncPresets, AsyncSandboxNetwork
from ._async.sandbox import AsyncBranch, AsyncSandbox
from ._async.snapshots import AsyncSnapshots
from ._async.streams import (
    AsyncByteStream,
    AsyncCommandHandle,
    AsyncEvalRun,
    AsyncEventStream,
    AsyncLineStream,
    AsyncPaginator,
)
from ._async.workspaces import AsyncWorkspaces
from ._sync.access import Keys, Pool, Secrets, Trust
from ._sync.commands import Commands, Pty
from ._sync.daemon import Forkd, Sandboxes
from ._sync.files import Files
from ._sync.hub import Hub
from ._sync.machine import Contexts
from ._sync.network import Network, Ports, Presets, SandboxNetwork
from ._sync.sandbox import Branch, Sandbox
from ._sync.snapshots import Snapshots
from ._sync.streams import ByteStream, CommandHandle, EvalRun, EventStream, LineStream, Paginator
from ._sync.workspaces import Workspaces
from ._version import __version__
from .archives import PackedArchive, PackProgress, UnpackedArchive
from .controller import Controller, ControllerError
from .errors import (
    AuthenticationError,
    CapacityError,
    CodeError,
    CommandError,
    ConflictError,
    DaemonUnreachableError,
    ForkdError,
    ForkError,
    GuestError,
    InternalError,
    InvalidRequestError,
    NotFoundError,
    RegistryError,
    TimeoutError,
    UnsupportedError,
)
from .events import CommandEvent, Displayed, EvalEvent, Evaluated, Exited, Output, Started
from .hub import (
    FoundSnapshot,
    PulledSnapshot,
    PullResult,
    PushResult,
    SearchResult,
    SignResult,
    TransferProgress,
    TrustReport,
)
from .models import (
    CommandInfo,
    CommandResult,
    Context,
    EvalInfo,
    Event,
    FileEntry,
    KeyInfo,
    NetworkInfo,
    NetworkLogEntry,
    NetworkRule,
    Ping,
    PortInfo,
    PresetInfo,
    SandboxInfo,
    SecretInfo,
    ServiceInfo,
    WatchEvent,
    WorkspaceInfo,
)
from .pool import PoolInfo, PoolSnapshot
from .reports import (
    BranchInfo,
    BuildProgress,
    CleanupReport,
    Display,
    DoctorReport,
    ErrorInfo,
    EvalResult,
    GcReport,
    RemovedSnapshots,
    SandboxStats,
    ShutdownResult,
    SnapshotDetail,
    SnapshotInfo,
    Stats,
    Status,
    Tree,
    VerifyProgress,
    VerifyReport,
    Version,
)
from .trust import PinnedKey, TrustEntry

#: The client of a daemon, by another name: `connect(url=…)` is `Forkd(url=…)`.
connect = Forkd

__all__ = [
    "AsyncBranch",
    "AsyncByteStream",
    "AsyncCommandHandle",
    "AsyncCommands",
    "AsyncContexts",
    "AsyncEvalRun",
    "AsyncEventStream",
    "AsyncFiles",
    "AsyncForkd",
    "AsyncHub",
    "AsyncKeys",
    "AsyncLineStream",
    "AsyncNetwork",
    "AsyncPaginator",
    "AsyncPool",
    "AsyncPorts",
    "AsyncPresets",
    "AsyncPty",
    "AsyncSandbox",
    "AsyncSandboxNetwork",
    "AsyncSandboxes",
    "AsyncSecrets",
    "AsyncSnapshots",
    "AsyncTrust",
    "AsyncWorkspaces",
    "AuthenticationError",
    "Branch",
    "BranchInfo",
    "BuildProgress",
    "ByteStream",
    "CapacityError",
    "CleanupReport",
    "CodeError",
    "CommandError",
    "CommandEvent",
    "CommandHandle",
    "CommandInfo",
    "CommandResult",
    "Commands",
    "ConflictError",
    "Context",
    "Contexts",
    "Controller",
    "ControllerError",
    "DaemonUnreachableError",
    "Display",
    "Displayed",
    "DoctorReport",
    "ErrorInfo",
    "EvalEvent",
    "EvalInfo",
    "EvalResult",
    "EvalRun",
    "Evaluated",
    "Event",
    "EventStream",
    "Exited",
    "FileEntry",
    "Files",
    "ForkError",
    "Forkd",
    "ForkdError",
    "FoundSnapshot",
    "GcReport",
    "GuestError",
    "Hub",
    "InternalError",
    "InvalidRequestError",
    "KeyInfo",
    "Keys",
    "LineStream",
    "Network",
    "NetworkInfo",
    "NetworkLogEntry",
    "NetworkRule",
    "NotFoundError",
    "Output",
    "Paginator",
    "Ping",
    "PinnedKey",
    "Pool",
    "PoolInfo",
    "PoolSnapshot",
    "PortInfo",
    "Ports",
    "PresetInfo",
    "Presets",
    "Pty",
    "PackedArchive",
    "PackProgress",
    "PullResult",
    "PulledSnapshot",
    "PushResult",
    "RegistryError",
    "RemovedSnapshots",
    "Sandbox",
    "SandboxInfo",
    "SandboxNetwork",
    "SandboxStats",
    "Sandboxes",
    "SearchResult",
    "SecretInfo",
    "Secrets",
    "ServiceInfo",
    "ShutdownResult",
    "SignResult",
    "SnapshotDetail",
    "SnapshotInfo",
    "Snapshots",
    "Started",
    "Stats",
    "Status",
    "TimeoutError",
    "TransferProgress",
    "Tree",
    "Trust",
    "TrustEntry",
    "TrustReport",
    "UNCHANGED",
    "UnsupportedError",
    "UnpackedArchive",
    "VerifyProgress",
    "VerifyReport",
    "Version",
    "WatchEvent",
    "WorkspaceInfo",
    "Workspaces",
    "__version__",
    "connect",
]
