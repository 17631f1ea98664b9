"""An agent with the tools of `forkd mcp`: it prepares, branches, compares the variants, and rewinds a mistake."""

import asyncio
import os
from typing import Any, Dict, List

from client import StdioClient, ToolError
from forkd_agents import framework, report, version_of

TAG = os.environ.get("FORKD_DEMO_TAG", "python-numpy")
SERVER = ["forkd", "mcp", "--kill-on-exit", "--ttl", "30m"]
PAGE = "/srv/page.html"
PREPARE = f"""
words = ["fork", "branch", "rewind"] * 40
open("{PAGE}", "w").write("<ul>" + "".join(f"<li>{{word}}</li>" for word in words) + "</ul>\\n")
"""
VARIANTS = [
    f'open("{PAGE}", "w").write("<p>" + " ".join(words) + "</p>\\n")',
    f'open("{PAGE}", "w").write("<p>" + ", ".join(sorted(set(words))) + "</p>\\n")',
]


async def work(client: Any) -> Dict[str, Any]:
    """What a model would do with these tools. Returns facts."""
    names = await client.tools()
    print(f"the server has {len(names)} tools")
    (source,) = [each["id"] for each in (await client.call("spawn_sandboxes", snapshot_tag=TAG))["result"]]
    await client.call("eval_code", sandbox_id=source, code=PREPARE)
    branch = await client.call("branch_sandbox", sandbox_id=source, n=len(VARIANTS))
    try:
        children: List[str] = [child["id"] for child in branch["children"]]
        print(f"branched into {len(children)} children; the source was paused for {branch['pause_ms']:.0f} ms")
        sizes = []
        for child, code in zip(children, VARIANTS):
            await client.call("eval_code", sandbox_id=child, code=code)
            sizes.append((await client.call("read_file", sandbox_id=child, path=PAGE))["size"])
        differing = await client.call("diff_files", sandbox_a=children[0], sandbox_b=children[1], paths=[PAGE])
        print(f"the variants have {sizes[0]} and {sizes[1]} bytes; files that differ: {differing['total']}")

        # A mistake in the source: the file is gone, and the tool says so.
        await client.call("exec_command", sandbox_id=source, command=f"rm {PAGE}")
        try:
            await client.call("read_file", sandbox_id=source, path=PAGE)
            mistake = ""
        except ToolError as error:
            mistake = str(error).splitlines()[0]
        await client.call("rewind_sandbox", sandbox_id=source, tag=branch["tag"])
        restored = (await client.call("read_file", sandbox_id=source, path=PAGE))["content"]
        print(f"after rm: {mistake}; after rewind: {len(restored)} characters")
    finally:
        mine = [each["id"] for each in (await client.call("list_sandboxes", own=True))["result"]]
        for sandbox in mine:
            await client.call("kill_sandbox", sandbox_id=sandbox)
        await client.call("delete_snapshot", tag=branch["tag"])
    return {
        "tools": len(names),
        "killed": len(mine),
        "sizes": sizes,
        "rewound": restored.startswith("<ul>") and mistake != "",
    }


async def main() -> None:
    """Connects with the package mcp, or with the client of this recipe."""
    if version_of("mcp") is not None:
        from adapter import PackageClient

        client: Any = PackageClient(SERVER)
    else:
        client = StdioClient(SERVER)
    async with client:
        facts = await work(client)
    ok = facts["rewound"] and facts["killed"] == 3 and facts["sizes"][1] < facts["sizes"][0]
    report("mcp-agent", ok, framework=framework("mcp"), **facts)


if __name__ == "__main__":
    asyncio.run(main())
