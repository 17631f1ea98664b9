"""The same with the Agents SDK of OpenAI (openai-agents), which replaces Swarm."""

import json
from typing import Any, AsyncIterator, Callable, Dict, List, Sequence

from agents import Agent, Model, ModelResponse, RunContextWrapper, Runner, Usage, function_tool, handoff
from agents import set_tracing_disabled
from forkd_agents import ScriptedModel
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

Tool = Callable[..., str]


class Scripted(Model):
    """A model that follows a script. Give agents the name of a model instead."""

    def __init__(self, script: ScriptedModel) -> None:
        self._script = script

    async def get_response(self, *given: Any, **named: Any) -> ModelResponse:
        """The next step of the script; an agent's answers begin after the handoff to it."""
        # The second argument, if it has no name.
        asked = named["input"] if "input" in named else given[1]
        items = [] if isinstance(asked, str) else list(asked)
        handoffs = {each["call_id"] for each in items if each.get("name") == "hand_off"}
        answers: List[str] = []
        for item in items:
            if item.get("type") == "function_call_output":
                answers = [] if item["call_id"] in handoffs else [*answers, str(item["output"])]
        return ModelResponse(output=[self._item(answers, len(items))], usage=Usage(), response_id=None)

    def _item(self, answers: Sequence[str], number: int) -> Any:
        step = self._script.decide(answers)
        if isinstance(step, str):
            text = ResponseOutputText(annotations=[], text=step, type="output_text")
            return ResponseOutputMessage(
                id=f"message-{number}", content=[text], role="assistant", status="completed", type="message"
            )
        # A handoff of the Agents SDK leads to one agent, so its tool has no argument.
        arguments = {} if step.tool == "hand_off" else step.arguments
        return ResponseFunctionToolCall(
            arguments=json.dumps(arguments), call_id=f"call-{number}", name=step.tool, type="function_call"
        )

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        """The demo does not stream."""
        raise NotImplementedError


def run(
    start: str,
    prompt: str,
    tools: Sequence[Tool],
    scripts: Dict[str, ScriptedModel],
    on_handoff: Callable[[str], Sequence[Tool]],
) -> str:
    """Runs agents until one answers. `on_handoff(name)` returns the tools of the agent that takes over."""
    set_tracing_disabled(True)

    def to(name: str) -> Any:
        agent: Agent[Any] = Agent(name=name, model=Scripted(scripts[name]))

        def take_over(_: RunContextWrapper[Any]) -> None:
            agent.tools = [function_tool(tool) for tool in on_handoff(name)]

        return handoff(agent, tool_name_override="hand_off", on_handoff=take_over)

    others = [to(name) for name in scripts if name != start]
    own: List[Any] = [function_tool(tool) for tool in tools]
    first: Agent[Any] = Agent(name=start, model=Scripted(scripts[start]), tools=own, handoffs=others)
    return str(Runner.run_sync(first, prompt).final_output)
