"""What the agents of these recipes share: a session that cleans up, tools for a model, and a scripted model.

A demo runs with `forkd recipes demo NAME`, which puts this directory and the Python SDK on PYTHONPATH. Copy the
file into your own program, or put it on PYTHONPATH; it needs only the package `forkd`.
"""

import json
import os
from dataclasses import dataclass, field
from importlib import metadata
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from forkd import Forkd, ForkdError, ForkError, NotFoundError, Sandbox

#: Characters of a tool's answer that a model gets.
MAX_ANSWER = 8000


def report(recipe: str, ok: bool, **facts: Any) -> None:
    """Prints the result of a demo, which must be its last line."""
    print(json.dumps({"recipe": recipe, "ok": ok, "facts": facts}), flush=True)


class Session:
    """The sandboxes and snapshots of one run. The end of `with` removes all of them, also after an exception."""

    def __init__(self, recipe: str, tag: str = "python-numpy") -> None:
        self.recipe = recipe
        #: The snapshot to fork; the harness names one that is built.
        self.tag = os.environ.get("FORKD_DEMO_TAG", tag)
        self.forkd = Forkd()
        self.forks = 0
        self.branches: List[str] = []
        self._alive: Dict[str, Sandbox] = {}
        # A run that is killed cannot clean up; the daemon does it after this many seconds.
        self._life: Dict[str, Any] = {"labels": {"recipe": recipe}, "ttl": 1800}

    def create(self, **options: Any) -> Sandbox:
        """Forks one sandbox from the snapshot."""
        return self._own(self.forkd.create(self.tag, **self._life, **options))

    def fork(self, n: int, vary: Optional[Sequence[Mapping[str, Any]]] = None) -> List[Sandbox]:
        """Forks `n` sandboxes from the snapshot; `vary` gives each its own variables and values."""
        return self._children(self.forkd.fork(self.tag, n, vary=vary, **self._life))

    def save(self, sandbox: Sandbox) -> str:
        """Snapshots a running sandbox, which continues. Returns the tag."""
        branch = sandbox.branch()
        self.branches.append(branch.tag)
        return branch.tag

    def branch(
        self, sandbox: Sandbox, n: int, vary: Optional[Sequence[Mapping[str, Any]]] = None
    ) -> List[Sandbox]:
        """Forks `n` children from this moment of a running sandbox, which continues."""
        branch = sandbox.branch(n=n, vary=vary, **self._life)
        self.branches.append(branch.tag)
        return self._children(branch.children)

    def kill(self, sandbox: Sandbox) -> None:
        """Kills a sandbox of this session."""
        sandbox.kill()
        self._alive.pop(sandbox.id, None)

    def close(self) -> None:
        """Kills the sandboxes, then removes the snapshots: the newest first, because they are layers."""
        failed: List[ForkdError] = []
        for sandbox in list(self._alive.values()):
            self._attempt(lambda: self.kill(sandbox), failed)
        while self.branches:
            tag = self.branches.pop()
            self._attempt(lambda: self.forkd.snapshots.remove(tag), failed)
        self.forkd.close()
        if failed:
            raise failed[0]

    def _attempt(self, work: Callable[[], Any], failed: List[ForkdError]) -> None:
        try:
            work()
        except NotFoundError:
            pass  # it has ended, or another program removed it
        except ForkdError as error:
            failed.append(error)

    def _children(self, children: Sequence[Union[Sandbox, ForkError]]) -> List[Sandbox]:
        made = [self._own(child) for child in children if isinstance(child, Sandbox)]
        for child in children:
            if isinstance(child, ForkError):
                raise child
        return made

    def _own(self, sandbox: Sandbox) -> Sandbox:
        self.forks += 1
        self._alive[sandbox.id] = sandbox
        return sandbox

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Toolbox:
    """Tools for a model. Each returns text, also when it fails, so that the model can react.

    The functions have types and docstrings, from which agent frameworks make their schemas. One sandbox is
    current; `branch` makes children of it, which have names such as "plan.0".
    """

    def __init__(self, session: Session, sandbox: Sandbox, timeout: float = 60) -> None:
        self._session = session
        self._sandbox = sandbox
        #: Seconds for one command or piece of code.
        self._timeout = timeout
        self._saved: Dict[str, str] = {}
        self._children: Dict[str, Sandbox] = {}
        #: (tool, arguments, answer) of every call, in order.
        self.calls: List[Tuple[str, Dict[str, Any], str]] = []

    @property
    def sandbox(self) -> Sandbox:
        """The current sandbox."""
        return self._sandbox

    def functions(self) -> List[Callable[..., str]]:
        """All tools, as functions."""
        return [self.run_code, self.run_command, self.branch, self.rewind, self.keep]

    def call(self, name: str, arguments: Mapping[str, Any]) -> str:
        """Calls a tool by its name; a name that does not exist is an answer too."""
        found = {function.__name__: function for function in self.functions()}.get(name)
        return f"error: there is no tool {name}" if found is None else found(**arguments)

    def run_code(self, code: str, sandbox: str = "") -> str:
        """Evaluate Python in a warm interpreter; variables stay. sandbox: a child, or empty for the current one."""

        def run() -> str:
            result = self._find(sandbox).run_code(code, timeout=self._timeout)
            parts = [result.stdout, result.error and f"error: {result.error}", result.result]
            return "\n".join(part.rstrip() for part in parts if part)

        return self._answer("run_code", {"code": code, "sandbox": sandbox}, run)

    def run_command(self, command: str, sandbox: str = "") -> str:
        """Run a shell command. sandbox: a child, or empty for the current one."""

        def run() -> str:
            result = self._find(sandbox).commands.run(command, timeout=self._timeout)
            text = result.stdout + result.stderr
            if result.exit_code == 0:
                return text
            end = f"exit code {result.exit_code}" if result.signal is None else f"ended by {result.signal}"
            return f"{text.rstrip()}\n{'timed out: ' if result.timed_out else ''}{end}"

        return self._answer("run_command", {"command": command, "sandbox": sandbox}, run)

    def branch(self, name: str, children: int = 0) -> str:
        """Save this moment of the current sandbox as a name, and fork children from it that continue separately."""

        def run() -> str:
            if name in self._saved:
                return f"error: {name} exists; use another name"
            if children == 0:
                self._saved[name] = self._session.save(self._sandbox)
                return f"saved {name}"
            made = self._session.branch(self._sandbox, children)
            self._saved[name] = self._session.branches[-1]
            names = [f"{name}.{index}" for index in range(children)]
            self._children.update(zip(names, made))
            return f"saved {name}; children: {', '.join(names)}"

        return self._answer("branch", {"name": name, "children": children}, run)

    def rewind(self, name: str) -> str:
        """Return the current sandbox to a saved moment: memory, files and processes."""

        def run() -> str:
            if name not in self._saved:
                return f"error: nothing is saved as {name}; saved: {', '.join(self._saved) or 'nothing'}"
            self._sandbox.rewind(self._saved[name])
            return f"rewound to {name}"

        return self._answer("rewind", {"name": name}, run)

    def keep(self, child: str) -> str:
        """Continue with a child as the current sandbox; kill the previous one and all other children."""

        def run() -> str:
            if child not in self._children:
                return f"error: there is no child {child}; children: {', '.join(self._children) or 'none'}"
            kept = self._children.pop(child)
            for other in [self._sandbox, *self._children.values()]:
                self._session.kill(other)
            self._children.clear()
            self._sandbox = kept
            return f"kept {child}"

        return self._answer("keep", {"child": child}, run)

    def _find(self, name: str) -> Sandbox:
        if name == "":
            return self._sandbox
        if name not in self._children:
            raise ValueError(f"there is no child {name}; children: {', '.join(self._children) or 'none'}")
        return self._children[name]

    def _answer(self, tool: str, arguments: Dict[str, Any], run: Callable[[], str]) -> str:
        try:
            text = run()
        except (ForkdError, ValueError) as error:
            text = f"error: {error}"
        if len(text) > MAX_ANSWER:
            left_out = len(text) - MAX_ANSWER
            text = f"{text[: MAX_ANSWER // 2]}\n… {left_out} characters left out …\n{text[-MAX_ANSWER // 2 :]}"
        self.calls.append((tool, arguments, text))
        return text


