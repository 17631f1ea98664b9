"""forkd for CrewAI: tools over a sandbox per agent, and a model that follows a script."""

import json
from typing import Any, Dict, List, Sequence, Tuple, Union

from crewai import Agent, Crew, Process, Task
from crewai.llms.base_llm import BaseLLM
from crewai.tools import BaseTool, tool
from forkd_agents import ScriptedModel, Toolbox


def tools_of(toolbox: Toolbox) -> List[BaseTool]:
    """The tools of a sandbox for an agent of CrewAI."""
    return [tool(function.__name__)(function) for function in toolbox.functions()]


class ScriptedLLM(BaseLLM):
    """A model that follows a script, in the text form of ReAct. Put your own in its place: llm="gpt-..."."""

    script: Any = None

    def call(self, messages: Union[str, List[Dict[str, Any]]], *_: Any, **__: Any) -> str:
        """The step after the observations so far."""
        # The system message explains the form, with an observation as an example.
        said = [] if isinstance(messages, str) else [each for each in messages if each.get("role") != "system"]
        texts = [str(each.get("content")) for each in said]
        answers = [part.strip() for text in texts for part in text.split("\nObservation:")[1:]]
        step = self.script.decide(answers)
        if isinstance(step, str):
            return f"Thought: I now know the final answer\nFinal Answer: {step}"
        return f"Thought: next\nAction: {step.tool}\nAction Input: {json.dumps(step.arguments)}"

    def supports_function_calling(self) -> bool:
        """Text only, as many local models."""
        return False


def run_crew(
    toolboxes: Sequence[Toolbox], scripts: Sequence[ScriptedModel], prompts: Sequence[str]
) -> Tuple[List[str], str]:
    """One agent per sandbox, all at the same time, and one that adds. Returns their answers, and the sum."""
    tasks: List[Task] = []
    agents = [_agent(f"counter {number}", script) for number, script in enumerate(scripts)]
    for agent, toolbox, prompt in zip(agents, toolboxes, prompts):
        agent.tools = tools_of(toolbox)
        tasks.append(Task(description=prompt, expected_output="A number", agent=agent, async_execution=True))
    # A script cannot read the prompt, in which CrewAI puts the results of the other tasks.
    add = ScriptedModel([lambda _: str(sum(int(task.output.raw) for task in tasks))])
    adder = _agent("adder", add)
    last = Task(description="Add the numbers.", expected_output="A number", agent=adder, context=tasks)
    crew = Crew(agents=[*agents, adder], tasks=[*tasks, last], process=Process.sequential, verbose=False)
    total = str(crew.kickoff().raw)
    return [str(task.output.raw) for task in tasks], total


def _agent(role: str, script: ScriptedModel) -> Agent:
    llm = ScriptedLLM(model="scripted", script=script)
    return Agent(role=role, goal="Count exactly", backstory="Works in a sandbox.", llm=llm)
