#!/usr/bin/env python3
"""Ten forks estimate pi, each with its own seed. Needs the snapshot: forkd build python-numpy"""

import json
import os
import pathlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor

# In a checkout the SDK need not be installed.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "sdks/python/src"))
from forkd import Forkd, ForkError

tag = os.environ.get("FORKD_DEMO_TAG", "python-numpy")
forks = 10
estimate = """
import json
seed = json.load(open("/run/forkd/values.json"))["seed"]
points = numpy.random.default_rng(seed).random((200_000, 2))
float(4 * numpy.mean((points ** 2).sum(axis=1) <= 1))
"""


def value(sandbox, code):
    return sandbox.eval(code, timeout=120).result_json


def timed(work):
    began = time.monotonic()
    result = work()
    return result, time.monotonic() - began


with Forkd() as forkd, ThreadPoolExecutor(forks) as pool:
    children, fork_secs = timed(
        lambda: forkd.fork(tag, forks, ttl=600, vary=[{"values": {"seed": seed}} for seed in range(forks)])
    )
    failed = [child for child in children if isinstance(child, ForkError)]
    assert not failed, failed
    try:
        print(f"{forks} forks in {fork_secs:.2f} s")
        # In the fork: the same work in the warm interpreter, and in one that has to import NumPy first.
        first = children[0]
        assert value(first, "'numpy' in globals()"), "the warm interpreter has not imported NumPy"
        _, warm_secs = timed(lambda: first.eval("numpy.arange(4).sum()"))
        cold = ["python3", "-c", "import numpy; print(numpy.arange(4).sum())"]
        _, cold_secs = timed(lambda: first.commands.run(cold, check=True, timeout=120))
        assert warm_secs < cold_secs, (warm_secs, cold_secs)
        print(f"first sum: {warm_secs * 1000:.0f} ms warm, {cold_secs * 1000:.0f} ms in a new interpreter")

        estimates = list(pool.map(lambda child: value(child, estimate), children))
        assert len(set(estimates)) == forks, estimates
        mean = sum(estimates) / forks
        assert abs(mean - 3.14159) < 0.01, estimates
        print(f"pi is about {mean:.4f}; the forks found {min(estimates):.4f} to {max(estimates):.4f}")

        # Nobody seeds NumPy's global generator here: forkd has, in each fork.
        drawn = list(pool.map(lambda child: value(child, "float(numpy.random.random())"), children))
        assert len(set(drawn)) == forks, drawn
        print("numpy.random.random() differs in all forks")
    finally:
        list(pool.map(lambda child: child.kill(), children))

facts = {
    "forks": forks,
    "fork_ms": round(fork_secs * 1000),
    "warm_ms": round(warm_secs * 1000),
    "cold_ms": round(cold_secs * 1000),
    "times_faster": round(cold_secs / warm_secs, 1),
    "pi": round(mean, 4),
}
print(json.dumps({"recipe": "python-numpy", "ok": True, "facts": facts}))
