"""Forks, finds and branches sandboxes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Dict, Iterable, List, Mapping, Optional, Sequence, Union

from .._convert import to_model, wrong_answer
from .._core.client import Client
from .._core.follow import Pages
from .._core.requests import NetworkOption, label_list, life_fields
from .._core.siblings import Siblings
from ..errors import ForkError, fork_error_of_body, make_error
from ..models import SandboxInfo
from ..reports import BranchInfo
from ._flavour import Opening, opening, result_of
from .machine import AsyncMachine, default_secs
from .streams import AsyncPaginator

if TYPE_CHECKING:
    from .daemon import AsyncForkd


@dataclass(frozen=True)
class AsyncBranch:
    """The snapshot that a branch made, and its children."""

    #: The snapshot and its timings.
    info: BranchInfo
    #: One entry per child, in order: a sandbox, or the error of a child that failed.
    children: List[Union[AsyncSandbox, ForkError]]

    @property
    def tag(self) -> str:
        """Tag of the snapshot."""
        return self.info.tag


class AsyncSandbox(AsyncMachine):
    """A sandbox: a virtual machine that was forked from a snapshot.

    `async with` kills it at the end of the block. Every call takes `timeout` in seconds: 0 means no limit, and
    without one the call has a limit that suits it.
    """

    @classmethod
    def _of(
        cls,
        client: Client,
        info: SandboxInfo,
        *,
        default_timeout: float = default_secs,
        own_forkd: Optional[AsyncForkd] = None,
    ) -> AsyncSandbox:
        self = cls.__new__(cls)
        self._set_up(client, info, default_timeout, own_forkd)
        return self

    @classmethod
    def create(
        cls,
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
        forkd: Optional[AsyncForkd] = None,
    ) -> Opening[AsyncSandbox]:
        """Forks a sandbox from a snapshot.

        tag: tag of the snapshot; default: FORKD_TAG, or "pyagent"
        env: environment of the sandbox; default: that of the snapshot
        labels: labels to find it by; default: none
        values: any JSON, which the guest reads from /run/forkd/values.json; default: none
        ttl: ends the sandbox after this many seconds; default: no limit
        idle_timeout: ends it after this many seconds without a call into it; default: no limit
        on_timeout: "kill" or "pause"; default: "kill"
        auto_resume: resumes it when a call needs it while it is paused; default: False
        limits: what it may use of the host, such as {"memory_mib": 512}; default: the daemon's settings
        network: "none", "filtered", "open", or {"mode": …, "rules": [...]}; default: as its snapshot
        secrets: names of secrets that it may use; default: none
        idempotency_key: makes the call safe to repeat; default: none
        timeout: seconds for this call; default: 600
        forkd: the client to use; default: one for the daemon of this user
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
            vary=None if values is None else [{"values": values}],
        )
        return opening(cls._create(tag, fields, idempotency_key, timeout, forkd))

    @classmethod
    async def _create(
        cls,
        tag: Optional[str],
        fields: Dict[str, Any],
        idempotency_key: Optional[str],
        timeout: Optional[float],
        forkd: Optional[AsyncForkd],
    ) -> AsyncSandbox:
        client, own = _client_of(forkd)
        given = {"snapshot_tag": tag or os.environ.get("FORKD_TAG") or "pyagent", **fields}
        answer = await result_of(client.call("fork", given, timeout, idempotency_key=idempotency_key))
        children = to_children(client, answer)
        if len(children) != 1:
            raise make_error("internal", f"The daemon answered a fork of one child with {len(children)}")
        child = children[0]
        if isinstance(child, ForkError):
            raise make_error(child.code, child.message, child.details, child.remedy_data)
        child._own_forkd = own
        return child

    @classmethod
    def connect(
        cls, sandbox_id: str, *, timeout: Optional[float] = None, forkd: Optional[AsyncForkd] = None
    ) -> Opening[AsyncSandbox]:
        """Returns the running or paused sandbox with this id.

        forkd: the client to use; default: one for the daemon of this user
        """
        client, own = _client_of(forkd)
        return opening(cls._connect(client, own, sandbox_id, timeout))

    @classmethod
    async def _connect(
        cls, client: Client, own: Optional[AsyncForkd], sandbox_id: str, timeout: Optional[float]
    ) -> AsyncSandbox:
        answer = await result_of(client.call("getSandbox", {"id": sandbox_id}, timeout))
        return cls._of(client, to_model(SandboxInfo, answer), own_forkd=own)

    @classmethod
    def list(
        cls,
        *,
        tag: Optional[str] = None,
        labels: Optional[Union[Mapping[str, str], Iterable[str]]] = None,
        state: Optional[str] = None,
        workspace: Optional[str] = None,
        owner: Optional[str] = None,
        limit: Optional[int] = None,
        timeout: Optional[float] = None,
        forkd: Optional[AsyncForkd] = None,
    ) -> AsyncPaginator[AsyncSandbox]:
        """Lists the sandboxes that match all filters, the oldest first; default: all.

        tag: snapshot that they descend from
        labels: {"job": "42"}, or texts such as "job" and "job=42"
        state: "running", "paused" or "dead"
        limit: maximum number of entries
        """
        client, own = _client_of(forkd)
        given = {"tag": tag, "label": label_list(labels), "state": state, "workspace": workspace, "owner": owner}
        return cls._pages(client, own, given, limit, timeout)

    @classmethod
    def _pages(
        cls,
        client: Client,
        own: Optional[AsyncForkd],
        given: Mapping[str, Any],
        limit: Optional[int],
        timeout: Optional[float],
    ) -> AsyncPaginator[AsyncSandbox]:
        pages = Pages(client, "listSandboxes", given, limit, timeout)
        return AsyncPaginator(pages, lambda each: cls._of(client, to_model(SandboxInfo, each), own_forkd=own))

    async def branch(
        self,
        tag: Optional[str] = None,
        *,
        n: int = 0,
        vary: Optional[Sequence[Mapping[str, Any]]] = None,
        mode: Optional[str] = None,
        wait: bool = True,
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
    ) -> AsyncBranch:
        """Snapshots the running sandbox, which continues, and forks `n` children from that instant.

        tag: tag of the new snapshot; default: made from the sandbox and the time
        n: number of children; default: 0
        vary: {"env": …, "values": …} for the children in order, at most one per child; default: none
        mode: "live", "diff" or "full"; default: "live"
        wait: False returns as soon as the sandbox runs again (`snapshots.ready()` waits); default: True

        The other arguments are those of `create()`, for the children.
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
        given = {"id": self.id, "tag": tag, "n": n, "mode": mode, "wait": wait, **fields}
        answer = await result_of(self._client.call("branch", given, timeout, idempotency_key=idempotency_key))
        return AsyncBranch(to_model(BranchInfo, answer), to_children(self._client, answer.get("children", [])))

    async def fork(
        self,
        n: int = 1,
        *,
        vary: Optional[Sequence[Mapping[str, Any]]] = None,
        env: Optional[Mapping[str, str]] = None,
        labels: Optional[Mapping[str, str]] = None,
        ttl: Optional[float] = None,
        timeout: Optional[float] = None,
    ) -> List[Union[AsyncSandbox, ForkError]]:
        """Branches the running sandbox and returns `n` children that start from this instant.

        The snapshot between them has no name: killing the last child removes it, unless something else needs it.
        One that fails is a ForkError in the list; the call raises if all fail. The arguments are those of `branch()`.
        """
        if n < 1:
            raise ValueError(f"n must be 1 or more, not {n}")
        branch = await self.branch(n=n, vary=vary, env=env, labels=labels, ttl=ttl, timeout=timeout)
        made = [child for child in branch.children if isinstance(child, AsyncSandbox)]
        siblings = Siblings(self._client, branch.tag, [child.id for child in made])
        for child in made:
            child._siblings = siblings
        if not made:
            await result_of(siblings.remove())
            failed = branch.children[0]
            if isinstance(failed, ForkError):
                raise make_error(failed.code, failed.message, failed.details, failed.remedy_data)
        return branch.children


def to_children(client: Client, entries: Any) -> List[Union[AsyncSandbox, ForkError]]:
    """Entries of a fork or a branch as objects, in the same order."""
    if not isinstance(entries, list):
        raise wrong_answer("a fork was not answered with a list of children")
    return [
        AsyncSandbox._of(client, to_model(SandboxInfo, each)) if "id" in each else fork_error_of_body(each)
        for each in entries
    ]


def _client_of(forkd: Optional[AsyncForkd]) -> Any:
    """The client to use, and the AsyncForkd to close with the sandbox if none was given."""
    if forkd is not None:
        return forkd._client, None
    from .daemon import AsyncForkd

    own = AsyncForkd()
    return own._client, own
