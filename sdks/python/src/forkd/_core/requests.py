"""Arguments of the SDK → fields of requests. Pure."""

from __future__ import annotations

import math
from typing import Any, Dict, Iterable, List, Mapping, Optional, Sequence, Tuple, Union

#: A network: its mode, or an object with `mode` and `rules`.
NetworkOption = Union[str, Mapping[str, Any]]


def whole_secs(secs: Optional[float]) -> Optional[int]:
    """Rounds up, so that a time never ends early: the daemon takes whole seconds here."""
    return None if secs is None else math.ceil(secs)


def life_fields(
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
    vary: Optional[Sequence[Mapping[str, Any]]] = None,
) -> Dict[str, Any]:
    """Fields of every request that makes sandboxes."""
    return {
        "env": _texts("env", env),
        "labels": _texts("labels", labels),
        "ttl_secs": whole_secs(ttl),
        "idle_timeout_secs": whole_secs(idle_timeout),
        "on_timeout": on_timeout,
        "auto_resume": auto_resume,
        "limits": None if limits is None else dict(limits),
        "network": network_field(network),
        "secrets": name_list("secrets", secrets),
        "vary": None if vary is None else [dict(each) for each in vary],
    }


def network_field(network: Optional[NetworkOption]) -> Optional[Dict[str, Any]]:
    """The network of a request."""
    if network is None:
        return None
    if isinstance(network, str):
        return {"mode": network}
    fields = dict(network)
    if "rules" in fields:
        fields["rules"] = name_list("rules", fields["rules"])
    return fields


def name_list(what: str, names: Optional[Iterable[str]]) -> Optional[List[str]]:
    """A list of names. A single text is a mistake: its characters would become the names."""
    if names is None:
        return None
    if isinstance(names, (str, bytes)):
        raise TypeError(f"{what} must be a list of texts, not one text")
    return list(names)


def argv_of(command: Union[str, Sequence[str]]) -> List[str]:
    """A text runs in a shell; a list is a program and its arguments."""
    if isinstance(command, str):
        return ["/bin/sh", "-c", command]
    if isinstance(command, (bytes, bytearray)):
        raise TypeError("The command must be a text or a list of texts, not bytes")
    return list(command)


def command_fields(
    command: Union[str, Sequence[str]],
    *,
    env: Optional[Mapping[str, str]] = None,
    cwd: Optional[str] = None,
    user: Optional[str] = None,
    stdin: Optional[str] = None,
    stdin_open: bool = False,
    timeout: Optional[float] = None,
    pty: Optional[Tuple[int, int]] = None,
) -> Dict[str, Any]:
    """Fields of a command."""
    size = None if pty is None else {"rows": pty[0], "cols": pty[1]}
    return {
        "args": argv_of(command),
        "env": _texts("env", env),
        "cwd": cwd,
        "user": user,
        "stdin": stdin,
        "stdin_open": stdin_open or None,
        "timeout_secs": timeout,
        "pty": size,
    }


def label_list(labels: Optional[Union[Mapping[str, str], Iterable[str]]]) -> Optional[List[str]]:
    """Labels to filter by: a mapping, or texts such as "job" and "job=42"."""
    if labels is None:
        return None
    if isinstance(labels, Mapping):
        return [f"{name}={value}" for name, value in labels.items()]
    return name_list("labels", labels)


def flag(value: bool) -> Optional[str]:
    """A switch in a query; None if it is off."""
    return "true" if value else None


def _texts(what: str, values: Optional[Mapping[str, str]]) -> Optional[Dict[str, str]]:
    if values is None:
        return None
    for name, value in values.items():
        if not isinstance(value, str):
            raise TypeError(f"{what}[{name!r}] must be a text, not {type(value).__name__}")
    return dict(values)
