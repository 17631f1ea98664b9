"""Runs the cases of both flavours: `cases_*.py` are for asyncio, and make-sync.py turns them into blocking ones."""

from __future__ import annotations

import importlib.util
import os
import pathlib
import sys
import types
import unittest
from typing import Any

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here))


def _make_sync() -> Any:
    spec = importlib.util.spec_from_file_location("make_sync", here.parent / "tools" / "make-sync.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _cases(name: str, source: str) -> types.ModuleType:
    module = types.ModuleType(name)
    module.__file__ = name
    sys.modules[name] = module
    exec(compile(source, name, "exec"), module.__dict__)
    return module


def load_tests(loader: unittest.TestLoader, tests: unittest.TestSuite, pattern: Any) -> unittest.TestSuite:
    make_sync = _make_sync()
    suite = unittest.TestSuite()
    for path in sorted(here.glob(os.environ.get("FORKD_TEST_CASES", "cases_*.py"))):
        source = path.read_text()
        suite.addTests(loader.loadTestsFromModule(_cases(f"async_{path.stem}", source)))
        blocking = make_sync.blocking(path.name, source)
        blocking = blocking.replace("asyncio.sleep(", "time.sleep(").replace("asyncio.to_thread(", "(lambda work, *given: work(*given))(")
        blocking = blocking.replace("IsolatedAsyncioTestCase", "TestCase").replace("asyncSetUp", "setUp").replace("asyncTearDown", "tearDown")
        suite.addTests(loader.loadTestsFromModule(_cases(f"blocking_{path.stem}", blocking)))
    return suite


if __name__ == "__main__":
    unittest.main()
