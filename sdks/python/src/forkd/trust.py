"""Answers about whose signatures a pull asks for."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import List

from ._convert import Model


@dataclass(frozen=True)
class PinnedKey(Model):
    """A public key whose signatures count."""

    #: sha256 of the key in its DER form.
    fingerprint: str
    #: "ed25519" or "ecdsa-p256".
    algorithm: str
    #: The key as PEM.
    public_key: str
    pinned_at: datetime


@dataclass(frozen=True)
class TrustEntry(Model):
    """Keys and policy of a repository."""

    repository: str
    #: What applies: "require", "warn" or "off".
    policy: str
    #: Whether the policy was set; otherwise it is "require" with a pinned key and "warn" without one.
    is_set: bool
    keys: List[PinnedKey]
