"""Calls every tool of recipes/_shared/forkd_agents.py, also with mistakes, as a model makes them."""

from forkd_agents import MAX_ANSWER, Call, ScriptedModel, Session, Toolbox, report, run_loop


def main() -> None:
    with Session("toolbox") as session:
        source = session.create()
        tools = Toolbox(session, source)
        expect(tools.run_code("n = 1"), "")
        expect(tools.run_code("print('said')\nn + 1"), "said\n2")
        expect(tools.run_code("1/0"), "error: ZeroDivisionError: division by zero")
        expect(tools.run_command("echo out; exit 3"), "out\nexit code 3")
        expect(Toolbox(session, source, timeout=0.5).run_command("sleep 60").startswith("\ntimed out: "), True)
        expect(tools.branch("one"), "saved one")
        expect(tools.branch("one"), "error: one exists; use another name")
        expect(tools.run_code("n = 5; n"), "5")
        expect(tools.rewind("two"), "error: nothing is saved as two; saved: one")
        expect(tools.rewind("one"), "rewound to one")
        expect(tools.run_code("n"), "1")
        expect(tools.branch("plan", 2), "saved plan; children: plan.0, plan.1")
        expect(tools.run_code("n = 10; n", sandbox="plan.0"), "10")
        expect(tools.run_code("n", sandbox="plan.1"), "1")
        expect(tools.run_code("n", sandbox="plan.2"), "error: there is no child plan.2; children: plan.0, plan.1")
        expect(tools.keep("plan.7"), "error: there is no child plan.7; children: plan.0, plan.1")
        expect(tools.keep("plan.0"), "kept plan.0")
        expect(tools.run_code("n"), "10")
        expect([each.id for each in session.forkd.sandboxes.list()] == [tools.sandbox.id], True)
        long = tools.run_code("print('x' * 20000)")
        expect("characters left out" in long and len(long) < MAX_ANSWER + 100, True)
        expect(tools.call("fly", {}), "error: there is no tool fly")
        script = ScriptedModel([Call("run_code", {"code": "n"}), lambda answers: f"n is {answers[0]}"])
        expect(run_loop(script, tools.call), "n is 10")
        report("toolbox", True, calls=len(tools.calls))


def expect(found: object, wanted: object) -> None:
    if found != wanted:
        raise AssertionError(f"{found!r} is not {wanted!r}")


if __name__ == "__main__":
    main()
