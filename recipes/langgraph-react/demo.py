"""A ReAct agent loads data, is branched mid-thought, and continues in three ways; the best forecast wins."""

from concurrent.futures import ThreadPoolExecutor
from typing import List

from forkd_agents import Call, ScriptedModel, Session, Step, Toolbox, framework, report, run_loop, version_of

if version_of("langgraph") is not None:
    from adapter import Conversation
else:

    class Conversation:  # type: ignore[no-redef]
        """The same without LangGraph: a loop that asks the script and calls the tools."""

        def __init__(self, toolbox: Toolbox, messages: List[str]) -> None:
            self._toolbox = toolbox
            self._messages = messages

        def ask(self, prompt: str, script: ScriptedModel) -> str:
            """Continues the conversation until the agent answers."""
            calls = len(self._toolbox.calls)
            answer = run_loop(script, self._toolbox.call)
            used = self._toolbox.calls[calls:]
            self._messages += [prompt, *(part for name, _, text in used for part in (name, text)), answer]
            return answer

        def branch(self, toolbox: Toolbox) -> "Conversation":
            """The same conversation, in a child of its sandbox."""
            return Conversation(toolbox, list(self._messages))

        def __len__(self) -> int:
            return len(self._messages)


LOAD = """
import numpy
days = numpy.arange(70)
visits = 200 + 3 * days + 40 * numpy.isin(days % 7, [5, 6]) + numpy.random.default_rng(1).normal(0, 4, 70)
known, future = days[:63], days[63:]
f"{known.size} days, mean {visits[known].mean():.0f}"
"""
SCORE = "float(abs(forecast - visits[future]).mean())"
PROMPTS = {
    "as yesterday": "forecast = numpy.full(7, visits[62])",
    "as last week": "forecast = visits[56:63]",
    "trend and weekday": """
slope, offset = numpy.polyfit(known, visits[known], 1)
rest = visits[known] - slope * known - offset
forecast = slope * future + offset + numpy.array([rest[known % 7 == day % 7].mean() for day in future])
""",
}


def main() -> None:
    """Runs the agent up to the decision, branches it, and lets three copies decide differently."""
    with Session("langgraph-react") as session, ThreadPoolExecutor() as threads:
        source = session.create()
        thinking = Conversation(Toolbox(session, source), [])
        load = ScriptedModel([Call("run_code", {"code": LOAD}), lambda answers: f"I have {answers[-1]}"])
        print(thinking.ask("Load the visits of the last weeks.", load))

        children = session.branch(source, len(PROMPTS))
        copies = [thinking.branch(Toolbox(session, child)) for child in children]
        print(f"branched after {len(thinking)} messages into {len(copies)} copies")

        def decide(copy: Conversation, name: str, code: str) -> float:
            calls = [Call("run_code", {"code": code}), Call("run_code", {"code": SCORE})]
            script: List[Step] = [*calls, lambda said: said[-1]]
            return float(copy.ask(f"Forecast the next week: {name}.", ScriptedModel(script)))

        errors = dict(zip(PROMPTS, threads.map(decide, copies, PROMPTS, PROMPTS.values())))
        for name, error in errors.items():
            print(f"  {name}: {error:.1f} visits wrong on average")
        best = min(errors, key=lambda name: errors[name])
        again = thinking.ask("Is the data still as it was?", ScriptedModel([
            Call("run_code", {"code": "'forecast' in globals(), int(visits.size)"}),
            lambda said: said[-1],
        ]))
        is_untouched = again == "(False, 70)"
        print(f"kept {best}; the source has no forecast: {is_untouched}")
        rounded = {name: round(error, 1) for name, error in errors.items()}
        ok = best == "trend and weekday" and is_untouched
        report("langgraph-react", ok, framework=framework("langgraph"), kept=best, errors=rounded)


if __name__ == "__main__":
    main()
