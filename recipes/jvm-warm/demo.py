#!/usr/bin/env python3
"""First requests to a warm and to a new JVM in the same guest. Needs the snapshot: forkd build jvm-warm"""

import json
import os
import pathlib
import sys
import time
from concurrent.futures import ThreadPoolExecutor

# In a checkout the SDK need not be installed.
sys.path.append(str(pathlib.Path(__file__).resolve().parents[2] / "sdks/python/src"))
from forkd import Forkd, ForkError

tag = os.environ.get("FORKD_DEMO_TAG", "jvm-warm")
forks = 3


def value(sandbox, code):
    return sandbox.eval(code, timeout=300).result_json


with Forkd() as forkd, ThreadPoolExecutor(forks) as pool:
    began = time.monotonic()
    children = forkd.fork(tag, forks, ttl=1800)
    fork_secs = time.monotonic() - began
    failed = [child for child in children if isinstance(child, ForkError)]
    assert not failed, failed
    try:
        print(f"{forks} forks of a running JVM in {fork_secs:.2f} s")
        before = value(children[0], "warm_requests")
        answers = [value(child, "ask()") for child in children]
        # Every fork continues from the same count, for itself.
        assert all(answer["requests"] == before + 1 for answer, _ in answers), (before, answers)
        warm_secs = answers[0][1]
        print(f"the service had answered {before} requests; in each fork the next one is number {before + 1}")

        new = value(children[0], "start_another()")
        assert new["answer"]["requests"] == 1, new
        assert new["answer"]["digest"] == answers[0][0]["digest"], "the two services disagree"
        assert warm_secs < new["answer_secs"] < new["total_secs"], (warm_secs, new)
        print(f"first request: {warm_secs * 1000:.0f} ms in the fork, {new['answer_secs'] * 1000:.0f} ms in a new JVM,")
        print(f"which answered {new['total_secs'] * 1000:.0f} ms after its start")

        tokens = list(pool.map(lambda child: value(child, "ask(path='/token')[0]['token']"), children))
        assert len(set(tokens)) == forks, tokens
        print("SecureRandom differs in all forks")
    finally:
        list(pool.map(lambda child: child.kill(), children))

facts = {
    "forks": forks,
    "fork_ms": round(fork_secs * 1000),
    "warm_first_ms": round(warm_secs * 1000),
    "new_first_ms": round(new["answer_secs"] * 1000),
    "new_start_and_first_ms": round(new["total_secs"] * 1000),
    "times_faster_first": round(new["answer_secs"] / warm_secs, 1),
    "times_faster_with_start": round(new["total_secs"] / warm_secs, 1),
}
print(json.dumps({"recipe": "jvm-warm", "ok": True, "facts": facts}))