@dataclass(frozen=True)
class Call:
    """A tool call of a model."""

    tool: str
    arguments: Dict[str, Any] = field(default_factory=dict)


#: A tool call, a final text, or a function that decides by the answers so far.
Step = Union[Call, str, Callable[[List[str]], Union[Call, str]]]


class ScriptedModel:
    """Stands in for a language model, so that a demo needs no key and always does the same.

    It is given the answers of the tools so far and returns its next step, as a model does. The adapters of the
    frameworks wrap it in the model class of the framework.
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = list(steps)

    def decide(self, answers: Sequence[str]) -> Union[Call, str]:
        """The step after these answers; after the last one, the last answer."""
        if len(answers) >= len(self._steps):
            return answers[-1] if answers else ""
        step = self._steps[len(answers)]
        return step(list(answers)) if callable(step) else step


def run_loop(model: ScriptedModel, call: Callable[[str, Mapping[str, Any]], str]) -> str:
    """The loop of an agent without a framework: ask the model, call the tool, until it answers with text."""
    answers: List[str] = []
    while True:
        step = model.decide(answers)
        if isinstance(step, str):
            return step
        answers.append(call(step.tool, step.arguments))


def framework(package: str) -> str:
    """For the facts of a demo: the package and its version, or that it is not installed."""
    found = version_of(package)
    return f"without {package}, which is not installed" if found is None else f"{package} {found}"


def version_of(package: str) -> Optional[str]:
    """The installed version of a package; None if it is not installed."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
