"""forkd for AutoGen: a CodeExecutor that rewinds, and a model client that follows a script."""

import asyncio
from typing import Any, AsyncGenerator, List, Sequence

from autogen_agentchat.agents import AssistantAgent, CodeExecutorAgent
from autogen_agentchat.conditions import MaxMessageTermination, TextMentionTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core import CancellationToken
from autogen_core.code_executor import CodeBlock, CodeExecutor, CodeResult
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    LLMMessage,
    ModelInfo,
    RequestUsage,
    UserMessage,
)
from executor import BranchingExecutor
from forkd_agents import ScriptedModel

NOTHING = RequestUsage(prompt_tokens=0, completion_tokens=0)


class ForkdCodeExecutor(CodeExecutor):
    """For CodeExecutorAgent: each message's code is a transaction in a sandbox."""

    def __init__(self, executor: BranchingExecutor) -> None:
        self._executor = executor

    async def execute_code_blocks(
        self, code_blocks: List[CodeBlock], cancellation_token: CancellationToken
    ) -> CodeResult:
        """Runs the blocks of one message."""
        blocks = [(block.language.lower() or "python", block.code) for block in code_blocks]
        work = asyncio.ensure_future(asyncio.to_thread(self._executor.run, blocks))
        cancellation_token.link_future(work)
        status, output = await work
        return CodeResult(exit_code=status, output=output)

    async def start(self) -> None:
        """The sandbox runs already."""

    async def stop(self) -> None:
        """The session kills the sandbox."""

    async def restart(self) -> None:
        """Returns the sandbox to its start."""
        await asyncio.to_thread(self._executor.restart)


class ScriptedClient(ChatCompletionClient):
    """A model that follows a script. Put your own in its place, such as OpenAIChatCompletionClient."""

    def __init__(self, script: ScriptedModel) -> None:
        self._script = script

    async def create(self, messages: Sequence[LLMMessage], **_: Any) -> CreateResult:  # type: ignore[override]
        """The step after the outputs of the executor so far."""
        answers = [str(each.content) for each in messages if isinstance(each, UserMessage)][1:]
        text = str(self._script.decide(answers))
        return CreateResult(finish_reason="stop", content=text, usage=NOTHING, cached=False)

    async def create_stream(self, *args: Any, **options: Any) -> AsyncGenerator[Any, None]:  # type: ignore[override]
        """The same in one piece."""
        yield await self.create(*args, **options)

    async def close(self) -> None:
        """Nothing is open."""

    def actual_usage(self) -> RequestUsage:
        """A script uses no tokens."""
        return NOTHING

    def total_usage(self) -> RequestUsage:
        """A script uses no tokens."""
        return NOTHING

    def count_tokens(self, messages: Sequence[LLMMessage], **_: Any) -> int:
        """A script uses no tokens."""
        return 0

    def remaining_tokens(self, messages: Sequence[LLMMessage], **_: Any) -> int:
        """A script has no limit."""
        return 1_000_000

    @property
    def capabilities(self) -> Any:
        """What the model can do."""
        return self.model_info

    @property
    def model_info(self) -> ModelInfo:
        """What the model can do."""
        return ModelInfo(
            vision=False, function_calling=False, json_output=False, family="scripted", structured_output=False
        )


def converse(prompt: str, script: ScriptedModel, executor: BranchingExecutor) -> str:
    """A coder and an executor talk until the coder says DONE. Returns its last message."""
    coder = AssistantAgent("coder", model_client=ScriptedClient(script))
    runner = CodeExecutorAgent("executor", code_executor=ForkdCodeExecutor(executor))
    ending = TextMentionTermination("DONE") | MaxMessageTermination(20)
    team = RoundRobinGroupChat([coder, runner], termination_condition=ending)
    result = asyncio.run(team.run(task=prompt))
    return str(result.messages[-1].to_text())
