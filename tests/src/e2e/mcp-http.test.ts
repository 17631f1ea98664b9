/** The MCP server over HTTP: keys, Origin, sessions and both eras of the protocol, with the official client. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import http from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { until } from "@forkd/test-support";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { overHttp, startHttp } from "../support/mcp/client.ts";

type Sandbox = { id: string; owner?: string; labels: Record<string, string> };
type List<T> = { result: T[] };

let daemon: TestDaemon;
let server: Awaited<ReturnType<typeof startHttp>>;
let id: string;
const keys = { run: "", other: "", read: "" };

before(async () => {
  daemon = await startDaemon({ snapshots: ["tiny"], env: { FORKD_LISTEN: "127.0.0.1:0" } });
  for (const name of ["run", "other", "read"] as const) {
    const scope = name === "read" ? "read" : "run";
    keys[name] = (await daemon.forkd.call("createKey", { name, scope })).key;
  }
  server = await startHttp(daemon, ["--allow-host", "mcp.example.com"]);
  const entries = await daemon.forkd.call("fork", { snapshot_tag: "tiny" });
  id = entries[0] !== undefined && "id" in entries[0] ? entries[0].id : "";
});
after(async () => {
  await server[Symbol.asyncDispose]();
  await daemon[Symbol.asyncDispose]();
});

/** A raw request, as a program without the client would send it. */
async function send(
  headers: Record<string, string>,
  message: unknown,
  method = "POST",
): Promise<{ status: number; headers: http.IncomingHttpHeaders; text: string }> {
  const request = http.request(server.url, {
    method,
    headers: {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      ...headers,
    },
  });
  request.end(method === "POST" ? JSON.stringify(message) : undefined);
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  let text = "";
  for await (const chunk of response) text += String(chunk);
  return { status: response.statusCode ?? 0, headers: response.headers, text };
}

const initialize = {
  jsonrpc: "2.0",
  id: 1,
  method: "initialize",
  params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo: { name: "x", version: "1" } },
};

test("requests without a valid key, or from a page of another site, are refused", async () => {
  const valid = { authorization: `Bearer ${keys.run}` };
  const cases: [headers: Record<string, string>, status: number, message: RegExp][] = [
    [{}, 401, /has no key/],
    [{ authorization: "Bearer wrong-key-wrong-key" }, 401, /token is wrong/],
    [{ authorization: `Basic ${keys.run}` }, 401, /has no key/],
    [{ ...valid, origin: "https://evil.example" }, 403, /Origin "https:\/\/evil\.example" is refused/],
    [{ ...valid, origin: "null" }, 403, /Origin/],
    [{ ...valid, host: "evil.example" }, 403, /Host "evil\.example" is refused/],
    [{ ...valid, "sec-fetch-site": "cross-site" }, 403, /browser/],
  ];
  for (const [headers, status, message] of cases) {
    const answer = await send(headers, initialize);
    assert.equal(answer.status, status, `${JSON.stringify(headers)}: ${answer.text}`);
    assert.match((JSON.parse(answer.text) as { error: { message: string } }).error.message, message);
    if (status === 401) assert.match(answer.headers["www-authenticate"] ?? "", /^Bearer/);
  }
  for (const headers of [{ host: "mcp.example.com" }, { origin: new URL(server.url).origin }, {}])
    assert.equal((await send({ ...valid, ...headers }, initialize)).status, 200, JSON.stringify(headers));
  await assert.rejects(overHttp(server.url, "wrong-key-wrong-key", "sessions"));
  await assert.rejects(overHttp(server.url, "wrong-key-wrong-key", "modern"));
});

for (const era of ["sessions", "modern"] as const)
  test(`tools, resources and prompts work over HTTP (${era}), with the rights of the key`, async () => {
    await using mcp = await overHttp(server.url, keys.run, era);
    assert.ok((await mcp.client.listTools()).tools.length > 20);
    assert.ok((await mcp.client.listPrompts()).prompts.length > 0);
    const { data } = await mcp.call<List<Sandbox>>("spawn_sandboxes", { snapshot_tag: "tiny" });
    const [sandbox] = data.result;
    assert.equal(sandbox?.owner, "run");
    assert.match(sandbox?.labels["mcp"] ?? "", /^http-/);
    const sandbox_id = sandbox?.id ?? "";
    const seen: unknown[] = [];
    const output = await mcp.call<{ stdout: string; whole?: Record<string, string> }>(
      "exec_command",
      { sandbox_id, command: "seq 1 5000; sleep 1.5", max_output_bytes: 600 },
      { onprogress: (progress) => seen.push(progress) },
    );
    assert.ok(seen.length > 0);
    const uri = output.data.whole?.["stdout"] ?? "";
    const [content] = (await mcp.client.readResource({ uri })).contents;
    assert.ok(content && "text" in content && content.text.endsWith("\n5000\n"));
    await using stranger = await overHttp(server.url, keys.other, era);
    await assert.rejects(stranger.client.readResource({ uri }), /There is no output/);
    assert.equal((await stranger.fail("read_output", { uri })).code, "not_found");
    await mcp.call("kill_sandbox", { sandbox_id });

    await using reader = await overHttp(server.url, keys.read, era);
    const refused = await reader.fail("spawn_sandboxes", { snapshot_tag: "tiny" });
    assert.equal(refused.code, "forbidden");
  });

