"""The same client with the package `mcp`, the SDK of the protocol."""

import os
from contextlib import AsyncExitStack
from typing import Any, Dict, List, Sequence

from client import ToolError
from mcp import ClientSession, StdioServerParameters, stdio_client


class PackageClient:
    """`async with` starts the server and ends it."""

    def __init__(self, command: Sequence[str]) -> None:
        # Without `env` the server would get only a few variables, and not those that name the daemon.
        self._server = StdioServerParameters(command=command[0], args=list(command[1:]), env=dict(os.environ))
        self._open = AsyncExitStack()

    async def __aenter__(self) -> "PackageClient":
        reader, writer = await self._open.enter_async_context(stdio_client(self._server))
        self._session = await self._open.enter_async_context(ClientSession(reader, writer))
        await self._session.initialize()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._open.aclose()

    async def tools(self) -> List[str]:
        """Names of the tools."""
        return [tool.name for tool in (await self._session.list_tools()).tools]

    async def call(self, name: str, **arguments: Any) -> Dict[str, Any]:
        """Calls a tool and returns its structured content."""
        result = (await self._session.call_tool(name, arguments)).model_dump(by_alias=True)
        if result.get("isError"):
            raise ToolError(result["content"][0]["text"])
        return dict(result["structuredContent"])
