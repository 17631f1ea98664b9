"""Prints values and exceptions for the Python kernel: text and JSON, as bytes within the protocol's limits.

Both functions return (text, JSON, length of the whole text if it was cut or 0, whether JSON is missing or cut
because of its size). They may call user code (__repr__, tolist, __str__) and raise its exceptions; the kernel
catches them.
"""
import json
import linecache
import os
import traceback

MAX_TEXT = 4 << 20
MAX_MESSAGE = 65536
MAX_CHAIN = 100
MAX_FRAMES = 100
MAX_LINE = 1000
_HERE = os.path.dirname(os.path.abspath(__file__))
_LIBRARY = os.path.dirname(os.path.abspath(os.__file__)) + "/"
_OWN = frozenset(os.path.join(_HERE, name) for name in os.listdir(_HERE) if name.endswith(".py"))


class _TooLarge(Exception):
    pass


def _convert(value):
    """JSON form of types that json does not support, such as numpy's arrays and scalars."""
    size = getattr(value, "size", 0)
    if type(size) is int and size > MAX_TEXT // 2:
        raise _TooLarge
    for name in ("tolist", "item"):
        method = getattr(type(value), name, None)
        if method is not None:
            return method(value)
    raise TypeError("no JSON form")


_encode = json.JSONEncoder(allow_nan=False, default=_convert).encode
_markers = {}  # of containers that are being encoded
_make_encoder = json.encoder.c_make_encoder
# What `_encode` makes for every container, made once: the first eval of a forked machine waits for it.
_encoder = _make_encoder and _make_encoder(_markers, _convert, json.encoder.encode_basestring_ascii, None, ": ", ", ",
                                           False, False, False)


def _encode_main(value):
    """As `_encode`, for one thread only: others may be in the middle of the same value."""
    if _encoder is None or type(value) is not list and type(value) is not dict:
        return _encode(value)
    try:
        return "".join(_encoder(value, 0))
    finally:
        _markers.clear()


def to_json(value):
    """The JSON form of a value as bytes, with null for numbers that JSON does not have; None if it is too large."""
    try:
        try:
            form = _encode(value)
        except ValueError:  # not a finite number, or a cycle, which fails again
            form = json.dumps(_finite(value, 0), allow_nan=False, default=_convert)
    except (_TooLarge, MemoryError, RecursionError):
        return None
    return form.encode() if len(form) <= MAX_TEXT else None


def _finite(value, depth):
    if isinstance(value, float):
        return value if value - value == 0 else None
    if depth > 100:
        raise RecursionError
    if isinstance(value, dict):
        return {key: _finite(each, depth + 1) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(each, depth + 1) for each in value]
    return value


def show(value):
    """The printed form of a value and its JSON form."""
    text = repr(value)
    kind = type(value)
    form = ""
    large = False
    if kind is int:
        form = text
    elif kind in (list, tuple, dict) and len(value) > MAX_TEXT // 2:
        large = True
    else:
        try:
            form = _encode_main(value)
        except (_TooLarge, MemoryError, RecursionError):
            large = True
        except Exception:
            pass
    if len(form) > MAX_TEXT:
        form = ""
        large = True
    text, whole = _cut(text)
    return text, form.encode(), whole, large


def _cut(text):
    """The text as bytes, and the length of all of it if it was cut."""
    data = text.encode("utf-8", "backslashreplace")
    if len(data) <= MAX_TEXT:
        return data, 0
    return data[:MAX_TEXT - 3].decode("utf-8", "ignore").encode() + "…".encode(), len(data)


def _without_own(trace):
    """Removes the kernel's frames from both ends: those that called the code, and a signal handler's."""
    while trace is not None and trace.tb_frame.f_code.co_filename in _OWN:
        trace = trace.tb_next
    last = each = trace
    while each is not None:
        if each.tb_frame.f_code.co_filename not in _OWN:
            last = each
        each = each.tb_next
    if last is not None:
        last.tb_next = None
    return trace


def explain(error):
    """Traceback text and name/value JSON, without the frames of the kernel and asyncio above the user's."""
    trace = start = error.__traceback__
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<eval-"):
        trace = trace.tb_next
    if trace is None:  # raised in the kernel's frames (SyntaxError) or by code that repr called
        trace = start
        if isinstance(error, (SyntaxError, KeyboardInterrupt)):
            trace = None
    trace = _without_own(trace)
    earlier = error
    for _ in range(MAX_CHAIN):  # a chain may have a cycle
        earlier = earlier.__context__ if earlier.__cause__ is None else earlier.__cause__
        if earlier is None:
            break
        earlier.__traceback__ = _without_own(earlier.__traceback__)
    try:  # first, because traceback would swallow an interrupt in str()
        value = str(error)
    except Exception:
        value = "<exception str() failed>"
    text, whole = _cut("".join(traceback.format_exception(type(error), error, trace)))
    description = {"name": type(error).__name__, "value": value[:MAX_MESSAGE], "frames": _frames(error, trace)}
    return text, json.dumps(description).encode(), whole, len(value) > MAX_MESSAGE


def _frames(error, trace):
    """The frames of the user's code, as data. Of many, the first and the last remain."""
    frames = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if not _is_library(code.co_filename):
            text = linecache.getline(code.co_filename, trace.tb_lineno, trace.tb_frame.f_globals)
            frames.append(_frame(code.co_filename, trace.tb_lineno, code.co_name, text))
        trace = trace.tb_next
    if isinstance(error, SyntaxError) and error.filename is not None:
        frames.append(_frame(error.filename, error.lineno, "", error.text))
    if len(frames) > MAX_FRAMES:
        half = MAX_FRAMES // 2
        frames = frames[:half] + frames[-half:]
    return frames


def _is_library(file):
    return (file in _OWN or file.startswith(("<frozen ", _LIBRARY)) or "/site-packages/" in file
            or "/dist-packages/" in file)


def _frame(file, line, function, text):
    return {"file": str(file)[:MAX_LINE], "line": line or 0, "function": str(function)[:MAX_LINE],
            "text": str(text or "").strip()[:MAX_LINE]}
