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
import __future__
import _signal
import ast
import atexit
import builtins
import fcntl
import io
import json
import linecache
import os
import struct
import sys
import types

import forkd
from forkd_values import explain, show

RESEED = 41  # the signal that the agent sends
MAX_MESSAGE = 16 << 20
KEPT_SOURCES = 1000
TEXT_CUT = 16  # flags in the status of a value
JSON_CUT = 32
HEADER = struct.Struct("<BI")
ANSWER = struct.Struct("<BII")
VALUE = struct.Struct("<BIIBI")
U64 = struct.Struct("<Q")
U32 = struct.Struct("<I")
U16 = struct.Struct("<H")
AWAIT = ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
FUTURE = 0
for _name in __future__.all_feature_names:
    FUTURE |= getattr(__future__, _name).compiler_flag
FUTURE &= ~0x10  # nested_scopes shares its bit with CO_NESTED
CO_COROUTINE = 0x80
PID = os.getpid()


class Context:
    """A namespace that is a real module, so that pickle and dataclasses find its definitions."""

    def __init__(self, name):
        if name == "default":
            module = "__main__"
        elif name.isidentifier():
            module = "context_" + name
        else:  # a dot would make the import system look for a package
            module = "context-" + name.encode().hex()
        self.module = types.ModuleType(module)
        self.space = self.module.__dict__
        self.space["__builtins__"] = builtins
        self.flags = AWAIT  # plus the __future__ features enabled so far
        sys.modules[module] = self.module


_contexts = {}
_count = 0
_loop = None
_armed = False
_missed = False
_seeding = False
_late = False


def _on_sigint(_signum, frame):
    # Between evals, interrupts are ignored. During one, they are not raised in `_guard` and the frames above
    # it: an interrupt that arrives at the end of the eval must not stop the kernel.
    global _missed, _late
    if _armed:
        if _seeding or frame is not None and frame.f_code is _RESEED_CODE:
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


async def _chain(codes, space):
    value = None
    for code in codes:
        value = eval(code, space)
        if code.co_flags & CO_COROUTINE:
            value = await value
    return value


def _await(codes, space):
    """Runs code that awaits. The loop and its tasks persist; the tasks continue whenever an eval awaits."""
    global _loop
    import asyncio
    if _loop is None or _loop.is_closed():
        _loop = asyncio.new_event_loop()
    asyncio.set_event_loop(_loop)
    task = _loop.create_task(_chain(codes, space))
    try:
        return _loop.run_until_complete(task)
    except KeyboardInterrupt:
        if not task.done():
            task.cancel()
            # With a timeout: the interrupt may have hit the loop just before it ran the task.
            _loop.run_until_complete(asyncio.wait([task], timeout=1))
        raise


def _compile(source, name, context):
    """Code objects to run in order; the last one gives the value."""
    flags = context.flags
    if "\n" not in source:
        try:  # mostly an expression, which compiles without an AST of Python objects
            return (compile(source, name, "eval", flags, True),)
        except SyntaxError:
            pass
    tree = compile(source, name, "exec", flags | ast.PyCF_ONLY_AST, True)
    body = tree.body
    last = body.pop() if body and type(body[-1]) is ast.Expr else None
    first = compile(tree, name, "exec", flags, True)
    context.flags = flags = flags | first.co_flags & FUTURE
    if last is None:
        return (first,)
    last = compile(ast.Expression(last.value), name, "eval", flags, True)
    return (first, last) if body else (last,)


def _remember(name, source):
    # Tracebacks, inspect.getsource and pdb read this. Lines end where the compiler ends them, not as in
    # splitlines.
    lines = io.StringIO(source, None).readlines() if "\n" in source or "\r" in source else [source + "\n"]
    linecache.cache[name] = (len(source), None, lines, name)
    if _count > KEPT_SOURCES:
        linecache.cache.pop("<eval-%d>" % (_count - KEPT_SOURCES), None)


def _evaluate(context, name, source):
    """Runs the code. Returns text and JSON of its value, or None."""
    if _missed:  # an interrupt arrived just before this call
        raise KeyboardInterrupt
    space = context.space
    _remember(name, source)
    codes = _compile(source, name, context)
    value = None
    for code in codes:
        if code.co_flags & CO_COROUTINE:
            value = _await(codes, space)
            break
    else:
        for code in codes:
            value = eval(code, space)
    if value is None:
        return None
    space["_"] = value
    return show(value)


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


