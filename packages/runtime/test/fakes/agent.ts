/** The guest's agent on the host: the same program that runs in a VM, with the host's processes and files. */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { AgentClient } from "@forkd/machine";
import { guestDir } from "../support.ts";

export async function openAgent(t: TestContext): Promise<{ agent: AgentClient; directory: string }> {
  const directory = await mkdtemp(join(tmpdir(), "forkd-agent-"));
  const path = join(directory, ".socket");
  const server = createServer().listen(path);
  await once(server, "listening");
  const accepted = once(server, "connection");
  const child = spawn(join(guestDir, "build/forkd-agent"), ["--serve", path], { stdio: "ignore" });
  const exited = once(child, "exit");
  const [socket] = (await Promise.race([
    accepted,
    once(child, "error").then(([error]) => Promise.reject(error)),
  ])) as [Socket];
  server.close();
  const agent = AgentClient.open(socket, { atBoundary: true });
  t.after(async () => {
    // Commands outlive their agent.
    const listed = await agent.list().catch(() => []);
    for (const { pid, finished } of listed) if (!finished) killGroup(pid);
    await agent[Symbol.asyncDispose]();
    // It ends when its connection does.
    await exited;
    await rm(directory, { recursive: true, force: true });
  });
  await agent.ready;
  return { agent, directory };
}

function killGroup(pid: number): void {
  try {
    process.kill(-pid, "SIGKILL");
  } catch {
    // it has ended in between
  }
}
