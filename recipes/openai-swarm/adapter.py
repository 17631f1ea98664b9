"""forkd for OpenAI Swarm: handoffs that branch the sandbox, and a client that follows scripts."""

import json
from typing import Any, Callable, Dict, List, Sequence, Union

from forkd_agents import Call, ScriptedModel
from openai.types.chat import ChatCompletionMessage
from openai.types.chat.chat_completion_message_tool_call import ChatCompletionMessageToolCall, Function
from swarm import Agent, Swarm
from swarm.types import Result

Tool = Callable[..., str]


class Answer:
    """The answer of ScriptedClient, with the fields that Swarm reads."""

    def __init__(self, message: ChatCompletionMessage) -> None:
        self.choices = [self]
        self.message = message


class ScriptedClient:
    """Stands in for `OpenAI()`. The model of an agent names its script."""

    def __init__(self, scripts: Dict[str, ScriptedModel]) -> None:
        self._scripts = scripts
        self.chat = self.completions = self

    def create(self, model: str, messages: List[Dict[str, Any]], **_: Any) -> Answer:
        """The next step of the script; an agent's answers begin after the handoff to it."""
        answers: List[str] = []
        for message in messages:
            if message.get("role") == "tool":
                answers = [] if message["tool_name"] == "hand_off" else [*answers, message["content"]]
        return Answer(_message(self._scripts[model].decide(answers), len(messages)))


def _message(step: Union[Call, str], number: int) -> ChatCompletionMessage:
    if isinstance(step, str):
        return ChatCompletionMessage(role="assistant", content=step)
    function = Function(name=step.tool, arguments=json.dumps(step.arguments))
    call = ChatCompletionMessageToolCall(id=f"call-{number}", type="function", function=function)
    return ChatCompletionMessage(role="assistant", tool_calls=[call])


def run(
    start: str,
    prompt: str,
    tools: Sequence[Tool],
    scripts: Dict[str, ScriptedModel],
    on_handoff: Callable[[str], Sequence[Tool]],
) -> str:
    """Runs agents until one answers. `on_handoff(name)` returns the tools of the agent that takes over."""

    def hand_off(to: str) -> Result:
        """Hand the work to another agent, which continues in a branch of the sandbox."""
        agent = Agent(name=to, model=to, functions=list(on_handoff(to)))
        return Result(value=f"handed to {to}", agent=agent)

    first = Agent(name=start, model=start, functions=[*tools, hand_off])
    response = Swarm(client=ScriptedClient(scripts)).run(first, [{"role": "user", "content": prompt}])
    return str(response.messages[-1]["content"])
