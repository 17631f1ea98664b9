"""Every agent of a crew gets its own sandbox, forked from one snapshot, with its own part of the work."""

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from typing import List, Sequence, Tuple

from forkd_agents import Call, ScriptedModel, Session, Step, Toolbox, framework, report, run_loop, version_of

AGENTS = 3
LIMIT = 30_000
# The same program for every agent; `vary` gives each its own range. All write the same path, each its own file.
COUNT = """
import json, pathlib
low, high = json.load(open("/run/forkd/values.json"))
sieve = numpy.ones(high, dtype=bool)
sieve[:2] = False
for n in range(2, int(high ** 0.5) + 1):
    sieve[n * n :: n] = False
found = int(sieve[low:].sum())
pathlib.Path("/srv/found").write_text(str(found))
found
"""


def run_plain(
    toolboxes: Sequence[Toolbox], scripts: Sequence[ScriptedModel], prompts: Sequence[str]
) -> Tuple[List[str], str]:
    """The same as the adapter's run_crew(), without CrewAI."""
    with ThreadPoolExecutor() as threads:
        answers = list(threads.map(lambda toolbox, script: run_loop(script, toolbox.call), toolboxes, scripts))
    return answers, str(sum(int(answer) for answer in answers))


def main() -> None:
    """Counts primes with three agents, adds, and compares with the known number."""
    if version_of("crewai") is not None:
        # CrewAI sends telemetry and writes into the home directory unless these variables say otherwise.
        os.environ.update(CREWAI_DISABLE_TELEMETRY="true", OTEL_SDK_DISABLED="true", CREWAI_TRACING_ENABLED="false")
        for name in ["CREWAI_STORAGE_DIR", "HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"]:
            os.environ[name] = os.getcwd()
        logging.disable(logging.WARNING)  # it counts tokens, which a script does not have
        from adapter import run_crew
    else:
        run_crew = run_plain
    edges = [LIMIT * part // AGENTS for part in range(AGENTS + 1)]
    ranges = list(zip(edges, edges[1:]))
    with Session("crewai-fanout") as session:
        sandboxes = session.fork(AGENTS, vary=[{"values": each} for each in ranges])
        print(f"forked {len(sandboxes)} sandboxes, one per agent")
        script: List[Step] = [Call("run_code", {"code": COUNT}), lambda answers: answers[-1]]
        prompts = [f"Count the primes from {low} to {high - 1}." for low, high in ranges]
        toolboxes = [Toolbox(session, sandbox) for sandbox in sandboxes]
        answers, total = run_crew(toolboxes, [ScriptedModel(script) for _ in sandboxes], prompts)
        files = [sandbox.files.read_text("/srv/found") for sandbox in sandboxes]
        for prompt, answer in zip(prompts, answers):
            print(f"  {prompt} {answer}")
        print(f"together {total}")
        ok = total == "3245" and files == answers
        report("crewai-fanout", ok, framework=framework("crewai"), answers=answers, total=total)


if __name__ == "__main__":
    main()
