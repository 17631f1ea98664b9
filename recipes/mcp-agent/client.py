"""A small MCP client over stdio: starts a server, lists its tools and calls them. Standard library only."""

import asyncio
import json
from typing import Any, Dict, List, Sequence

PROTOCOL = "2025-06-18"
#: Seconds for one answer.
PATIENCE = 120
#: A line with a large result is longer than asyncio's default.
MAX_LINE = 16 * 1024 * 1024


class ToolError(RuntimeError):
    """A tool has answered with an error; the text is for the model."""


class StdioClient:
    """`async with` starts the server and ends it."""

    def __init__(self, command: Sequence[str]) -> None:
        self._command = command
        self._next = 0

    async def __aenter__(self) -> "StdioClient":
        pipe = asyncio.subprocess.PIPE
        self._server = await asyncio.create_subprocess_exec(
            *self._command, stdin=pipe, stdout=pipe, limit=MAX_LINE
        )
        about = {"name": "forkd-recipe", "version": "1"}
        hello = {"protocolVersion": PROTOCOL, "capabilities": {}, "clientInfo": about}
        await self._request("initialize", hello)
        await self._send({"method": "notifications/initialized"})
        return self

    async def __aexit__(self, *_: object) -> None:
        # The end of stdin ends the server, which kills its sandboxes first.
        assert self._server.stdin is not None
        self._server.stdin.close()
        try:
            await asyncio.wait_for(self._server.wait(), PATIENCE)
        except asyncio.TimeoutError:
            self._server.kill()
            await self._server.wait()

    async def tools(self) -> List[str]:
        """Names of the tools."""
        return [tool["name"] for tool in (await self._request("tools/list", {}))["tools"]]

    async def call(self, name: str, **arguments: Any) -> Dict[str, Any]:
        """Calls a tool and returns its structured content."""
        result = await self._request("tools/call", {"name": name, "arguments": arguments})
        if result.get("isError"):
            raise ToolError(result["content"][0]["text"])
        return dict(result["structuredContent"])

    async def _request(self, method: str, params: Dict[str, Any]) -> Dict[str, Any]:
        self._next += 1
        await self._send({"id": self._next, "method": method, "params": params})
        while True:
            message = await asyncio.wait_for(self._receive(), PATIENCE)
            if message.get("id") != self._next:
                continue  # a notification
            if "error" in message:
                raise ToolError(message["error"]["message"])
            return dict(message["result"])

    async def _send(self, message: Dict[str, Any]) -> None:
        assert self._server.stdin is not None
        self._server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        await self._server.stdin.drain()

    async def _receive(self) -> Dict[str, Any]:
        assert self._server.stdout is not None
        line = await self._server.stdout.readline()
        if line == b"":
            raise ConnectionError("The MCP server has ended")
        return dict(json.loads(line))
