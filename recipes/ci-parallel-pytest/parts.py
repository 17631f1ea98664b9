"""Runs one part of a test suite with pytest in this interpreter, and in no other process."""

import importlib
import os
import sys

import pytest


class _Part:
    """Plugin of pytest: keeps every `of`-th test of the suite, and what became of each."""

    def __init__(self, index, of):
        self.index, self.of = index, of
        self.collected = 0
        self.outcomes = {}
        self.failures = {}

    def pytest_collection_modifyitems(self, config, items):
        self.collected = len(items)
        mine = items[self.index :: self.of]
        config.hook.pytest_deselected(items=[item for item in items if item not in mine])
        items[:] = mine

    def pytest_runtest_logreport(self, report):
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[report.nodeid] = report.outcome
        if report.failed:
            self.failures[report.nodeid] = report.longreprtext[-4000:]


def run(project, index=0, of=1):
    """The tests `index`, `index + of`, ... of the project, as `{"outcomes": {test: "passed"}, ...}`."""
    forget(project)
    before = os.getcwd()
    os.chdir(project)
    sys.path.insert(0, project)
    part = _Part(index, of)
    try:
        # The interpreter's own stdout stays as it is, so capture only what Python prints.
        code = pytest.main(["-q", "--capture=sys", "-p", "no:cacheprovider", project], plugins=[part])
    finally:
        sys.path.remove(project)
        os.chdir(before)
    return {
        "exit_code": int(code),
        "collected": part.collected,
        "outcomes": part.outcomes,
        "failures": part.failures,
    }


def forget(project):
    """Unloads the modules of the project, so that changed files count. What they import from elsewhere stays."""
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None) or ""
        if path.startswith(project + os.sep):
            del sys.modules[name]
    importlib.invalidate_caches()
