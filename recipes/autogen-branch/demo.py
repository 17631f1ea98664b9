"""A coder and an executor talk. Code that fails halfway is undone, so the next attempt starts clean."""

import re
import warnings
from typing import List

from executor import BranchingExecutor
from forkd_agents import ScriptedModel, Session, framework, report, version_of

PREPARE = """Here is the stock:
```python
import json, pathlib
stock = {"apples": 5, "pears": 2, "plums": 9}
path = pathlib.Path("/srv/stock.json")
path.write_text(json.dumps(stock))
```"""
CARELESS = """I take three of each:
```python
for name in stock:
    if stock[name] < 3:
        raise ValueError(f"not enough {name}")
    stock[name] -= 3
    path.write_text(json.dumps(stock))
```"""
CAREFUL = """The sandbox is as before, so I can check first:
```python
missing = [name for name in stock if stock[name] < 3]
stock = {name: count if name in missing else count - 3 for name, count in stock.items()}
path.write_text(json.dumps(stock))
print("missing", missing, "left", stock)
```"""
SCRIPT = ScriptedModel([
    PREPARE,
    CARELESS,
    lambda answers: CAREFUL if "returned to its state" in answers[-1] else "I do not know what happened. DONE",
    lambda answers: f"{answers[-1].strip()} DONE",
])


def converse_plain(prompt: str, script: ScriptedModel, executor: BranchingExecutor) -> str:
    """The same as the adapter's converse(), without AutoGen."""
    answers: List[str] = []
    while True:
        said = str(script.decide(answers))
        blocks = re.findall(r"```(\w+)\n(.*?)```", said, re.DOTALL)
        if not blocks:
            return said
        answers.append(executor.run(blocks)[1])


def main() -> None:
    """Lets the coder work, and looks at memory and file afterwards."""
    if version_of("autogen-agentchat") is not None:
        warnings.simplefilter("ignore")  # AutoGen asks for an approval of code, which a sandbox does not need
        from adapter import converse
    else:
        converse = converse_plain
    with Session("autogen-branch") as session:
        sandbox = session.create()
        executor = BranchingExecutor(session, sandbox)
        answer = converse("Take three of each fruit, if there are enough.", SCRIPT, executor)
        print(f"coder: {answer}")
        in_memory = sandbox.eval("stock").result_json
        in_file = sandbox.eval("json.loads(path.read_text())").result_json
        print(f"blocks that failed and were undone: {executor.rewinds}")
        expected = {"apples": 2, "pears": 2, "plums": 6}
        ok = in_memory == in_file == expected and executor.rewinds == 1 and answer.endswith("DONE")
        report("autogen-branch", ok, framework=framework("autogen-agentchat"), rewinds=executor.rewinds, stock=in_file)


if __name__ == "__main__":
    main()
