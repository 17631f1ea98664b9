"""Finds the daemon of this user, in the same places as the CLI and the TypeScript SDK."""

from __future__ import annotations

import errno
import json
import os
import stat
from dataclasses import dataclass
from typing import Any, Dict, Mapping, Optional
from urllib.parse import SplitResult, urlsplit

from ..errors import advice, make_error
from .io import Place

_max_record = 64 * 1024
_example = "http://127.0.0.1:8889"


@dataclass(frozen=True)
class Target:
    """A daemon, and how to authenticate."""

    place: Place
    token: Optional[str] = None
    #: Data directory that the daemon must use; None if a socket or an address names the daemon.
    data_dir: Optional[str] = None


def find_daemon(
    *,
    socket: Optional[str] = None,
    url: Optional[str] = None,
    token: Optional[str] = None,
    ca_file: Optional[str] = None,
    data_dir: Optional[str] = None,
    env: Optional[Mapping[str, str]] = None,
) -> Target:
    """Uses the first of: arguments, FORKD_SOCKET, FORKD_URL, the daemon's record, the default socket."""
    env = os.environ if env is None else env
    directory = data_dir if data_dir is not None else default_data_dir(env)
    if socket is not None:
        return _at_socket(socket)
    if url is not None:
        return _at_url(url, token, ca_file, directory, env)
    if data_dir is None and env.get("FORKD_SOCKET"):
        return _at_socket(env["FORKD_SOCKET"])
    if data_dir is None and env.get("FORKD_URL"):
        return _at_url(env["FORKD_URL"], token, ca_file, directory, env)
    found = read_record(directory).get("socket")
    path = found if isinstance(found, str) else os.path.join(default_runtime_dir(env), "forkd.sock")
    return _at_socket(path, data_dir if data_dir is not None else env.get("FORKD_DATA_DIR") or None)


def default_data_dir(env: Mapping[str, str]) -> str:
    """The data directory of this user's daemon unless a setting names another."""
    if env.get("FORKD_DATA_DIR"):
        return env["FORKD_DATA_DIR"]
    if os.getuid() == 0:
        return "/var/lib/forkd"
    return os.path.join(env.get("XDG_DATA_HOME") or os.path.expanduser("~/.local/share"), "forkd")


def default_runtime_dir(env: Mapping[str, str]) -> str:
    """The directory for sockets of this user's daemon unless a setting names another."""
    if env.get("FORKD_RUNTIME_DIR"):
        return env["FORKD_RUNTIME_DIR"]
    if os.getuid() == 0:
        return "/run/forkd"
    return f"{env['XDG_RUNTIME_DIR']}/forkd" if env.get("XDG_RUNTIME_DIR") else f"/tmp/forkd-{os.getuid()}"


def read_record(data_dir: str) -> Dict[str, Any]:
    """What the running daemon wrote about itself; empty if it cannot be read: the next daemon replaces it."""
    try:
        text = _read_file(os.path.join(data_dir, "daemon.json"), os.O_NOFOLLOW, _max_record)
        value = json.loads(text) if text is not None else {}
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _read_file(path: str, flags: int, most: int) -> Optional[str]:
    """None if there is no such file. Refuses other kinds of files: reading a pipe could wait forever."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | flags)
    except FileNotFoundError:
        return None
    with os.fdopen(file, "rb") as opened:
        facts = os.fstat(opened.fileno())
        if not stat.S_ISREG(facts.st_mode):
            raise OSError(errno.EINVAL, "it is not a regular file")
        if facts.st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most} bytes")
        return opened.read(most).decode("utf-8")


def _at_socket(path: str, data_dir: Optional[str] = None) -> Target:
    return Target(Place(name=path, socket=path), data_dir=data_dir)


def _at_url(
    url: str, token: Optional[str], ca_file: Optional[str], data_dir: str, env: Mapping[str, str]
) -> Target:
    parsed = _parse(url)
    if parsed is None:
        guess = _parse(f"http://{url}")
        shown = f"http://{url}" if guess is not None and "://" not in url else _example
        raise make_error(
            "invalid_request",
            f'"{url}" is not the address of a daemon',
            remedy=advice(f"Give an address with http:// or https://, such as {shown}."),
        )
    secure = parsed.scheme == "https"
    host = parsed.hostname or ""
    place = Place(
        name=url,
        host=host,
        port=parsed.port or (443 if secure else 80),
        prefix=parsed.path.rstrip("/"),
        secure=secure,
        ca=_certificates(ca_file or env.get("FORKD_CA") or None) if secure else None,
        authority=parsed.netloc.rpartition("@")[2],
    )
    return Target(place, _token(parsed, token, data_dir, env))


def _parse(url: str) -> Optional[SplitResult]:
    try:
        parsed = urlsplit(url)
        port = parsed.port
    except ValueError:
        return None
    has_host = bool(parsed.hostname) and port != 0 and not any(c.isspace() for c in url)
    return parsed if parsed.scheme in ("http", "https") and has_host else None


def _certificates(path: Optional[str]) -> Optional[str]:
    if path is None:
        return None
    try:
        text = _read_file(path, 0, 16 * 1024 * 1024)
    except (OSError, ValueError) as error:
        raise make_error("invalid_request", f"Cannot read the certificates to trust in {path}: {error}") from error
    if text is None:
        raise make_error(
            "invalid_request",
            f"Cannot read the certificates to trust: there is no file {path}",
            remedy=advice("Set FORKD_CA or `ca_file` to a PEM file."),
        )
    return text


def _token(url: SplitResult, given: Optional[str], data_dir: str, env: Mapping[str, str]) -> Optional[str]:
    """Never sends the token of the local daemon to another machine."""
    token = given if given is not None else env.get("FORKD_TOKEN") or None
    if token is not None:
        return token
    record = read_record(data_dir)
    if not _is_own(url, record):
        return None
    path = record.get("token_file")
    try:
        text = _read_file(path if isinstance(path, str) else os.path.join(data_dir, "token"), 0, _max_record)
    except (OSError, ValueError) as error:
        raise make_error("daemon_unreachable", f"Cannot read the token of the daemon: {error}") from error
    return None if text is None else text.strip()


def _is_own(url: SplitResult, record: Mapping[str, Any]) -> bool:
    """Trusts only the daemon's own record: a loopback port may belong to another user or to a tunnel."""
    own = _parse(record["url"]) if isinstance(record.get("url"), str) else None
    if own is None:
        return False
    if own.netloc == url.netloc:
        return True
    return _is_loopback(url.hostname) and _is_loopback(own.hostname) and own.port == url.port


def _is_loopback(host: Optional[str]) -> bool:
    if host is None:
        return False
    parts = host.split(".")
    is_v4 = len(parts) == 4 and parts[0] == "127" and all(each.isdecimal() for each in parts)
    return is_v4 or host in ("localhost", "::1")
