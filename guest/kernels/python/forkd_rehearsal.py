"""Serves messages to itself, so that the first ones of a child are fast.

In the parent often enough that the interpreter has specialised the code for them: a child does not do that again,
which would be slow, and would write to pages that it shares with others. In a child that waits to be handed out
once: under emulation the code is then translated.

The messages go through the loop of the kernel, in a context that is removed, and leave nothing behind: no callback
runs and no name is bound. The generators were re-seeded before it, or are re-seeded after it, so that another seed
changes nothing.
"""
import _socket
import os
import struct
import sys

import forkd
import forkd_run
import forkd_wire

CONTEXT = b"forkd-rehearsal"
HEAD = struct.Struct("<BII")
U16 = struct.Struct("<H")


def _message(kind, ident, payload):
    return HEAD.pack(kind, 4 + len(payload), ident) + payload


def run(serve_all, rounds, sources):
    """Never fails: only the speed of the children depends on it. `serve_all` serves until the stream ends."""
    kept = forkd_wire.control, forkd._callbacks, forkd_run.current
    try:
        cwd = os.getcwd()
    except OSError:
        return  # it was removed, and could not be entered again
    had_path = b"PATH" in os.environb
    ours, theirs = _socket.socketpair()
    # Nothing reads the answers: one that does not fit ends the rehearsal instead of blocking it.
    ours.setblocking(False)
    theirs.setblocking(False)
    try:
        forkd._callbacks = []
        forkd_wire.control = ours.fileno()
        path = b"PATH=" + os.environb.get(b"PATH", b"/bin")
        name = U16.pack(len(CONTEXT)) + CONTEXT
        for ident in range(rounds):
            theirs.sendall(_message(82, ident, U16.pack(64) + os.urandom(64) + path))
            for source in (b"[0.5, 1]", b"x = 1\nx", *sources):
                theirs.sendall(_message(69, ident, name + source))
        theirs.shutdown(_socket.SHUT_WR)
        serve_all()
    except Exception:
        pass
    finally:
        forkd_wire.control, forkd._callbacks, forkd_run.current = kept
        if not had_path:
            os.environb.pop(b"PATH", None)
        ours.close()
        theirs.close()
        context = forkd_run.contexts.pop(CONTEXT.decode(), None)
        if context is not None:
            sys.modules.pop(context.module.__name__, None)
        try:
            os.chdir(cwd)
        except OSError:
            pass
