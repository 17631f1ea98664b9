"""Workspaces: sandboxes that have a name and outlive a restart of the host."""

from __future__ import annotations

from typing import Any, Iterable, Mapping, Optional, Union

from .._convert import to_model
from .._core.client import Client
from .._core.follow import Pages
from .._core.requests import NetworkOption, label_list, life_fields
from ..models import SandboxInfo, WorkspaceInfo
from ._flavour import result_of
from .sandbox import AsyncSandbox
from .streams import AsyncPaginator


class AsyncWorkspaces:
    """Creates, suspends and resumes workspaces."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(
        self,
        *,
        tag: Optional[str] = None,
        labels: Optional[Union[Mapping[str, str], Iterable[str]]] = None,
        state: Optional[str] = None,
        owner: Optional[str] = None,
        limit: Optional[int] = None,
        timeout: Optional[float] = None,
    ) -> AsyncPaginator[WorkspaceInfo]:
        """Lists the workspaces that match all filters, the oldest first; default: all.

        state: "running", "suspended", "stale" or "dead"
        limit: maximum number of entries
        """
        given = {"tag": tag, "label": label_list(labels), "state": state, "owner": owner}
        pages = Pages(self._client, "listWorkspaces", given, limit, timeout)
        return AsyncPaginator(pages, lambda each: to_model(WorkspaceInfo, each))

    async def get(self, name: str, *, timeout: Optional[float] = None) -> WorkspaceInfo:
        """Returns the workspace with this name."""
        return await self._call("getWorkspace", name, timeout)

    async def create(
        self,
        name: str,
        tag: str,
        *,
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
    ) -> AsyncSandbox:
        """Forks a sandbox from a snapshot, gives it this name and returns it.

        The arguments are those of `AsyncSandbox.create()`. A timeout pauses a workspace by default.
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
        )
        given = {"name": name, "snapshot_tag": tag, **fields}
        answer = await result_of(self._client.call("createWorkspace", given, timeout, idempotency_key=idempotency_key))
        return await self._sandbox(to_model(WorkspaceInfo, answer).id, timeout)

    async def sandbox(self, name: str, *, timeout: Optional[float] = None) -> AsyncSandbox:
        """Returns the sandbox of the workspace, running or paused."""
        return await self._sandbox((await self.get(name, timeout=timeout)).id, timeout)

    async def suspend(self, name: str, *, timeout: Optional[float] = None) -> WorkspaceInfo:
        """Saves the sandbox of the workspace to disk and stops its machine."""
        return await self._call("suspendWorkspace", name, timeout)

    async def resume(self, name: str, *, timeout: Optional[float] = None) -> WorkspaceInfo:
        """Resumes the workspace, or starts it from its snapshot if its machine was lost."""
        return await self._call("resumeWorkspace", name, timeout)

    async def remove(self, name: str, *, timeout: Optional[float] = None) -> None:
        """Kills the sandbox of the workspace and removes its saved state."""
        await result_of(self._client.call("deleteWorkspace", {"name": name}, timeout))

    async def _sandbox(self, sandbox_id: str, timeout: Optional[float]) -> AsyncSandbox:
        answer = await result_of(self._client.call("getSandbox", {"id": sandbox_id}, timeout))
        return AsyncSandbox._of(self._client, to_model(SandboxInfo, answer))

    async def _call(self, route: str, name: str, timeout: Optional[float]) -> WorkspaceInfo:
        return to_model(WorkspaceInfo, await result_of(self._client.call(route, {"name": name}, timeout)))
