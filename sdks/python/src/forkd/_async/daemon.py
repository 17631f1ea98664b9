"""The client of a daemon."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Type, Union

from .._convert import to_model
from .._core.client import Client
from .._core.follow import Follow
from .._core.requests import NetworkOption, flag, label_list, life_fields, name_list
from .._core.target import find_daemon
from ..errors import ForkError
from ..reports import CleanupReport, DoctorReport, GcReport, ShutdownResult, Stats, Status, Tree, Version
from ._flavour import FlavourIo, Opening, opening, result_of
from .access import AsyncKeys, AsyncPool, AsyncSecrets, AsyncTrust
from .hub import AsyncHub
from .network import AsyncNetwork
from .sandbox import AsyncSandbox, to_children
from .snapshots import AsyncSnapshots
from .streams import AsyncEventStream, AsyncPaginator
from .workspaces import AsyncWorkspaces


class AsyncForkd:
    """A client of one daemon. It keeps connections open; `async with` closes them at the end of the block.

    It uses the first of: the arguments, FORKD_SOCKET, FORKD_URL, the record in the data directory, and the default
    socket. It does not contact the daemon yet.

    socket: unix socket of the daemon
    url: address of the daemon, such as "https://127.0.0.1:8889"
    token: token or key for `url`; default: FORKD_TOKEN, or the local daemon's token in its data directory
    ca_file: PEM file with the certificates to trust for an https `url`; default: FORKD_CA, or those of the system
    data_dir: data directory of the daemon; default: FORKD_DATA_DIR, or the directory of this user
    """

    #: Builds, lists and removes snapshots.
    snapshots: AsyncSnapshots
    #: Lists, finds and kills sandboxes.
    sandboxes: AsyncSandboxes
    #: Creates, suspends and resumes workspaces: sandboxes that have a name.
    workspaces: AsyncWorkspaces
    #: Creates, lists and removes keys for callers over HTTP.
    keys: AsyncKeys
    #: Adds, lists and removes secrets that guests use without seeing them.
    secrets: AsyncSecrets
    #: Lists and changes presets of network rules.
    network: AsyncNetwork
    #: Shows and sets how many children wait ready to be handed out.
    pool: AsyncPool
    #: Pins keys of publishers, whose signatures a pull asks for.
    trust: AsyncTrust
    #: Sends snapshots to registries and fetches them.
    hub: AsyncHub

    def __init__(
        self,
        *,
        socket: Optional[str] = None,
        url: Optional[str] = None,
        token: Optional[str] = None,
        ca_file: Optional[str] = None,
        data_dir: Optional[str] = None,
    ) -> None:
        target = find_daemon(socket=socket, url=url, token=token, ca_file=ca_file, data_dir=data_dir)
        self._client = Client(FlavourIo(), target)
        self.snapshots = AsyncSnapshots(self._client)
        self.sandboxes = AsyncSandboxes(self._client)
        self.workspaces = AsyncWorkspaces(self._client)
        self.keys = AsyncKeys(self._client)
        self.secrets = AsyncSecrets(self._client)
        self.network = AsyncNetwork(self._client)
        self.pool = AsyncPool(self._client)
        self.trust = AsyncTrust(self._client)
        self.hub = AsyncHub(self._client)

    def create(
        self,
        tag: Optional[str] = None,
        *,
        env: Optional[Mapping[str, str]] = None,
        labels: Optional[Mapping[str, str]] = None,
        values: Any = None,
        ttl: Optional[float] = None,
        idle_timeout: Optional[float] = None,
        on_timeout: Optional[str] = None,
        auto_resume: Optional[bool] = None,
        limits: Optional[Mapping[str, Any]] = None,
        network: Optional[NetworkOption] = None,
        secrets: Optional[Iterable[str]] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Opening[AsyncSandbox]:
        """Forks one sandbox. The arguments are those of `AsyncSandbox.create()`."""
        return AsyncSandbox.create(
            tag,
            env=env,
            labels=labels,
            values=values,
            ttl=ttl,
            idle_timeout=idle_timeout,
            on_timeout=on_timeout,
            auto_resume=auto_resume,
            limits=limits,
            network=network,
            secrets=secrets,
            idempotency_key=idempotency_key,
            timeout=timeout,
            forkd=self,
        )

    async def fork(
        self,
        tag: str,
        n: int = 1,
        *,
        vary: Optional[Sequence[Mapping[str, Any]]] = None,
        env: Optional[Mapping[str, str]] = None,
        labels: Optional[Mapping[str, str]] = None,
        ttl: Optional[float] = None,
        idle_timeout: Optional[float] = None,
        on_timeout: Optional[str] = None,
        auto_resume: Optional[bool] = None,
        limits: Optional[Mapping[str, Any]] = None,
        network: Optional[NetworkOption] = None,
        secrets: Optional[Iterable[str]] = None,
        idempotency_key: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> List[Union[AsyncSandbox, ForkError]]:
        """Forks `n` sandboxes. One that fails is a ForkError in the list; the call raises if all fail.

        vary: {"env": …, "values": …} for the children in order, at most one per child; default: none

        The other arguments are those of `AsyncSandbox.create()`, for each child.
        """
        fields = life_fields(
            env=env,
            labels=labels,
            ttl=ttl,
            idle_timeout=idle_timeout,
            on_timeout=on_timeout,
            auto_resume=auto_resume,
            limits=limits,
            network=network,
            secrets=secrets,
            vary=vary,
        )
        given = {"snapshot_tag": tag, "n": n, **fields}
        answer = await result_of(self._client.call("fork", given, timeout, idempotency_key=idempotency_key))
        return to_children(self._client, answer)

    def events(
        self,
        *,
        types: Optional[Iterable[str]] = None,
        sandbox: Optional[str] = None,
        tag: Optional[str] = None,
        labels: Optional[Union[Mapping[str, str], Iterable[str]]] = None,
        after: Optional[str] = None,
        retry: float = 30.0,
    ) -> AsyncEventStream:
        """Follows events that match all filters. `async with` opens the stream before the block begins.

        If events may be missing, because the daemon restarted or the reader was too slow, the next event is "reset".

        types: such as "sandbox.died" or "sandbox.*"; default: all
        sandbox: id of a sandbox
        tag: tag of a snapshot, for its events and those of its children
        labels: {"job": "42"}, or texts such as "job=42"
        after: id of an event to continue after; default: only new events
        retry: seconds to try to reconnect after a lost connection; 0: not at all; default: 30
        """
        names = name_list("types", types)
        given = {
            "type": None if names is None else ",".join(names),
            "sandbox": sandbox,
            "tag": tag,
            "label": label_list(labels),
        }
        return AsyncEventStream(Follow(self._client, given, after, retry))

    async def stats(
        self,
        *,
        tag: Optional[str] = None,
        labels: Optional[Union[Mapping[str, str], Iterable[str]]] = None,
        state: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> Stats:
        """Measures CPU, memory and disk of the sandboxes that match."""
        given = {"tag": tag, "label": label_list(labels), "state": state}
        return to_model(Stats, await result_of(self._client.call("stats", given, timeout)))

    async def tree(self, *, timeout: Optional[float] = None) -> Tree:
        """Returns the lineage of snapshots and sandboxes."""
        return to_model(Tree, await result_of(self._client.call("tree", {}, timeout)))

    async def gc(
        self,
        *,
        dry_run: bool = False,
        branches: bool = False,
        images: bool = False,
        older_than: Optional[float] = None,
        keep_last: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> GcReport:
        """Removes unused flat images, unfinished snapshots and leftovers.

        dry_run: only reports what it would remove; default: False
        branches: also removes branches that nothing depends on or runs from; default: False
        images: also removes images that no snapshot and no build uses; default: False
        older_than: removes only branches that are older than this many seconds; implies `branches`
        keep_last: keeps this many of the newest branches; implies `branches`
        """
        given = {
            "dry_run": dry_run,
            "branches": branches or None,
            "images": images or None,
            "older_than_secs": None if older_than is None else int(older_than),
            "keep_last": keep_last,
        }
        return to_model(GcReport, await result_of(self._client.call("gc", given, timeout)))

    async def status(self, *, timeout: Optional[float] = None) -> Status:
        """Describes the running daemon."""
        return to_model(Status, await result_of(self._client.call("status", {}, timeout)))

    async def version(self, *, timeout: Optional[float] = None) -> Version:
        """Returns the version and the pid of the daemon."""
        return to_model(Version, await result_of(self._client.call("version", {}, timeout)))

    async def doctor(self, *, boot: bool = False, timeout: Optional[float] = None) -> DoctorReport:
        """Checks the host.

        boot: also starts a small guest on each accelerator; default: False
        """
        return to_model(DoctorReport, await result_of(self._client.call("doctor", {"boot": flag(boot)}, timeout)))

    async def cleanup(self, *, dry_run: bool = False, timeout: Optional[float] = None) -> CleanupReport:
        """Removes leftovers of stopped daemons and sandboxes.

        dry_run: only reports them; default: False
        """
        return to_model(CleanupReport, await result_of(self._client.call("cleanup", {"dry_run": dry_run}, timeout)))

    async def shutdown(
        self, *, sandboxes: Optional[str] = None, force: bool = False, timeout: Optional[float] = None
    ) -> ShutdownResult:
        """Stops the daemon.

        sandboxes: "keep" leaves running ones for the next daemon, "stop" stops them; default: the daemon's setting
        force: also stops workspaces that cannot be saved; default: False
        """
        given = {"sandboxes": sandboxes, "force": force or None}
        return to_model(ShutdownResult, await result_of(self._client.call("shutdown", given, timeout)))

    async def call(self, route: str, *, timeout: Optional[float] = None, **given: Any) -> Any:
        """Calls any route that answers with one JSON value, with objects of the wire in and out.

        route: name in the route table, which is the `operationId` of the OpenAPI document
        """
        fields: Dict[str, Any] = given
        return await result_of(self._client.call(route, fields, timeout))

    async def aclose(self) -> None:
        """Closes idle connections. The client can be used again."""
        self._client.close()
        # asyncio ends a closed connection in its next step.
        await result_of(self._client.io.sleep(0))

    async def __aenter__(self) -> AsyncForkd:
        return self

    async def __aexit__(
        self,
        kind: Optional[Type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._client.target.place.name}>"


class AsyncSandboxes:
    """Lists, finds and kills sandboxes."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(
        self,
        *,
        tag: Optional[str] = None,
        labels: Optional[Union[Mapping[str, str], Iterable[str]]] = None,
        state: Optional[str] = None,
        workspace: Optional[str] = None,
        owner: Optional[str] = None,
        limit: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> AsyncPaginator[AsyncSandbox]:
        """Lists the sandboxes that match. The arguments are those of `AsyncSandbox.list()`."""
        given = {"tag": tag, "label": label_list(labels), "state": state, "workspace": workspace, "owner": owner}
        return AsyncSandbox._pages(self._client, None, given, limit, timeout)

    def get(self, sandbox_id: str, *, timeout: Optional[float] = None) -> Opening[AsyncSandbox]:
        """Returns the sandbox with this id."""
        return opening(AsyncSandbox._connect(self._client, None, sandbox_id, timeout))

    async def kill(self, sandbox_id: str, *, timeout: Optional[float] = None) -> None:
        """Kills the sandbox with this id."""
        await result_of(self._client.call("kill", {"id": sandbox_id}, timeout))

    async def kill_all(
        self,
        *,
        tag: Optional[str] = None,
        labels: Optional[Union[Mapping[str, str], Iterable[str]]] = None,
        timeout: Optional[float] = None,
    ) -> List[str]:
        """Kills all sandboxes that match both filters, and returns their ids. Without a filter it kills all."""
        given = {"tag": tag, "label": label_list(labels)}
        answer = await result_of(self._client.call("killAll", given, timeout))
        return [str(each) for each in answer.get("killed", [])]
