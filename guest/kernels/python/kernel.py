"""Python kernel of forkd: evaluates code for the host over descriptor 3 (docs/spec/kernel-protocol.md).

Invariants:
- Only the original process replies. A child that user code creates with os.fork() exits when its eval ends.
- No exception of user code stops the kernel. KeyboardInterrupt is raised only below `_guard`, never in a
  frame that handles the protocol.
- The generators are re-seeded as soon as RESEED arrives, also during an eval, without an effect on its code.
- After the reply `A` to `R`, the generators of the standard library, numpy (the global one) and OpenSSL no
  longer share state with the siblings of the fork. If a step fails, the reply is `Z`.
- After a fork, code is slow when it runs for the first time, so the path from message to reply is short: one
  blocking read, one compile, one write. asyncio and traceback run only for code that needs them.
"""
import _signal
import atexit
import gc
import io
import json
import linecache
import os
import struct
import sys

import forkd
import forkd_charts  # noqa: F401: modules of the kernel cannot be imported once sys.path is that of the user
import forkd_display
import forkd_ipython
import forkd_libraries
import forkd_magic  # noqa: F401
import forkd_rehearsal
import forkd_run
import forkd_wire
from forkd_values import explain, show

RESEED = 41  # the signal that the agent sends
MAX_MESSAGE = 16 << 20
HEADER = struct.Struct("<BI")
ANSWER = struct.Struct("<BII")
U32 = struct.Struct("<I")
U16 = struct.Struct("<H")
PID = os.getpid()
REHEARSALS = 20


class _Refused(Exception):
    """A message that cannot be done; its text goes to the host as it is."""


_count = 0
_seeded = False
_armed = False
_missed = False
_seeding = False
_late = False
_rehearsal = b"[str(1.5)]"  # of a child that waits; recipes can give their own


def _on_sigint(_signum, frame):
    # Between evals, interrupts are ignored. During one, they are not raised in `_guard` and the frames above
    # it: an interrupt that arrives at the end of the eval must not stop the kernel.
    global _missed, _late
    if _armed:
        if forkd_wire.shielded:
            forkd_wire.held_back = True
        elif _seeding or frame is not None and frame.f_code is _RESEED_CODE:
            _late = True
        elif frame is not None and frame.f_code is not _GUARD_CODE:
            raise KeyboardInterrupt
        else:
            _missed = True


def _on_reseed(_signum, frame):
    global _seeding, _late
    nested = _seeding
    _seeding = True
    try:
        forkd._reseed()
    except BaseException:
        pass  # the running code must not see this; `R` tries again and reports the error
    if nested:
        return
    _seeding = False
    if _late:  # an interrupt arrived during the re-seeding
        _late = False
        _on_sigint(2, frame)


_RESEED_CODE = _on_reseed.__code__


def _guard(function, *args):
    """Calls a function that may be interrupted. Returns (result, None) or (None, exception)."""
    global _armed, _missed
    _missed = False
    try:
        _armed = True
        result = function(*args)
        _armed = False
        return result, None
    except BaseException as error:
        _armed = False
        return None, error


_GUARD_CODE = _guard.__code__


def _show_figures(*_args, **_named):
    """Shows the open figures of pyplot and closes them."""
    for figure in forkd_libraries.take_figures():
        forkd_display.display(figure)


def _evaluate(context, name, source):
    """Runs the code. Returns text and JSON of its value, or None."""
    if _missed:  # an interrupt arrived just before this call
        raise KeyboardInterrupt
    if forkd_run.current is not context:
        forkd_run.enter(context)
    forkd_run.remember(name, source, _count)
    value = forkd_run.run(context, name, source)
    shown = None
    if value is not None:
        context.space["_"] = value
        shown = show(value)
        has_figures = "matplotlib" in sys.modules and forkd_libraries.has_figures()
        if has_figures or type(value) not in forkd_display.PLAIN:
            forkd_display.show_main(value, shown[0].decode(), has_figures)
    if "matplotlib" in sys.modules:
        _show_figures()
    return shown


def _set_env(variables):
    """Sets variables of the environment. Returns what restores those before."""
    before = {}
    for name, value in variables.items():
        before[name] = os.environb.get(name)
        os.environb[name] = value
    return before


