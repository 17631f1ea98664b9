/** Programs from a cold start: the CLI, and the MCP server until it has listed its tools. */
import { spawn } from "node:child_process";
import { join } from "node:path";
import { command, deadline, exitOf, limits } from "../deadline.ts";
import { addTimes, inRounds, timed } from "../network/measure.ts";
import type { Rows } from "../rows.ts";
import { repository } from "../run.ts";

const cli = join(repository, "packages/cli/dist/bundle/forkd.cjs");
const protocolVersion = "2025-06-18";

/** The messages of a client that wants the list of tools. */
const messages = [
  {
    id: 1,
    method: "initialize",
    params: { protocolVersion, capabilities: {}, clientInfo: { name: "bench", version: "0" } },
  },
  { method: "notifications/initialized" },
  { id: 2, method: "tools/list", params: {} },
].map((each) => `${JSON.stringify({ jsonrpc: "2.0", ...each })}\n`);

/** Starts `forkd mcp`, asks for its tools and returns how many there are when the answer is there. */
async function listTools(env: NodeJS.ProcessEnv): Promise<number> {
  const child = spawn(process.execPath, [cli, "mcp"], { env, stdio: ["pipe", "pipe", "pipe"] });
  let [text, failure] = ["", ""];
  child.stderr.on("data", (chunk: Buffer) => (failure += chunk.toString()));
  const answered = new Promise<number>((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", (code) => reject(new Error(`forkd mcp exited with ${code}: ${failure.slice(-500)}`)));
    child.stdout.on("data", (chunk: Buffer) => {
      text += chunk.toString();
      for (const line of text.split("\n").slice(0, -1)) {
        const { id, result } = JSON.parse(line) as { id?: number; result?: { tools?: unknown[] } };
        if (id === 2) resolve(result?.tools?.length ?? 0);
      }
    });
  });
  answered.catch(() => undefined);
  child.stdin.on("error", () => undefined);
  child.stdin.write(messages.join(""));
  try {
    return await deadline("the list of tools", limits.command, answered);
  } finally {
    child.kill("SIGKILL");
    await exitOf("forkd mcp", child, limits.command);
  }
}

export async function measureStarts(rows: Rows, env: NodeJS.ProcessEnv, starts: number): Promise<void> {
  const start = async (args: readonly string[]) => [
    await timed(() => command(process.execPath, args, { env })),
  ];
  const tools = async () => {
    if ((await listTools(env)) === 0) throw new Error("forkd mcp has no tools");
  };
  const found = await inRounds(starts, {
    "start, node": () => start(["-e", "0"]),
    "start, forkd ls": () => start([cli, "ls"]),
    "start, mcp tools": async () => [await timed(tools)],
  });
  for (const [name, times] of Object.entries(found)) addTimes(rows, name, times);
}
