"""Runs code as transactions: saves the sandbox before a block, and rewinds it if the block fails."""

from typing import List, Tuple

from forkd import Sandbox
from forkd_agents import Session


class BranchingExecutor:
    """Python and shell blocks in one sandbox. A block that fails has changed nothing: no variable, no file."""

    def __init__(self, session: Session, sandbox: Sandbox) -> None:
        self._session = session
        self._sandbox = sandbox
        self._start = session.save(sandbox)
        #: How many blocks were undone.
        self.rewinds = 0

    def run(self, blocks: List[Tuple[str, str]]) -> Tuple[int, str]:
        """Runs (language, code) in order up to the first that fails. Returns exit code and output."""
        saved = self._session.save(self._sandbox)
        printed: List[str] = []
        for language, code in blocks:
            status, output = self._python(code) if language == "python" else self._shell(code)
            printed.append(output)
            if status != 0:
                self._sandbox.rewind(saved)
                self.rewinds += 1
                printed.append("The sandbox was returned to its state before this code.")
                return status, "\n".join(printed)
        return 0, "\n".join(printed)

    def restart(self) -> None:
        """Returns to the state at the start."""
        self._sandbox.rewind(self._start)

    def _python(self, code: str) -> Tuple[int, str]:
        result = self._sandbox.run_code(code, timeout=60)
        parts = [result.stdout, result.stderr, result.error, result.result]
        return result.exit_code, "\n".join(part.rstrip() for part in parts if part)

    def _shell(self, code: str) -> Tuple[int, str]:
        result = self._sandbox.commands.run(code, timeout=60)
        status = result.exit_code if result.exit_code is not None else 1
        return status, (result.stdout + result.stderr).rstrip()
