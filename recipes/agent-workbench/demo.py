#!/usr/bin/env python3
"""What an agent does over MCP: a notebook, a web page, a screenshot. Needs the snapshot: forkd build agent-workbench"""

import base64
import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import threading

tag = os.environ.get("FORKD_DEMO_TAG", "agent-workbench")
page = """<!doctype html>
<title>waiting</title>
<body style="margin:0;background:#246;color:white;font:40px sans-serif">
<button id="go" onclick="document.title = 'sum ' + [1, 2, 3].reduce((a, b) => a + b)">add</button>
<img src="plot.png">
"""
cells = ["numbers = np.arange(20) ** 2\nprint(numbers.sum())", "plt.plot(numbers)\nplt.savefig('/root/notebooks/plot.png')\nplt.show()"]


class Mcp:
    """A client of `forkd mcp` over its stdin and stdout."""

    def __init__(self):
        checkout = pathlib.Path(__file__).resolve().parents[2] / "forkd"
        forkd = str(checkout) if checkout.exists() else shutil.which("forkd")
        assert forkd, "found no program forkd"
        command = [forkd, "mcp", "--kill-on-exit", "--ttl", "1h"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.last = 0
        # A server that does not answer ends the demo instead of blocking it.
        self.limit = threading.Timer(1500, self.process.kill)
        self.limit.daemon = True
        self.limit.start()

    def request(self, method, **params):
        self.last += 1
        self._send({"jsonrpc": "2.0", "id": self.last, "method": method, "params": params})
        for line in self.process.stdout:
            message = json.loads(line)
            if message.get("id") == self.last:
                assert "error" not in message, message
                return message["result"]
        raise AssertionError("the MCP server has ended")

    def begin(self):
        hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "demo", "version": "1"}}
        server = self.request("initialize", **hello)["serverInfo"]
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return server

    def call(self, tool, **arguments):
        answer = self.request("tools/call", name=tool, arguments=arguments)
        assert not answer.get("isError"), answer
        return answer

    def close(self):
        self.limit.cancel()
        self.process.stdin.close()
        return self.process.wait(timeout=120)

    def _send(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()


def images(answer):
    """The PNG images of an answer, with width and height."""
    found = [base64.b64decode(part["data"]) for part in answer["content"] if part["type"] == "image"]
    assert all(png.startswith(b"\x89PNG") for png in found)
    return [(struct.unpack_from("!II", png, 16), len(png)) for png in found]


mcp = Mcp()
try:
    server = mcp.begin()
    tools = {tool["name"] for tool in mcp.request("tools/list")["tools"]}
    assert {"spawn_sandboxes", "eval_code", "write_file", "exec_command", "branch_sandbox"} <= tools, tools
    print(f"MCP server {server['name']} with {len(tools)} tools")
    spawned = mcp.call("spawn_sandboxes", snapshot_tag=tag, n=1)
    sandbox = spawned["structuredContent"]["result"][0]["id"]

    def evaluate(code):
        answer = mcp.call("eval_code", sandbox_id=sandbox, code=code, timeout_secs=600)
        result = answer["structuredContent"]
        assert result["exit_code"] == 0, result.get("traceback")
        return answer, result

    # The notebook: two cells in the running kernel, saved through the server.
    evaluate("kernel = notebook_kernel.Kernel()")
    _, printed = evaluate(f"kernel.run({cells[0]!r}).text")
    assert "2470" in printed["result"], printed
    shown, _ = evaluate(f"kernel.run({cells[1]!r}).figures[0]")
    ((plot_size, plot_bytes),) = images(shown)
    evaluate("kernel.save('numbers.ipynb')")
    print(f"notebook: the cell printed 2470, and its plot came back as an image of {plot_size[0]} x {plot_size[1]} pixels")
    saved = mcp.call("exec_command", sandbox_id=sandbox, command="cd /root/notebooks && grep -c savefig numbers.ipynb && ls")
    listing = saved["structuredContent"]["stdout"]
    assert "numbers.ipynb" in listing and "plot.png" in listing, listing

    # The browser: a page that the agent wrote, with the plot, served in the same machine.
    mcp.call("write_file", sandbox_id=sandbox, path="/root/notebooks/index.html", content=page)
    serve = "python3 -u -m http.server 8000 --bind 127.0.0.1 --directory /root/notebooks"
    started = mcp.call("exec_command", sandbox_id=sandbox, command=serve, background=True)
    command = started["structuredContent"]["exec_id"]
    mcp.call("wait_for_output", sandbox_id=sandbox, exec_id=command, text="Serving HTTP", timeout_secs=120)
    evaluate("page = browser.Page().open('http://127.0.0.1:8000/')")
    evaluate("page.run(\"document.getElementById('go').click()\")")
    _, title = evaluate("page.run('document.title')")
    assert title["result_json"] == "sum 6", title
    shown, _ = evaluate("page.screenshot('/root/notebooks/screenshot.png')")
    ((shot_size, shot_bytes),) = images(shown)
    assert shot_size[0] > 500 and shot_size[1] > 300, shot_size
    print(f"browser: pressed the button, the title is \"sum 6\"; a screenshot of {shot_size[0]} x {shot_size[1]} pixels")
finally:
    exit_code = mcp.close()
assert exit_code == 0, exit_code

facts = {
    "tools": len(tools),
    "plot_pixels": list(plot_size),
    "plot_bytes": plot_bytes,
    "screenshot_pixels": list(shot_size),
    "screenshot_bytes": shot_bytes,
}
print(json.dumps({"recipe": "agent-workbench", "ok": True, "facts": facts}))
