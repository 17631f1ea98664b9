"""forkd for LangGraph: a ReAct agent whose tools work in a sandbox, and a chat model that follows a script."""

from typing import Any, List, Optional

from forkd_agents import Call, ScriptedModel, Toolbox
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.prebuilt import create_react_agent


def tools_of(toolbox: Toolbox) -> List[BaseTool]:
    """The tools of a sandbox for any agent of LangChain or LangGraph."""
    return [StructuredTool.from_function(function) for function in toolbox.functions()]


class ScriptedChat(BaseChatModel):
    """A chat model that follows a script. Put your own in its place, such as ChatOpenAI."""

    script: Any

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> "ScriptedChat":
        """The script knows the tools."""
        return self

    def _generate(self, messages: List[BaseMessage], stop: Optional[List[str]] = None, *_: Any, **__: Any) -> ChatResult:
        asked = max(at for at, message in enumerate(messages) if isinstance(message, HumanMessage))
        answers = [str(each.content) for each in messages[asked:] if isinstance(each, ToolMessage)]
        step = self.script.decide(answers)
        if isinstance(step, Call):
            call = {"name": step.tool, "args": step.arguments, "id": f"call-{len(messages)}"}
            message = AIMessage(content="", tool_calls=[call])
        else:
            message = AIMessage(content=step)
        return ChatResult(generations=[ChatGeneration(message=message)])


class Conversation:
    """An agent and its messages, so far. `branch()` copies both: the messages, and with them the sandbox."""

    def __init__(self, toolbox: Toolbox, messages: Optional[List[BaseMessage]] = None) -> None:
        self._toolbox = toolbox
        self._messages = messages or []

    def ask(self, prompt: str, script: ScriptedModel) -> str:
        """Continues the conversation until the agent answers."""
        agent = create_react_agent(ScriptedChat(script=script), tools_of(self._toolbox))
        self._messages = agent.invoke({"messages": [*self._messages, HumanMessage(prompt)]})["messages"]
        return str(self._messages[-1].content)

    def branch(self, toolbox: Toolbox) -> "Conversation":
        """The same conversation, in a child of its sandbox."""
        return Conversation(toolbox, list(self._messages))

    def __len__(self) -> int:
        return len(self._messages)
