"""What a program that uses this SDK can do about an error, in the words of this SDK."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, Optional

Words = Callable[[Mapping[str, Any]], str]


def _text(words: str) -> Words:
    """A sentence with the parameters of the remedy in braces."""
    return lambda remedy: words.format_map(remedy)


def _or_raise(words: str) -> Words:
    def worded(remedy: Mapping[str, Any]) -> str:
        setting = remedy.get("setting")
        return f"{words}." if setting is None else f"{words}, or raise the daemon's setting {setting}."

    return worded


def _ids(words: str) -> Words:
    return lambda remedy: f"{words} {', '.join(map(str, remedy['ids']))}."


def _quoted(value: Any, otherwise: str) -> str:
    return otherwise if value is None else f'"{value}"'


_wording: Dict[str, Words] = {
    "advice": _text("{text}"),
    "list_snapshots": _text("Call `forkd.snapshots.list()` to list snapshots."),
    "wait_for_snapshot": _text('Call `forkd.snapshots.ready("{tag}")` to wait for it.'),
    "replace_snapshot": _text('Use another tag, or call `forkd.snapshots.remove("{tag}")` first.'),
    "build_again": _text('Build "{tag}" again with `force=True`.'),
    "remake_snapshot": _text('Call `forkd.snapshots.remove("{tag}")`, then make it again.'),
    "verify_snapshots": _text(
        "Remove them with `forkd.snapshots.remove(tag)` and build them again;"
        " `forkd.snapshots.get(tag, verify=True)` checks one."
    ),
    "verify_snapshot": _text('Call `forkd.snapshots.verify("{tag}")` to check it.'),
    "show_verification": _text(
        'Read `verification` of `forkd.snapshots.get("{tag}")` for what failed,'
        ' and call `forkd.snapshots.verify("{tag}")` to check it again.'
    ),
    "verify_branch": _text(
        "Branch without `n`, check the branch with `forkd.snapshots.verify(tag)`, then fork it."
    ),
    "remove_dependents": _text('Call `forkd.snapshots.remove("{tag}", cascade=True)` to remove them too.'),
    "branch_with_mode": _text('Branch with `mode="{mode}"`.'),
    "list_sandboxes": _text("Call `Sandbox.list()` to list sandboxes."),
    "list_commands": _text("Call `sandbox.commands.list()` to list its commands."),
    "resume": _text("Call `sandbox.resume()` to resume it."),
    "pause_and_resume": _ids("Call `sandbox.pause()`, then `sandbox.resume()`, for"),
    "kill_dependents": _ids("Call `forkd.sandboxes.kill(id)` first for"),
    "kill_children": _text('Kill the sandboxes of `Sandbox.list(tag="{tag}")`.'),
    "kill_some": _or_raise("Kill sandboxes that are not needed"),
    "pause_some": _or_raise("Pause or kill sandboxes that are not needed"),
    "ask_for_less": _or_raise("Ask for fewer or smaller ones"),
    "fork_another": lambda r: f"Call `Sandbox.create({_quoted(r.get('tag'), 'tag')})` to fork a new sandbox.",
    "rewind_or_fork": _text(
        'Call `sandbox.rewind("{tag}")` to start it again, or `Sandbox.create("{tag}")` to fork a new sandbox.'
    ),
    "show_logs": _text("Call `sandbox.logs()` to read the console of the guest."),
    "allow_best_effort": _text("Leave the limit out, or set `best_effort` in `limits` to go without it."),
    "open_port": _text("Call `sandbox.ports.open({port})` to open it."),
    "give_port_token": _text("Call `sandbox.ports.open({port})` to get its token."),
    "pin_key": _text(
        'Call `forkd.trust.pin("{repository}", public_key)` with the public key of the publisher,'
        " or set another policy with `forkd.trust.set_policy()`."
    ),
    "pull_and_rebuild": _text('Pull "{reference}" with `rebuild=True` to build it from its recipe.'),
    "make_signing_key": _text("Make an Ed25519 key with any tool, and sign with it."),
    "list_workspaces": _text("Call `forkd.workspaces.list()` to list workspaces."),
    "delete_workspace": _text('Use another name, or call `forkd.workspaces.remove("{name}")`.'),
    "keep_or_force": _text(
        'Call `forkd.shutdown(sandboxes="keep")` to leave it running, or add `force=True` to lose what was not saved.'
    ),
    "authenticate": _text("Connect with the `token` of the daemon or of a key, or set FORKD_TOKEN."),
    "list_keys": _text("Call `forkd.keys.list()` to list keys."),
    "remove_key": _text('Use another name, or call `forkd.keys.remove("{name}")`.'),
    "list_secrets": lambda r: (
        "Call `forkd.secrets.list()` to list secrets,"
        f" or `forkd.secrets.set({_quoted(r.get('name'), 'name')}, …)` to set one."
    ),
    "new_idempotency_key": _text("Use a new `idempotency_key` for a new request."),
    "log_in": _text("Give credentials for {registry} in `auth`."),
    "retry_later": _or_raise("Try again in a moment"),
    "change_setting": _text("Set the daemon's setting {setting} to {to}."),
    "install": lambda r: (
        f"Install {', '.join(map(str, r['packages']))} on the daemon's host"
        + ("." if r.get("setting") is None else f", or set the daemon's setting {r['setting']}.")
    ),
    "free_disk": lambda r: (
        "Free space with `forkd.gc()` and `forkd.snapshots.remove(tag)`"
        + ("." if r.get("setting") is None else f", or change the daemon's setting {r['setting']}.")
    ),
    "clean_up": _text("Call `forkd.cleanup()` to remove it."),
    "run_doctor": _text("Call `forkd.doctor()` to see what the host lacks."),
    "make_guest_kernel": _text("Build a snapshot: the first build makes one."),
    "show_daemon_log": _text("Read the daemon's log."),
    "use_own_places": _text(
        "Connect with the `socket` of the daemon that is meant;"
        " a second daemon needs its own runtime directory and address."
    ),
    "check_address": _text("Check the `url`, and that the daemon listens there."),
    "try_tls": _text("If the daemon uses TLS, connect with the `url` {url}."),
    "use_address": _text("Connect with the `url` {url}."),
    "start_daemon": _text("Run `forkd up` to start the daemon, or connect with its `socket` or `url`."),
    "trust_certificate": _text(
        "Connect with a `ca_file` that has the daemon's certificate or its authority,"
        " and with a host name of the certificate."
    ),
    "move_data_back": _text(
        "Move {from} back to {to}, shut its daemon and sandboxes down, then move it again."
    ),
}

#: Every action that this SDK has words for.
known_actions = frozenset(_wording)


def word_remedy(remedy: Optional[Mapping[str, Any]]) -> Optional[str]:
    """The remedy as a sentence; that of the sender if this version does not know the action."""
    if remedy is None:
        return None
    words = _wording.get(str(remedy.get("action")))
    if words is not None:
        try:
            return words(remedy)
        except (KeyError, TypeError, ValueError):
            pass  # A parameter is missing: the sender's own sentence is better than none.
    text = remedy.get("text")
    return text if isinstance(text, str) else None
