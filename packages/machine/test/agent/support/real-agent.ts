/** The guest agent on the host: the same program that runs in a VM. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { AgentClient } from "../../../src/agent/client.ts";
import { socketPair } from "./fake-guest.ts";

// Relative to dist/test/agent/support.
const root = fileURLToPath(new URL("../../../../../../", import.meta.url));
const binary = join(root, "guest/build/forkd-agent");
export const pythonKernel = join(root, "guest/kernels/python/kernel.py");
export const goldenFrames = join(root, "guest/testdata/frames.txt");

export class RealAgent implements AsyncDisposable {
  /** empty at first, removed on dispose */
  readonly directory: string;
  readonly #child: ChildProcess;
  readonly #socket: Socket;
  #client: AgentClient;
  readonly #hosts: Socket[] = [];

  static async open(): Promise<RealAgent> {
    if (!existsSync(binary)) throw new Error(`${binary} is missing: run make -C guest`);
    const directory = await mkdtemp(join(tmpdir(), "agent-test-"));
    const server = createServer();
    server.listen(join(directory, ".socket"));
    await once(server, "listening");
    const accepted = once(server, "connection");
    const child = spawn(binary, ["--serve", join(directory, ".socket")], {
      stdio: ["ignore", "ignore", "inherit"],
    });
    const [socket] = (await Promise.race([
      accepted,
      once(child, "error").then(([error]) => Promise.reject(error)),
    ])) as [Socket];
    server.close();
    await rm(join(directory, ".socket"), { force: true });
    return new RealAgent(directory, child, socket, AgentClient.open(socket, { atBoundary: true }));
  }

  /** Opens an agent behind a relay, so that `nextHost` can replace the host as after a branch. */
  static async openRelayed(): Promise<RealAgent> {
    const agent = await RealAgent.open();
    await agent.client.ready;
    agent.#socket.removeAllListeners("data");
    await agent.nextHost();
    return agent;
  }

  private constructor(directory: string, child: ChildProcess, socket: Socket, client: AgentClient) {
    this.directory = directory;
    this.#child = child;
    this.#socket = socket;
    this.#client = client;
  }

  get client(): AgentClient {
    return this.#client;
  }

  /**
   * Replaces the host at an arbitrary point of its communication. `cut` is the start of a frame that the
   * previous host did not finish.
   */
  async nextHost(cut: Buffer = Buffer.alloc(0)): Promise<AgentClient> {
    const [near, far] = await socketPair();
    this.#socket.removeAllListeners("data");
    this.#socket.write(cut);
    this.#socket.on("data", (chunk: Buffer) => far.write(chunk));
    far.on("data", (chunk: Buffer) => this.#socket.write(chunk));
    far.on("error", () => undefined);
    this.#client = AgentClient.open(near, { atBoundary: false });
    this.#hosts.push(far);
    return this.#client;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const exited = this.#child.exitCode === null ? once(this.#child, "exit") : undefined;
    await this.#client[Symbol.asyncDispose]();
    for (const host of this.#hosts) host.destroy();
    this.#socket.destroy();
    // The agent must exit when its connection ends; otherwise the test times out here.
    await exited;
    await rm(this.directory, { recursive: true, force: true });
  }
}

/** Code that runs until `open` is called. */
export function gate(agent: RealAgent): { wait: string; open: () => Promise<void> } {
  const path = join(agent.directory, "gate");
  return {
    wait: `import os, time\nwhile not os.path.exists(${JSON.stringify(path)}): time.sleep(0.005)\n`,
    open: () => writeFile(path, ""),
  };
}
