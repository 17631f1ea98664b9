/** The server without a daemon: what a client sees before it calls a tool, and what it gets without one. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, InMemoryTransport } from "@modelcontextprotocol/client";
import { AppError } from "@forkd/contract/wire";
import { Forkd } from "@forkd/sdk";
import { Backend } from "../src/backend.ts";
import { makeServer } from "../src/server.ts";

async function connected(): Promise<
  AsyncDisposable & { client: Client; logged: string[]; connects: () => number }
> {
  let connects = 0;
  const connect = () => {
    connects++;
    return Promise.reject(new AppError("daemon_unreachable", "Cannot reach the daemon"));
  };
  const logged: string[] = [];
  const server = makeServer(new Backend({ connect, label: "test" }), {
    version: "1.2.3",
    log: (text) => logged.push(text),
  });
  const client = new Client({ name: "test", version: "1" });
  const [own, other] = InMemoryTransport.createLinkedPair();
  await Promise.all([server.connect(other), client.connect(own)]);
  return { client, logged, connects: () => connects, [Symbol.asyncDispose]: () => client.close() };
}

test("tools, prompts and templates are listed without a daemon", async () => {
  await using mcp = await connected();
  const { client } = mcp;
  assert.deepEqual(client.getServerVersion()?.name, "forkd");
  assert.match(client.getInstructions() ?? "", /kill_sandbox/);
  assert.equal((await client.listTools()).tools.length, 24);
  assert.equal((await client.listPrompts()).prompts.length, 2);
  assert.equal((await client.listResourceTemplates()).resourceTemplates.length, 5);
  assert.equal(mcp.connects(), 0);
});

test("a tool says that the daemon does not answer, and the next call tries again", async () => {
  await using mcp = await connected();
  for (const attempt of [1, 2]) {
    const result = await mcp.client.callTool({ name: "list_snapshots" });
    assert.equal(result.isError, true);
    assert.match(JSON.stringify(result.content), /Cannot reach the daemon.*daemon_unreachable.*forkd up/);
    assert.equal(mcp.connects(), attempt);
  }
});

test("after a daemon that is gone the next call connects again", async () => {
  let connects = 0;
  const transport = () => Promise.reject(new AppError("daemon_unreachable", "The daemon is gone"));
  const connect = () => {
    connects++;
    return Promise.resolve(new Forkd({ transport }));
  };
  const server = makeServer(new Backend({ connect, label: "test" }), { version: "1", log: () => undefined });
  const client = new Client({ name: "test", version: "1" });
  const [own, other] = InMemoryTransport.createLinkedPair();
  await Promise.all([server.connect(other), client.connect(own)]);
  for (const attempt of [1, 2]) {
    assert.equal((await client.callTool({ name: "list_sandboxes" })).isError, true);
    assert.equal(connects, attempt);
  }
  await client.close();
});

test("resources are listed as far as possible without a daemon", async () => {
  await using mcp = await connected();
  const { resources } = await mcp.client.listResources();
  assert.deepEqual(resources.map(({ name }) => name).sort(), ["lineage", "sandboxes", "snapshots"]);
  assert.equal(mcp.logged.length, 2);
  await assert.rejects(mcp.client.readResource({ uri: "forkd://lineage" }), /Cannot reach the daemon/);
  await assert.rejects(mcp.client.readResource({ uri: "forkd://sandboxes/../../etc" }));
});

test("null counts as an argument that is left out, and unknown tools are refused", async () => {
  await using mcp = await connected();
  const result = await mcp.client.callTool({
    name: "spawn_sandboxes",
    arguments: { snapshot_tag: "x", n: null },
  });
  assert.match(JSON.stringify(result.content), /daemon_unreachable/);
  await assert.rejects(mcp.client.callTool({ name: "no_such_tool" }), /no_such_tool/);
});