for (const era of ["sessions", "modern"] as const)
  test(`cancelling a call over HTTP kills its command (${era})`, async () => {
    await using mcp = await overHttp(server.url, keys.run, era);
    const abort = new AbortController();
    const command = `echo x > /tmp/${era}; exec sleep 888`;
    const args = { sandbox_id: id, command, timeout_secs: 0 };
    const cancelled = assert.rejects(mcp.call("exec_command", args, { signal: abort.signal }));
    await mcp.call("wait_for_text", { sandbox_id: id, path: `/tmp/${era}`, marker: "x" });
    abort.abort("enough");
    await cancelled;
    await untilNoSleeper();
  });

test("a session belongs to its key, and its end ends its calls", async () => {
  const authorization = `Bearer ${keys.run}`;
  const begun = await send({ authorization }, initialize);
  const session = String(begun.headers["mcp-session-id"]);
  const list = { jsonrpc: "2.0", id: 2, method: "tools/list" };
  const other = { authorization: `Bearer ${keys.other}`, "mcp-session-id": session };
  assert.equal((await send(other, list)).status, 404);
  const own = { authorization, "mcp-session-id": session };
  assert.match((await send(own, list)).text, /exec_command/);
  assert.equal((await send({ authorization }, list)).status, 400);

  const call = {
    jsonrpc: "2.0",
    id: 3,
    method: "tools/call",
    params: {
      name: "exec_command",
      arguments: { sandbox_id: id, command: "echo x > /tmp/session; exec sleep 888", timeout_secs: 0 },
    },
  };
  const open = send(own, call);
  const wait = { name: "wait_for_text", arguments: { sandbox_id: id, path: "/tmp/session", marker: "x" } };
  await send(own, { jsonrpc: "2.0", id: 4, method: "tools/call", params: wait });
  assert.equal((await send(own, undefined, "DELETE")).status, 200);
  await open;
  await untilNoSleeper();
  assert.equal((await send(own, list)).status, 404);
});

test("a client that disappears in the middle of a call leaves no command behind", async () => {
  const authorization = `Bearer ${keys.run}`;
  const begun = await send({ authorization }, initialize);
  const own = { authorization, "mcp-session-id": String(begun.headers["mcp-session-id"]) };
  const request = http.request(server.url, {
    method: "POST",
    headers: { "content-type": "application/json", accept: "application/json, text/event-stream", ...own },
  });
  request.on("error", () => undefined);
  const args = { sandbox_id: id, command: "echo x > /tmp/gone; exec sleep 888", timeout_secs: 0 };
  request.end(
    JSON.stringify({
      jsonrpc: "2.0",
      id: 5,
      method: "tools/call",
      params: { name: "exec_command", arguments: args },
    }),
  );
  const wait = { name: "wait_for_text", arguments: { sandbox_id: id, path: "/tmp/gone", marker: "x" } };
  await send(own, { jsonrpc: "2.0", id: 6, method: "tools/call", params: wait });
  request.destroy();
  await untilNoSleeper();
});

test("a key file replaces the keys of the daemon, and an address of a network needs TLS", async () => {
  const file = join(daemon.dir, "mcp.key");
  await writeFile(file, "a-key-of-this-server\n");
  await using own = await startHttp(daemon, ["--key-file", file, "--kill-on-exit"]);
  await assert.rejects(overHttp(own.url, keys.run, "sessions"));
  await using mcp = await overHttp(own.url, "a-key-of-this-server", "sessions");
  await mcp.call<List<Sandbox>>("spawn_sandboxes", { snapshot_tag: "tiny" });
  const before = (await daemon.forkd.call("listSandboxes", {})).length;
  const ended = once(own.process, "exit");
  own.process.kill("SIGTERM");
  await ended;
  assert.equal((await daemon.forkd.call("listSandboxes", {})).length, before - 1);

  await assert.rejects(startHttp(daemon, ["--http", "0.0.0.0:0", "--key-file", file]), /needs TLS/);
});

async function untilNoSleeper(): Promise<void> {
  const sandbox = await daemon.forkd.sandboxes.get(id);
  await until("the command is gone", async () => {
    const all = await sandbox.commands.list();
    return !all.some(({ state, args }) => state === "running" && args?.join(" ").includes("sleep 888"));
  });
}
