/** The official MCP client, connected to `forkd mcp` of a test's daemon. */
import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { createInterface } from "node:readline";
import {
  Client,
  StreamableHTTPClientTransport,
  type CallToolResult,
  type RequestOptions,
} from "@modelcontextprotocol/client";
import { StdioClientTransport } from "@modelcontextprotocol/client/stdio";
import { cliPath } from "../places.ts";
import type { TestDaemon } from "../daemon.ts";

type Answer<T = Record<string, unknown>> = CallToolResult & { data: T; text: string };

/** A connected client with shorter calls. */
export type TestClient = AsyncDisposable & {
  client: Client;
  /** Calls a tool that must succeed; `data` is its structured content. */
  call<T = Record<string, unknown>>(
    name: string,
    args?: Record<string, unknown>,
    options?: RequestOptions,
  ): Promise<Answer<T>>;
  /** Calls a tool that must fail; resolves to its error. */
  fail(name: string, args?: Record<string, unknown>): Promise<ToolError>;
};

type ToolError = {
  code: string;
  message: string;
  remedy?: string;
  details: Record<string, unknown>;
};

const info = { name: "forkd-tests", version: "1.0.0" };
/** The client's own limit is 60 s; a slow host needs more. */
const timeout = 300_000;

function wrap(client: Client): TestClient {
  const request = async (name: string, args: Record<string, unknown>, options: RequestOptions = {}) => {
    const result = (await client.callTool(
      { name, arguments: args },
      { timeout, ...options },
    )) as CallToolResult;
    const [first] = result.content;
    const data = result.structuredContent as Record<string, unknown>;
    return { ...result, data, text: first?.type === "text" ? first.text : "" };
  };
  return {
    client,
    call: async (name, args = {}, options = {}) => {
      const result = await request(name, args, options);
      assert.notEqual(result.isError, true, `${name}: ${result.text}`);
      return result as never;
    },
    fail: async (name, args = {}) => {
      const result = await request(name, args);
      assert.equal(result.isError, true, `${name} must fail: ${result.text}`);
      const error = result._meta?.["forkd/error"] as ToolError;
      assert.ok(result.text.includes(error.message) && result.text.includes(`Code: ${error.code}`));
      return error;
    },
    [Symbol.asyncDispose]: () => client.close(),
  };
}

/** Starts `forkd mcp` and connects over stdio. */
export async function overStdio(daemon: TestDaemon, args: readonly string[] = []): Promise<TestClient> {
  const env = Object.fromEntries(Object.entries(daemon.env).filter(([, value]) => value !== undefined));
  const client = new Client(info);
  await client.connect(
    new StdioClientTransport({
      command: process.execPath,
      args: [cliPath, "mcp", ...args],
      env: env as Record<string, string>,
      stderr: "inherit",
    }),
  );
  return wrap(client);
}

/** Connects over HTTP; `era` is that of the protocol. */
export async function overHttp(url: string, key: string, era: "sessions" | "modern"): Promise<TestClient> {
  const options = era === "modern" ? { versionNegotiation: { mode: { pin: "2026-07-28" } } } : {};
  const client = new Client(info, options as ConstructorParameters<typeof Client>[1]);
  const headers = { authorization: `Bearer ${key}` };
  await client.connect(new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } }));
  return wrap(client);
}

/** Starts `forkd mcp --http` on a free port. */
export async function startHttp(
  daemon: TestDaemon,
  args: readonly string[] = [],
): Promise<AsyncDisposable & { url: string; process: ChildProcess }> {
  const child = spawn(process.execPath, [cliPath, "mcp", "--http", "127.0.0.1:0", ...args], {
    env: daemon.env,
    stdio: ["ignore", "ignore", "pipe"],
  });
  const ended = once(child, "exit");
  const lines = createInterface({ input: child.stderr });
  let seen = "";
  for await (const line of lines) {
    seen += `${line}\n`;
    const url = /^Serving MCP at (\S+)$/.exec(line)?.[1];
    if (url === undefined) continue;
    lines.on("line", () => undefined);
    child.stderr.resume();
    const stop = async () => {
      child.kill("SIGTERM");
      await ended;
    };
    return { url, process: child, [Symbol.asyncDispose]: stop };
  }
  throw new Error(`forkd mcp --http ended: ${seen}`);
}
