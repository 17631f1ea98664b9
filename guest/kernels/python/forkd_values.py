"""Prints values and exceptions for the Python kernel: text and JSON, as bytes within the protocol's limits.

Both functions may call user code (__repr__, tolist, __str__) and raise its exceptions; the kernel catches them.
"""
import json
import os
import traceback

MAX_TEXT = 4 << 20
_HERE = os.path.dirname(os.path.abspath(__file__))
_OWN = (os.path.join(_HERE, "kernel.py"), os.path.abspath(__file__))


def _convert(value):
    """JSON form of types that json does not support, such as numpy's arrays and scalars."""
    size = getattr(value, "size", 0)
    if type(size) is int and size > MAX_TEXT // 2:
        raise ValueError("too long")
    for name in ("tolist", "item"):
        method = getattr(type(value), name, None)
        if method is not None:
            return method(value)
    raise TypeError("no JSON form")


_encode = json.JSONEncoder(allow_nan=False, default=_convert).encode


def show(value):
    """The printed form of a value and its JSON form, as bytes."""
    text = repr(value)
    kind = type(value)
    if kind is int:
        form = text
    elif kind in (list, tuple, dict) and len(value) > MAX_TEXT // 2:
        form = ""
    else:
        try:
            form = _encode(value)
        except Exception:
            form = ""
    return _cut(text), form.encode() if len(form) <= MAX_TEXT else b""


def _cut(text):
    data = text.encode("utf-8", "backslashreplace")
    if len(data) > MAX_TEXT:
        data = data[:MAX_TEXT - 3].decode("utf-8", "ignore").encode() + "…".encode()
    return data


def explain(error):
    """Traceback text and name/value JSON, without the frames of the kernel and asyncio above the user's."""
    trace = start = error.__traceback__
    while trace is not None and not trace.tb_frame.f_code.co_filename.startswith("<eval-"):
        trace = trace.tb_next
    if trace is None:  # raised in the kernel's frames (SyntaxError) or by code that repr called
        trace = start
        while trace is not None and trace.tb_frame.f_code.co_filename in _OWN:
            trace = trace.tb_next
        if isinstance(error, (SyntaxError, KeyboardInterrupt)):
            trace = None
    try:  # first, because traceback would swallow an interrupt in str()
        value = str(error)
    except Exception:
        value = "<exception str() failed>"
    text = "".join(traceback.format_exception(type(error), error, trace))
    return _cut(text), json.dumps({"name": type(error).__name__, "value": value[:65536]}).encode()
