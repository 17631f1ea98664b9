#!/usr/bin/env python3
"""Runs a test suite in parts, one fork per part. Needs the snapshot: forkd build ci-parallel-pytest"""

import json
import os
import pathlib
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor

# In a checkout the SDK need not be installed.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "sdks/python/src"))
from forkd import Forkd, ForkError

tag = os.environ.get("FORKD_DEMO_TAG", "ci-parallel-pytest")
project = "/srv/project"
# A part per core of the host; with fewer, forks wait for each other.
parts = max(2, min(8, os.cpu_count() or 2))


def timed(work):
    began = time.monotonic()
    result = work()
    return result, time.monotonic() - began


def run_part(sandbox, index, of):
    ran = sandbox.eval(f"parts.run({project!r}, {index}, {of})", timeout=600)
    return ran.result_json


def in_one_fresh_process(forkd):
    """What a CI job without warm imports does: pytest starts, imports, and runs all tests."""
    with forkd.create(tag, ttl=1800) as sandbox:
        command = ["python3", "-m", "pytest", "-q", "-p", "no:cacheprovider", project]
        return sandbox.commands.run(command, cwd=project, check=True, timeout=900).stdout


def in_forks(forkd, pool, change=None):
    """The suite in `parts` forks. `change` does to each what a checkout of a commit does: it replaces files."""
    children = forkd.fork(tag, parts, ttl=1800)
    failed = [child for child in children if isinstance(child, ForkError)]
    assert not failed, failed

    def work(index):
        if change:
            children[index].files.write(*change)
        return run_part(children[index], index, parts)

    try:
        return list(pool.map(work, range(parts)))
    finally:
        list(pool.map(lambda child: child.kill(), children))


with Forkd() as forkd, ThreadPoolExecutor(parts) as pool:
    output, fresh_secs = timed(lambda: in_one_fresh_process(forkd))
    total = int(re.search(r"(\d+) passed", output).group(1))
    print(f"one sandbox, a new pytest: {total} tests passed in {fresh_secs:.1f} s")

    reports, forks_secs = timed(lambda: in_forks(forkd, pool))
    outcomes = [name for report in reports for name in report["outcomes"]]
    assert all(report["collected"] == total for report in reports), reports
    assert len(outcomes) == len(set(outcomes)) == total, "a test ran twice or not at all"
    assert all(state == "passed" for report in reports for state in report["outcomes"].values()), reports
    print(f"{parts} forks of the warm pytest: the same {total} tests passed in {forks_secs:.1f} s, forks included")
    assert forks_secs < fresh_secs, (forks_secs, fresh_secs)

    # A commit with a mistake: the forks have the imports in memory, but see the new code.
    path = f"{project}/shop/prices.py"
    source = (pathlib.Path(__file__).parent / "project/shop/prices.py").read_text()
    broken = source.replace("(100 - percent)", "(100 + percent)")
    assert broken != source
    reports = in_forks(forkd, pool, (path, broken))
    failed = sorted(name for report in reports for name, state in report["outcomes"].items() if state == "failed")
    expected = [f"tests/test_prices.py::test_a_discount_lowers_the_price[{case}]" for case in ("100-0.0", "25-60.0", "50-40.0")]
    assert failed == expected, failed
    print(f"with a mistake in the project, {len(failed)} of {total} tests fail, as they should")

facts = {
    "tests": total,
    "forks": parts,
    "fresh_ms": round(fresh_secs * 1000),
    "forks_ms": round(forks_secs * 1000),
    "times_faster": round(fresh_secs / forks_secs, 1),
}
print(json.dumps({"recipe": "ci-parallel-pytest", "ok": True, "facts": facts}))
