# Made from _async/hub.py by tools/make-sync.py: do not edit.
"""Registries of snapshots."""

from __future__ import annotations

from typing import Callable, Mapping, Optional, Union

from .._convert import to_model
from .._core.client import Client
from .._core.hub import transfer
from ..hub import PullResult, PushResult, SearchResult, SignResult, TransferProgress
from ._flavour import result_of


class Hub:
    """Sends snapshots to registries and fetches them."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def push(
        self,
        tag: str,
        reference: str,
        *,
        auth: Optional[Mapping[str, str]] = None,
        plain_http: bool = False,
        level: Optional[int] = None,
        on_progress: Optional[Callable[[TransferProgress], None]] = None,
        timeout: Optional[float] = None,
    ) -> PushResult:
        """Sends a snapshot with its chain to "HOST/REPOSITORY:TAG", or as an archive to a URL.

        auth: {"username": …, "password": …}, {"identity_token": …} or {"registry_token": …}; default: anonymous
        plain_http: connects without TLS; default: only to a registry on the daemon's host that has none
        level: level of compression, 1 to 19; default: 7
        on_progress: receives the progress; default: it is not reported
        timeout: seconds for all of it; default: no limit
        """
        request = {
            "tag": tag,
            "reference": reference,
            "auth": None if auth is None else dict(auth),
            "plain_http": plain_http or None,
            "level": level,
        }
        return result_of(transfer(self._client, "push", request, PushResult, on_progress, timeout))

    def pull(
        self,
        reference: str,
        *,
        tag: Optional[str] = None,
        force: bool = False,
        rebuild: bool = False,
        insecure_skip_signature: bool = False,
        auth: Optional[Mapping[str, str]] = None,
        plain_http: bool = False,
        on_progress: Optional[Callable[[TransferProgress], None]] = None,
        timeout: Optional[float] = None,
    ) -> PullResult:
        """Fetches a snapshot from "HOST/REPOSITORY:TAG", or from the URL of an archive. A later call continues.

        tag: tag of the snapshot here; default: the last part of the repository, or the archive's own tag
        force: replaces a snapshot that has this tag; default: False
        rebuild: builds the snapshot from its recipe if this host cannot restore it; default: False
        insecure_skip_signature: looks for no signature, whatever the trust list requires; default: False
        auth: {"username": …, "password": …}, {"identity_token": …} or {"registry_token": …}; default: anonymous
        plain_http: connects without TLS; default: only to a registry on the daemon's host that has none
        on_progress: receives the progress; default: it is not reported
        timeout: seconds for all of it; default: no limit
        """
        request = {
            "reference": reference,
            "tag": tag,
            "force": force or None,
            "rebuild": rebuild or None,
            "insecure_skip_signature": insecure_skip_signature or None,
            "auth": None if auth is None else dict(auth),
            "plain_http": plain_http or None,
        }
        return result_of(transfer(self._client, "pull", request, PullResult, on_progress, timeout))

    def sign(
        self,
        reference: str,
        digest: str,
        *,
        signature: str,
        public_key: str,
        auth: Optional[Mapping[str, str]] = None,
        plain_http: bool = False,
        timeout: Optional[float] = None,
    ) -> SignResult:
        """Attaches a signature that the caller has made to the manifest with this digest.

        signature: base64 of the signature
        public_key: public key of the signature, as PEM
        auth: {"username": …, "password": …}, {"identity_token": …} or {"registry_token": …}; default: anonymous
        plain_http: connects without TLS; default: only to a registry on the daemon's host that has none
        """
        given = {
            "reference": reference,
            "digest": digest,
            "signature": signature,
            "public_key": public_key,
            "auth": None if auth is None else dict(auth),
            "plain_http": plain_http or None,
        }
        return to_model(SignResult, result_of(self._client.call("signPushed", given, timeout)))

    def search(
        self,
        registry: Optional[str] = None,
        *,
        text: Optional[str] = None,
        auth: Optional[Mapping[str, str]] = None,
        plain_http: bool = False,
        timeout: Optional[float] = None,
    ) -> SearchResult:
        """Lists the snapshots of "REGISTRY[/PREFIX]"; default: those of the daemon's setting hub_registry.

        text: only names that contain it; default: all
        auth: {"username": …, "password": …}, {"identity_token": …} or {"registry_token": …}; default: anonymous
        plain_http: connects without TLS; default: only to a registry on the daemon's host that has none
        """
        given = {
            "registry": registry,
            "text": text,
            "auth": None if auth is None else dict(auth),
            "plain_http": plain_http or None,
        }
        return to_model(SearchResult, result_of(self._client.call("searchHub", given, timeout)))