def _serve_eval(ident, payload):
    global _count
    end = 6 + U16.unpack_from(payload, 4)[0]
    if end > len(payload):
        raise ValueError("the context name exceeds the message")
    name = payload[6:end].decode()
    source = payload[end:].decode()
    context = _contexts.get(name)
    if context is None:
        context = _contexts[name] = Context(name)
    _count += 1
    shown, error = _guard(_evaluate, context, "<eval-%d>" % _count, source)
    if os.getpid() != PID:
        _exit_child(error)
    _, failure = _guard(_flush)
    _install_handlers()
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
    text, form, whole, large = shown
    end = b""
    if whole:
        status |= TEXT_CUT
        end = U64.pack(whole)
    if large:
        status |= JSON_CUT
    size = 13 + len(text) + len(form) + len(end)
    _send(VALUE.pack(86, size, ident, status, len(text)) + text + U32.pack(len(form)) + form + end)


def _after_fork(payload):
    end = 6 + U16.unpack_from(payload, 4)[0]
    if end > len(payload):
        raise ValueError("the entropy exceeds the message")
    for entry in payload[end:].split(b"\0"):
        if entry:
            key, equals, value = entry.partition(b"=")
            if not equals:
                raise ValueError("an environment entry has no =")
            os.environb[key] = value
    forkd._run(payload[6:end])


def _serve(kind, payload):
    ident = U32.unpack_from(payload)[0]
    try:
        if kind == 69:  # E
            _serve_eval(ident, payload)
            return
        answer = b""
        if kind == 82:  # R
            _after_fork(payload)
            if forkd._callbacks:
                _flush()
        elif kind == 67:  # C
            answer = b"".join(name.encode() + b"\0" for name in _contexts)
        elif kind == 68:  # D
            name = payload[6:6 + U16.unpack_from(payload, 4)[0]].decode()
            if name == "default":
                raise ValueError("the default context cannot be dropped")
            context = _contexts.pop(name, None)
            if context is not None:
                sys.modules.pop(context.module.__name__, None)
        else:
            raise ValueError("unknown message")
    except _ControlClosed:
        raise
    except BaseException as error:
        if os.getpid() != PID:
            _exit_child(error)
        text = "%s: %s" % (type(error).__name__, error)
        kind, answer = 90, text.encode("utf-8", "backslashreplace")[:65536]
    else:
        kind = 65
    _send(ANSWER.pack(kind, 4 + len(answer), ident) + answer)


class _ControlClosed(Exception):
    """The control stream is closed or broken."""


def _send(data):
    try:
        sent = os.write(_control, data)
        while sent < len(data):
            data = data[sent:]
            sent = os.write(_control, data)
    except OSError as error:
        raise _ControlClosed(error)


def _loop_forever():
    data = b""
    need = 5
    while True:
        while len(data) < need:
            more = os.read(_control, max(65536, need - len(data)))
            if not more:
                return
            data = data + more if data else more
        kind, length = HEADER.unpack_from(data)
        if length > MAX_MESSAGE or length < 4:
            raise _ControlClosed("cannot accept a message of %d bytes" % length)
        need = 5 + length
        if len(data) >= need:
            payload, data, need = data[5:need], data[need:], 5
            _serve(kind, payload)


def _move_control():
    """Moves descriptor 3 to a high number, so that user code gets low ones; programs do not inherit it."""
    for low in (900, 200, 60):
        try:
            fd = fcntl.fcntl(3, fcntl.F_DUPFD_CLOEXEC, low)
            os.close(3)
            return fd
        except OSError as error:
            if error.errno != 22:  # EINVAL: above the limit of descriptors
                raise
    raise OSError("cannot move the control stream: the limit of descriptors is below 60")


if __name__ == "__main__":
    _control = _move_control()
    _own = {1: _open_output(1), 2: _open_output(2)}
    sys.stdout = sys.__stdout__ = _own[1]
    sys.stderr = sys.__stderr__ = _own[2]
    sys.argv = [""]
    sys.path[0] = ""  # the working directory, as in an interactive interpreter
    _kernel = sys.modules["__main__"]  # keep a reference: the default context replaces it
    _contexts["default"] = Context("default")
    _install_handlers()
    try:
        _greeting = b"python " + sys.version.split()[0].encode()
        _send(HEADER.pack(89, len(_greeting)) + _greeting)
        _loop_forever()
    except _ControlClosed as error:
        os.write(2, b"forkd kernel: %s\n" % str(error).encode())
    # Not sys.exit, which would wait for threads of user code.
    atexit._run_exitfuncs()
    _guard(_flush)
    os._exit(0)
