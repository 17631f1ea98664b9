"""The control stream of the Python kernel: what it sends to the host (docs/spec/kernel-protocol.md).

Invariants: a message is sent whole, also if an interrupt arrives meanwhile. Results belong to the eval in
progress and are sent before its value, also those of other threads.
"""
import _thread
import fcntl
import os
import struct
import time

MAX_RESULTS = 200
MAX_RESULT_BYTES = 8 << 20  # of one eval
TEXT_CUT = 16  # flags in the status of a value
JSON_CUT = 32
HAS_COUNT = 64
HAS_DROPPED = 128
SIOCOUTQ = 0x5411
VALUE = struct.Struct("<BIIBI")
RESULT = struct.Struct("<BIIBH")
FORM = struct.Struct("<BI")
U64 = struct.Struct("<Q")
U32 = struct.Struct("<I")
PID = os.getpid()
MAIN = _thread.get_ident()

control = -1
flush = None  # flushes the output of the code; set by the kernel
shielded = False  # the main thread sends a result: an interrupt sets `held_back` instead of being raised
held_back = False
_ident = None  # the eval in progress, which may have results
_results = 0
_result_bytes = 0
_dropped = 0
_sending = _thread.allocate_lock()


class ControlClosed(Exception):
    """The control stream is closed or broken."""


def send(data):
    try:
        sent = os.write(control, data)
        while sent < len(data):
            data = data[sent:]
            sent = os.write(control, data)
    except OSError as error:
        raise ControlClosed(error)


def begin(ident):
    """An eval begins."""
    global _ident, _results, _result_bytes, _dropped, held_back
    _results = _result_bytes = _dropped = 0
    held_back = False
    _ident = ident


def emit(is_main, mask, packed):
    """Sends a result of the eval in progress. Returns False if there is none."""
    global shielded, held_back
    if os.getpid() != PID:
        return True  # a process that user code forked has no results
    size = 7 + sum(5 + len(data) for _, data in packed)
    in_main = _thread.get_ident() == MAIN
    if in_main:
        flush()
        shielded = True
    try:
        with _sending:
            taken = _send_result(is_main, mask, packed, size)
    finally:
        if in_main:
            shielded = False
    if held_back and in_main:
        held_back = False
        raise KeyboardInterrupt
    if taken:
        _await_reader()
    return _ident is not None


def _send_result(is_main, mask, packed, size):
    global _results, _result_bytes, _dropped
    if _ident is None:
        return False
    if _result_bytes + size > MAX_RESULT_BYTES or _results >= MAX_RESULTS and not is_main:
        _dropped += 1
        return False
    _results += 1
    _result_bytes += size
    parts = [RESULT.pack(79, size, _ident, is_main, mask)]
    for part, data in packed:
        parts.append(FORM.pack(part, len(data)))
        parts.append(data)
    send(b"".join(parts))
    return True


def _await_reader():
    """Waits shortly until the agent has read the result, so that later output comes after it."""
    for _ in range(40):
        time.sleep(0.0005)
        if fcntl.ioctl(control, SIOCOUTQ, b"\0\0\0\0") == b"\0\0\0\0":
            return


def send_value(ident, status, shown, count):
    """Ends the eval in progress."""
    global _ident
    status |= HAS_COUNT
    text, form, whole, large = shown
    end = b""
    if whole:
        status |= TEXT_CUT
        end = U64.pack(whole)
    if large:
        status |= JSON_CUT
    end += U32.pack(count)
    with _sending:  # a thread that displays must not send its result after the value
        _ident = None
        if _dropped:
            status |= HAS_DROPPED
            end += U32.pack(_dropped)
        size = 13 + len(text) + len(form) + len(end)
        send(VALUE.pack(86, size, ident, status, len(text)) + text + U32.pack(len(form)) + form + end)


def move_control():
    """Moves descriptor 3 to a high number, so that user code gets low ones; programs do not inherit it."""
    global control
    for low in (900, 200, 60):
        try:
            fd = fcntl.fcntl(3, fcntl.F_DUPFD_CLOEXEC, low)
            os.close(3)
            control = fd
            return
        except OSError as error:
            if error.errno != 22:  # EINVAL: above the limit of descriptors
                raise
    raise OSError("cannot move the control stream: the limit of descriptors is below 60")