def _restore_env(before):
    for name, value in before.items():
        if value is not None:
            os.environb[name] = value
        else:
            os.environb.pop(name, None)


def _install_handlers():
    """Installs the handlers, at the start and after code that has replaced them."""
    for number, handler in ((2, _on_sigint), (RESEED, _on_reseed)):
        if _signal.getsignal(number) is not handler:
            _signal.signal(number, handler)


def _open_output(fd):
    return io.TextIOWrapper(io.BufferedWriter(io.FileIO(fd, "w", closefd=False)), "utf-8", "backslashreplace",
                            None, True)


def _flush():
    """Flushes the streams, and reopens those that user code closed."""
    for name, fd in (("stdout", 1), ("stderr", 2)):
        stream = getattr(sys, name, None)
        own = _own[fd]
        if own.closed:
            own = _own[fd] = _open_output(fd)
            setattr(sys, "__%s__" % name, own)
            if stream is None or getattr(stream, "closed", False):
                setattr(sys, name, own)
        elif stream is not own and stream is not None:
            try:
                stream.flush()
            except Exception:
                pass
        own.flush()


def _exit_child(error):
    """Exits from a process that user code forked: it must not reply to the host."""
    status = 0
    try:
        if isinstance(error, SystemExit):
            code = error.code
            status = 0 if code is None else code & 255 if isinstance(code, int) else 1
        elif error is not None:
            status = 1
            os.write(2, explain(error)[0])
        _flush()
    finally:
        os._exit(status)


def _variables(block):
    variables = {}
    for entry in block.split(b"\0"):
        if entry:
            name, equals, value = entry.partition(b"=")
            if not equals:
                raise ValueError("an environment entry has no =")
            variables[name] = value
    return variables


def _serve_eval(kind, ident, payload):
    global _count
    name, end = _name(payload, 4)
    variables = None
    if kind == 88:  # X
        start = end + 4
        end = start + U32.unpack_from(payload, end)[0]
        if end > len(payload):
            raise ValueError("the environment exceeds the message")
        variables = _variables(payload[start:end])
    source = payload[end:].decode()
    context = forkd_run.context_named(name)
    if context.env:
        variables = {**context.env, **(variables or {})}
    _count += 1
    context.count += 1
    before = _set_env(variables) if variables else None
    forkd_wire.begin(ident)
    shown, error = _guard(_evaluate, context, "<eval-%d>" % _count, source)
    if os.getpid() != PID:
        _exit_child(error)
    if error is not None and not isinstance(error, KeyboardInterrupt) and "matplotlib" in sys.modules:
        _guard(_show_figures)
    _, failure = _guard(_flush)
    _install_handlers()
    if before:
        _restore_env(before)
    if error is None:
        error = failure if isinstance(failure, KeyboardInterrupt) else None
    if error is not None:
        status = 3 if isinstance(error, KeyboardInterrupt) else 2
        shown, failure = _guard(explain, error)
        if failure is not None:  # for example an interrupted __str__
            kind = type(error).__name__
            shown = kind.encode(), json.dumps({"name": kind, "value": ""}).encode(), 0, False
        error = failure = None
    elif shown is None:
        status, shown = 1, (b"", b"", 0, False)
    else:
        status = 0
    forkd_wire.send_value(ident, status, shown, context.count)


def _name(payload, at):
    """A name in a message, and where it ends."""
    end = at + 2 + U16.unpack_from(payload, at)[0]
    if end > len(payload):
        raise ValueError("the name exceeds the message")
    return payload[at + 2:end].decode(), end


def _new_context(payload):
    name, end = _name(payload, 5)
    cwd, end = _name(payload, end)
    context = forkd_run.contexts.get(name)
    if context is not None and not payload[4] & 1:
        raise _Refused("exists: there is a context of that name")
    if cwd and not os.path.isdir(cwd):
        raise _Refused("cwd: %s is not a directory" % cwd)
    if context is not None:
        forkd_run.forget(context)
        context.restart()
    else:
        context = forkd_run.contexts[name] = forkd_run.Context(name, cwd or None, _variables(payload[end:]))
    return os.fsencode(forkd_run.cwd_of(context))


def _drop_context(payload):
    name, _ = _name(payload, 4)
    if name == "default":
        raise ValueError("the default context cannot be dropped")
    context = forkd_run.contexts.pop(name, None)
    if context is not None:
        forkd_run.forget(context)
        sys.modules.pop(context.module.__name__, None)


