"""A scripted agent fixes a failing test: it saves before a risky edit, rewinds when that fails, and tries again."""

import re
import time
from pathlib import Path
from typing import Any, List

from forkd_agents import Call, ScriptedModel, Session, Toolbox, report, run_loop

PROJECT = "/srv/project"
TESTS = Call("run_code", {"code": f"print(warm_pytest.run('{PROJECT}'))"})


def shell(command: str) -> Call:
    """A command in the project."""
    return Call("run_command", {"command": f"cd {PROJECT} && {command}"})


SCRIPT: List[Any] = [
    TESTS,
    lambda answers: shell("rg -n ROUND_HALF_EVEN") if "1 failed, 3 passed" in answers[-1] else "nothing to do",
    Call("branch", {"name": "before-edit"}),
    # Too much: the mean must not be rounded half up.
    shell("sed -i 's/ROUND_HALF_EVEN/ROUND_HALF_UP/' invoice.py"),
    TESTS,
    lambda answers: Call("rewind", {"name": "before-edit"}) if "failed" in answers[-1] else "no need to try again",
    shell("git status --short"),
    shell("sed -i '/exact.quantize/s/ROUND_HALF_EVEN/ROUND_HALF_UP/' invoice.py"),
    TESTS,
    shell("ruff check --no-cache --select E,F . && mypy ."),
    shell("git diff --unified=0"),
    shell("git commit -qam 'invoice: Round totals half up' && git log --oneline | head -1"),
    lambda answers: answers[-1],
]


def main() -> None:
    """Puts the project into a fork, lets the agent work, and looks at what it did."""
    with Session("coding-agent", "coding-agent") as session:
        sandbox = session.create()
        for path in sorted(Path(__file__).parent.joinpath("sample").glob("*.py")):
            sandbox.files.write(f"{PROJECT}/{path.name}", path.read_bytes())
        sandbox.commands.run(f"cd {PROJECT} && git init -q && git add . && git commit -qm start", check=True)

        toolbox = Toolbox(session, sandbox, timeout=300)  # mypy is slow under emulation
        answer = run_loop(ScriptedModel(SCRIPT), toolbox.call)
        said = [text for _, _, text in toolbox.calls]
        for tool, arguments, text in toolbox.calls:
            request = arguments.get("command") or arguments.get("name") or "run the tests"
            print(f"{tool}: {request.replace(f'cd {PROJECT} && ', '')}: {summary(text)}")
        print(f"answer: {answer.strip()}")

        warm = seconds(lambda: sandbox.eval(TESTS.arguments["code"], timeout=300))
        cold = seconds(lambda: sandbox.commands.run(f"cd {PROJECT} && python3 -m pytest -q", timeout=300, check=True))
        print(f"pytest from the warm interpreter {warm:.2f} s, as a new process {cold:.2f} s")
        changed = [line for line in said[10].splitlines() if re.match(r"[+-] ", line)]
        ok = (
            "1 failed, 3 passed" in said[0]
            and "1 failed, 3 passed" in said[4]
            and said[6] == ""  # the rewind has undone the edit
            and "4 passed" in said[8]
            and "Success: no issues found" in said[9]
            and len(changed) == 2
            and "Round totals half up" in answer
        )
        facts = {"tool_calls": len(said), "rewinds": 1, "lines_changed": len(changed)}
        report("coding-agent", ok, **facts, pytest_warm_secs=round(warm, 2), pytest_process_secs=round(cold, 2))


def summary(text: str) -> str:
    """One line of an answer."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("exit code")]
    found = [line for line in lines if re.search(r"\d (passed|failed)|Success", line)]
    return (found or lines or ["(nothing)"])[-1].strip()


def seconds(work: Any) -> float:
    """How long a call takes."""
    started = time.monotonic()
    work()
    return time.monotonic() - started


if __name__ == "__main__":
    main()
