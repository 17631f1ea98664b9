"""What the strict client of E2B checks: status codes, required fields, forms of errors."""

import sys

from e2b import NotFoundException, Sandbox, SandboxException, SandboxQuery, SandboxState
from e2b.exceptions import AuthenticationException
from e2b_code_interpreter import Sandbox as CodeInterpreter


def expect(condition, what):
    if not condition:
        sys.exit(f"expected {what}")


def expect_error(kind, work, *args, **kwargs):
    try:
        work(*args, **kwargs)
    except kind as error:
        return str(error)
    sys.exit(f"expected {kind.__name__}")


metadata = {"name with space": "a&b=c ☃"}
sandbox = Sandbox.create(metadata=metadata, envs={"GREETING": "hello"}, timeout=120)
info = sandbox.get_info()
expect(info.metadata == metadata, "the metadata")
expect(info.state == SandboxState.RUNNING, "a running sandbox")
listed = Sandbox.list(query=SandboxQuery(metadata=metadata)).next_items()
expect([each.sandbox_id for each in listed] == [sandbox.sandbox_id], "the sandbox in the list")
sandbox.set_timeout(300)
expect(sandbox.is_running(), "an answer of the agent")
expect(sandbox.commands.run("echo $GREETING").stdout == "hello\n", "the output of the command")
sandbox.files.write("/tmp/file.txt", "text ☃")
expect(sandbox.files.read("/tmp/file.txt") == "text ☃", "the file")
expect(len(sandbox.get_metrics()) == 1, "metrics")
sandbox.pause()
expect(not sandbox.is_running(), "no answer of a paused sandbox")
again = Sandbox.connect(sandbox.sandbox_id)
expect(again.files.read("/tmp/file.txt") == "text ☃", "the file after the pause")
snapshot = again.create_snapshot()
expect(Sandbox.delete_snapshot(snapshot.snapshot_id), "the snapshot to be deleted")
expect(not Sandbox.delete_snapshot(snapshot.snapshot_id), "no snapshot")
expect(again.kill(), "the sandbox to be killed")
expect(not again.kill(), "no sandbox")
expect_error(NotFoundException, again.get_info)
expect("Cannot find template" in expect_error(SandboxException, Sandbox.create, "none"), "the reason")
expect("mcp is not supported" in expect_error(SandboxException, Sandbox.create, "base", mcp={"x": {}}), "the field")
expect_error(AuthenticationException, Sandbox.create, api_key="e2b_00")

with CodeInterpreter.create() as interpreter:
    execution = interpreter.run_code("x = 20\nprint('line')\nx + 1")
    expect(execution.error is None, "no error")
    expect(execution.logs.stdout == ["line\n"], "the output of the code")
    expect(execution.text == "21", "the value")
    failed = interpreter.run_code("1 / 0")
    expect(failed.error is not None and failed.error.name == "ZeroDivisionError", "the error of the code")
print("ok")
