"""Ports and network of one sandbox, and presets of rules."""

from __future__ import annotations

from typing import Any, Iterable, List, Optional

from .._convert import to_model, to_models
from .._core.client import Client
from .._core.requests import flag, name_list, whole_secs
from ..models import NetworkInfo, NetworkLogEntry, PortInfo, PresetInfo
from ._flavour import Opening, Tunnel, opening, result_of
from .streams import AsyncLineStream


class AsyncPorts:
    """Opens ports of one sandbox and connects to them."""

    def __init__(self, client: Client, sandbox_id: str) -> None:
        self._client = client
        self._id = sandbox_id

    async def open(
        self, port: int, *, public: bool = False, ttl: Optional[float] = None, timeout: Optional[float] = None
    ) -> PortInfo:
        """Opens a port, or changes one that is open. The answer has its address and its token.

        public: requests to the address need no token; default: False
        ttl: closes the port after this many seconds; default: when the sandbox ends
        """
        given = {"id": self._id, "port": port, "public": public, "ttl_secs": whole_secs(ttl)}
        return to_model(PortInfo, await result_of(self._client.call("openPort", given, timeout)))

    async def list(self, *, timeout: Optional[float] = None) -> List[PortInfo]:
        """Lists the open ports, without their tokens."""
        return to_models(PortInfo, await result_of(self._client.call("listPorts", {"id": self._id}, timeout)))

    async def close(self, port: int, *, timeout: Optional[float] = None) -> None:
        """Closes a port and the connections to its address."""
        await result_of(self._client.call("closePort", {"id": self._id, "port": port}, timeout))

    async def connect(self, port: int, *, timeout: Optional[float] = None) -> Tunnel:
        """Connects to a TCP port of the guest, which need not be open. Returns a pair of asyncio streams."""
        tunnel: Tunnel = await result_of(self._client.tunnel(self._id, port, timeout))
        return tunnel


class AsyncSandboxNetwork:
    """Reads and changes the network of one sandbox. Changes apply at once, also to open connections."""

    def __init__(self, client: Client, sandbox_id: str) -> None:
        self._client = client
        self._id = sandbox_id

    async def info(self, *, timeout: Optional[float] = None) -> NetworkInfo:
        """Returns mode, rules, secrets and counters."""
        return to_model(NetworkInfo, await result_of(self._client.call("getNetwork", {"id": self._id}, timeout)))

    async def allow(self, *destinations: str, timeout: Optional[float] = None) -> NetworkInfo:
        """Allows destinations such as "api.example.com:443", "udp 192.0.2.1:123" or "preset:pypi"."""
        return await self._change(timeout, add=[f"allow {each}" for each in destinations])

    async def deny(self, *destinations: str, timeout: Optional[float] = None) -> NetworkInfo:
        """Denies destinations such as "*.example.com" or "10.0.0.0/8:22"."""
        return await self._change(timeout, add=[f"deny {each}" for each in destinations])

    async def remove(self, *rules: str, timeout: Optional[float] = None) -> NetworkInfo:
        """Removes rules of the sandbox, written as `info()` lists them: "allow api.example.com:443"."""
        return await self._change(timeout, remove=list(rules))

    async def set(
        self,
        *,
        mode: Optional[str] = None,
        rules: Optional[Iterable[str]] = None,
        secrets: Optional[Iterable[str]] = None,
        timeout: Optional[float] = None,
    ) -> NetworkInfo:
        """Changes what is given; the rest stays as it is.

        mode: "none", "filtered" or "open"
        rules: replaces all rules of the sandbox and of its snapshot, with "allow" or "deny"
        secrets: replaces the names of its secrets
        """
        lists = {"rules": name_list("rules", rules), "secrets": name_list("secrets", secrets)}
        return await self._change(timeout, mode=mode, **lists)

    def log(
        self, *, follow: bool = False, tail: Optional[int] = None, timeout: Optional[float] = None
    ) -> Opening[AsyncLineStream[NetworkLogEntry]]:
        """Reads the log of connections and look-ups, the oldest entry first. Guests choose the names in it.

        follow: waits for new entries at the end; default: False
        tail: starts with this many last entries, at most 1000; default: all that are kept
        """
        return opening(self._log(follow, tail, timeout))

    async def _log(
        self, follow: bool, tail: Optional[int], timeout: Optional[float]
    ) -> AsyncLineStream[NetworkLogEntry]:
        given = {"id": self._id, "follow": flag(follow), "tail": tail}
        lines = await result_of(self._client.lines("networkLog", given, timeout))
        return AsyncLineStream(lines, lambda line: to_model(NetworkLogEntry, line))

    async def _change(self, timeout: Optional[float], **given: Any) -> NetworkInfo:
        answer = await result_of(self._client.call("setNetwork", {"id": self._id, **given}, timeout))
        return to_model(NetworkInfo, answer)


class AsyncPresets:
    """Lists and changes presets. A rule "allow preset:NAME" stands for the rules of a preset."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def list(self, *, timeout: Optional[float] = None) -> List[PresetInfo]:
        """Lists the presets, bundled ones and your own."""
        return to_models(PresetInfo, await result_of(self._client.call("listPresets", {}, timeout)))

    async def set(self, name: str, rules: Iterable[str], *, timeout: Optional[float] = None) -> PresetInfo:
        """Adds or changes a preset; its rules have "allow" or "deny"."""
        given = {"name": name, "rules": name_list("rules", rules)}
        return to_model(PresetInfo, await result_of(self._client.call("setPreset", given, timeout)))

    async def remove(self, name: str, *, timeout: Optional[float] = None) -> None:
        """Removes a preset; a bundled one that was changed becomes what it was."""
        await result_of(self._client.call("removePreset", {"name": name}, timeout))


class AsyncNetwork:
    """What all sandboxes share of the network."""

    #: Lists and changes presets: named lists of rules.
    presets: AsyncPresets

    def __init__(self, client: Client) -> None:
        self.presets = AsyncPresets(client)
