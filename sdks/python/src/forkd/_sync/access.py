# Made from _async/access.py by tools/make-sync.py: do not edit.
"""Keys, secrets, and the pool of ready children."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Iterable, List, Mapping, Optional

from .._convert import to_model, to_models
from .._core.client import Client, null
from .._core.requests import name_list, network_field
from ..models import KeyInfo, SecretInfo
from ..pool import PoolInfo
from ..trust import TrustEntry
from ._flavour import result_of


class Keys:
    """Creates, lists and removes keys for callers over HTTP."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self, *, timeout: Optional[float] = None) -> List[KeyInfo]:
        """Lists keys, without their text."""
        return to_models(KeyInfo, result_of(self._client.call("listKeys", {}, timeout)))

    def create(
        self,
        name: str,
        *,
        scope: str = "run",
        expires_at: Optional[datetime] = None,
        max_sandboxes: Optional[int] = None,
        max_memory_mib: Optional[int] = None,
        network: Optional[Mapping[str, Any]] = None,
        secrets: Optional[Iterable[str]] = None,
        timeout: Optional[float] = None,
    ) -> KeyInfo:
        """Creates a key; only this answer has its text (`key`).

        scope: "read", "run" or "admin"; default: "run"
        expires_at: when the key expires; default: never
        max_sandboxes, max_memory_mib: what its sandboxes may take together; default: no limit
        network: where its sandboxes may connect to at most (`mode`, `rules`); default: no limit
        secrets: names of the secrets that its sandboxes may have; default: all
        """
        given = {
            "name": name,
            "scope": scope,
            "expires_at_unix": None if expires_at is None else int(expires_at.timestamp()),
            "max_sandboxes": max_sandboxes,
            "max_memory_mib": max_memory_mib,
            "network": network_field(network),
            "secrets": name_list("secrets", secrets),
        }
        return to_model(KeyInfo, result_of(self._client.call("createKey", given, timeout)))

    def remove(self, name: str, *, timeout: Optional[float] = None) -> None:
        """Removes a key and closes the open requests of its callers."""
        result_of(self._client.call("removeKey", {"name": name}, timeout))


class Secrets:
    """Adds, lists and removes secrets that guests use without seeing them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self, *, timeout: Optional[float] = None) -> List[SecretInfo]:
        """Lists secrets, without their values."""
        return to_models(SecretInfo, result_of(self._client.call("listSecrets", {}, timeout)))

    def set(
        self,
        name: str,
        *,
        value: str,
        hosts: Iterable[str],
        header: Optional[str] = None,
        format: Optional[str] = None,
        timeout: Optional[float] = None,
    ) -> SecretInfo:
        """Adds or replaces a secret. Sandboxes that have it use the new value at once.

        value: the secret itself; the daemon keeps it encrypted and never returns it
        hosts: hosts that may receive the value, such as "api.example.com"
        header: header in which the placeholder is replaced; default: "Authorization"
        format: value of that header, with "{}" for the secret; default: "Bearer {}" or "{}"
        """
        given = {
            "name": name,
            "value": value,
            "hosts": name_list("hosts", hosts),
            "header": header,
            "format": format,
        }
        return to_model(SecretInfo, result_of(self._client.call("setSecret", given, timeout)))

    def remove(self, name: str, *, timeout: Optional[float] = None) -> None:
        """Removes a secret. Sandboxes that have it lose it at once."""
        result_of(self._client.call("removeSecret", {"name": name}, timeout))


class Pool:
    """Shows and sets how many children wait ready, so that forks answer in milliseconds."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, *, timeout: Optional[float] = None) -> PoolInfo:
        """Returns how many children of which snapshot are ready, and the memory that they use."""
        return to_model(PoolInfo, result_of(self._client.call("getPool", {}, timeout)))

    def set(self, tag: str, ready: Optional[int], *, timeout: Optional[float] = None) -> PoolInfo:
        """Sets how many children of a snapshot wait ready; None: as many as demand and memory allow."""
        given = {"tag": tag, "ready": null if ready is None else ready}
        return to_model(PoolInfo, result_of(self._client.call("setPool", given, timeout)))


class Trust:
    """Pins keys of publishers, whose signatures a pull asks for."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self, *, timeout: Optional[float] = None) -> List[TrustEntry]:
        """Lists keys and policies by repository. The first entry that fits a repository applies."""
        return to_models(TrustEntry, result_of(self._client.call("listTrust", {}, timeout)))

    def pin(self, repository: str, public_key: str, *, timeout: Optional[float] = None) -> TrustEntry:
        """Pins a public key (PEM) for a repository, or with "/*" for all below it, in addition to pinned ones."""
        given = {"repository": repository, "public_key": public_key}
        return to_model(TrustEntry, result_of(self._client.call("setTrust", given, timeout)))

    def unpin(self, repository: str, fingerprint: str, *, timeout: Optional[float] = None) -> None:
        """Removes a pinned key of a repository by its fingerprint."""
        given = {"repository": repository, "fingerprint": fingerprint}
        result_of(self._client.call("removeTrust", given, timeout))

    def set_policy(
        self, repository: str, policy: Optional[str], *, timeout: Optional[float] = None
    ) -> TrustEntry:
        """Sets the policy of a repository; None: "require" with a pinned key and "warn" without one."""
        given = {"repository": repository, "policy": null if policy is None else policy}
        return to_model(TrustEntry, result_of(self._client.call("setTrust", given, timeout)))

    def remove(self, repository: str, *, timeout: Optional[float] = None) -> None:
        """Removes the policy and all pinned keys of a repository."""
        result_of(self._client.call("removeTrust", {"repository": repository}, timeout))
