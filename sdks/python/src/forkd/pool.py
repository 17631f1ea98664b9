"""Answers about the children that wait ready to be handed out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import List

from ._convert import Model


@dataclass(frozen=True)
class PoolSnapshot(Model):
    """Children of one snapshot that wait ready to be handed out."""

    tag: str
    #: Children that can be handed out now.
    ready: int
    #: Children that are being made.
    making: int
    #: How many there are to be: what was set, or what demand and memory allow.
    wanted: int
    #: Whether an operator has set the number; otherwise it follows demand.
    is_set: bool
    #: Memory that one ready child is expected to use.
    child_mib: int


@dataclass(frozen=True)
class PoolInfo(Model):
    """Children that wait ready to be handed out."""

    #: Memory for children that were not set, in MiB; 0: there are no ready children.
    budget_mib: int
    #: Memory that all ready children are expected to use.
    used_mib: int
    snapshots: List[PoolSnapshot]
