"""Runs pytest without starting Python: a process forked from the warm interpreter has pytest imported.

The forked process sees the files as they are now and leaves nothing in the interpreter.
"""

import contextlib
import io
import os
import sys
import traceback
from typing import List, Tuple

import _pytest.assertion.rewrite  # noqa: F401
import pytest


def run(directory: str, arguments: Tuple[str, ...] = ()) -> str:
    """Runs the tests of a directory. Returns what pytest prints, and its exit code as the last line."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        status = 99
        try:
            status = _tests(directory, list(arguments), writer)
        except BaseException:
            os.write(writer, traceback.format_exc().encode())
        finally:
            os._exit(status)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        output = pipe.read().decode("utf-8", "replace")
    _, status = os.waitpid(child, 0)
    return f"{output.rstrip()}\nexit code {os.waitstatus_to_exitcode(status)}"


def _tests(directory: str, arguments: List[str], writer: int) -> int:
    os.chdir(directory)
    sys.path.insert(0, directory)
    sys.dont_write_bytecode = True
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        status = int(pytest.main(["-q", "-p", "no:cacheprovider", "--capture=no", *arguments]))
    text = printed.getvalue().encode()
    while text:
        text = text[os.write(writer, text) :]
    return status
