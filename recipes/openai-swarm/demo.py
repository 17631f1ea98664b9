"""A handoff between agents branches the sandbox: the second agent has the files and memory of the first."""

from typing import Callable, Dict, List, Sequence

from forkd import Sandbox
from forkd_agents import Call, ScriptedModel, Session, Toolbox, framework, report, run_loop, version_of

LEDGER = """
import pathlib
path = pathlib.Path("/srv/ledger.csv")
path.write_text("sale,120\\nrefund,-20\\nsale,80\\nsale,80\\n")
ledger = [line.split(",") for line in path.read_text().split()]
sum(int(amount) for _, amount in ledger)
"""
REPAIR = """
del ledger[3]
path.write_text("".join(f"{kind},{amount}\\n" for kind, amount in ledger))
sum(int(amount) for _, amount in ledger)
"""
LOOK = "len(path.read_text().split()), sum(int(amount) for _, amount in ledger)"
SCRIPTS = {
    "triage": ScriptedModel([
        Call("run_code", {"code": LEDGER}),
        lambda answers: Call("hand_off", {"to": "bookkeeper"}) if answers[-1] != "180" else "balanced",
    ]),
    "bookkeeper": ScriptedModel([
        Call("run_code", {"code": LOOK}),
        Call("branch", {"name": "before-repair"}),
        Call("run_code", {"code": REPAIR}),
        lambda answers: "repaired" if answers[-1] == "180" else Call("rewind", {"name": "before-repair"}),
        "not repaired",
    ]),
}


def run_plain(
    start: str,
    prompt: str,
    tools: Sequence[Callable[..., str]],
    scripts: Dict[str, ScriptedModel],
    on_handoff: Callable[[str], Sequence[Callable[..., str]]],
) -> str:
    """The same as the adapter's run(), without Swarm."""
    named = {tool.__name__: tool for tool in tools}
    taken: List[str] = []

    def hand_off(to: str) -> str:
        taken.append(run_plain(to, prompt, on_handoff(to), scripts, on_handoff))
        return taken[-1]

    named["hand_off"] = hand_off
    return run_loop(scripts[start], lambda name, arguments: named[name](**arguments))


def main() -> None:
    """Runs triage, which hands a wrong ledger to the bookkeeper."""
    package = "openai-agents" if version_of("openai-agents") is not None else "openai-swarm"
    if package == "openai-agents":
        from agents_adapter import run
    elif version_of("openai-swarm") is not None:
        from adapter import run
    else:
        run = run_plain
    with Session("openai-swarm") as session:
        source = session.create()
        taken_over: List[Sandbox] = []

        def on_handoff(name: str) -> Sequence[Callable[..., str]]:
            (child,) = session.branch(source, 1)
            taken_over.append(child)
            print(f"handoff to {name}: branched the sandbox")
            return Toolbox(session, child).functions()

        prompt = "The till has 180. Does the ledger agree?"
        answer = run("triage", prompt, Toolbox(session, source).functions(), SCRIPTS, on_handoff)
        print(f"answer: {answer}")
        (child,) = taken_over
        before, after = source.eval(LOOK).result_json, child.eval(LOOK).result_json
        print(f"source: {before[0]} lines in the file, {before[1]} in memory")
        print(f"branch: {after[0]} lines in the file, {after[1]} in memory")
        session.kill(source)
        ok = answer == "repaired" and before == [4, 260] and after == [3, 180]
        report("openai-swarm", ok, framework=framework(package), source=before, branch=after)


if __name__ == "__main__":
    main()