def _list_contexts():
    return b"".join(name.encode() + b"\0" + os.fsencode(forkd_run.cwd_of(context)) + b"\0"
                    for name, context in forkd_run.contexts.items())


def _set_variables(block):
    for name, value in _variables(block).items():
        os.environb[name] = value


def _after_fork(payload):
    global _seeded
    end = 6 + U16.unpack_from(payload, 4)[0]
    if end > len(payload):
        raise ValueError("the entropy exceeds the message")
    _set_variables(payload[end:])
    forkd._run(payload[6:end])
    _seeded = True


def _rehearse(rounds, *sources):
    """Serves messages as after a fork, and counts no eval (forkd_rehearsal.py)."""
    global _count
    count = _count
    try:
        forkd_rehearsal.run(_loop_forever, rounds, sources)
    finally:
        for each in range(count, _count):
            linecache.cache.pop("<eval-%d>" % (each + 1), None)
        _count = count


def _keep_warm(payload):
    global _rehearsal
    forkd_run.keep_warm()
    _rehearsal = payload[4:] or _rehearsal
    if _seeded:
        _rehearse(REHEARSALS)
        gc.collect()  # not in the children


def _serve(kind, payload):
    ident = U32.unpack_from(payload)[0]
    try:
        if kind == 69 or kind == 88:  # E, X
            _serve_eval(kind, ident, payload)
            return
        answer = b""
        if kind == 82:  # R
            _after_fork(payload)
            if forkd._callbacks:
                _flush()
        elif kind == 67:  # C
            answer = _list_contexts()
        elif kind == 78:  # N
            answer = _new_context(payload)
        elif kind == 87:  # W
            _keep_warm(payload)
        elif kind == 80:  # P
            _set_variables(payload[4:])
            _rehearse(1, _rehearsal)
            answer = b"\1" if forkd._callbacks else b"\0"
        elif kind == 68:  # D
            _drop_context(payload)
        else:
            raise ValueError("unknown message")
    except forkd_wire.ControlClosed:
        raise
    except BaseException as error:
        if os.getpid() != PID:
            _exit_child(error)
        text = str(error) if isinstance(error, _Refused) else "%s: %s" % (type(error).__name__, error)
        kind, answer = 90, text.encode("utf-8", "backslashreplace")[:65536]
    else:
        kind = 65
    forkd_wire.send(ANSWER.pack(kind, 4 + len(answer), ident) + answer)


def _loop_forever():
    data = b""
    need = 5
    while True:
        while len(data) < need:
            more = os.read(forkd_wire.control, max(65536, need - len(data)))
            if not more:
                return
            data = data + more if data else more
        kind, length = HEADER.unpack_from(data)
        if length > MAX_MESSAGE or length < 4:
            raise forkd_wire.ControlClosed("cannot accept a message of %d bytes" % length)
        need = 5 + length
        if len(data) >= need:
            payload, data, need = data[5:need], data[need:], 5
            _serve(kind, payload)


if __name__ == "__main__":
    forkd_wire.move_control()
    forkd_wire.flush = _flush
    _own = {1: _open_output(1), 2: _open_output(2)}
    sys.stdout = sys.__stdout__ = _own[1]
    sys.stderr = sys.__stderr__ = _own[2]
    sys.argv = [""]
    sys.path[0] = ""  # the working directory, as in an interactive interpreter
    _kernel = sys.modules["__main__"]  # keep a reference: the default context replaces it
    forkd_run.contexts["default"] = forkd_run.Context("default")
    forkd_run.current = forkd_run.contexts["default"]
    forkd_display.emit = forkd_wire.emit
    sys.meta_path.insert(0, forkd_libraries.Hook(_show_figures, forkd_display.display))
    forkd_ipython.install()
    _install_handlers()
    try:
        _greeting = b"python " + sys.version.split()[0].encode() + b"; protocol=4"
        forkd_wire.send(HEADER.pack(89, len(_greeting)) + _greeting)
        _loop_forever()
    except forkd_wire.ControlClosed as error:
        os.write(2, b"forkd kernel: %s\n" % str(error).encode())
    # Not sys.exit, which would wait for threads of user code.
    atexit._run_exitfuncs()
    _guard(_flush)
    os._exit(0)
