/** The agent of the guest, run on the host: the same program that serves the port of a VM. */
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { AgentClient } from "../../../src/agent/client.ts";

// From dist/test/agent/support.
const root = fileURLToPath(new URL("../../../../../../", import.meta.url));
const binary = join(root, "guest/build/forkd-agent");
export const pythonKernel = join(root, "guest/kernels/python/kernel.py");
export const goldenFrames = join(root, "guest/testdata/frames.txt");

export class RealAgent implements AsyncDisposable {
  /** empty, removed at the end */
  readonly directory: string;
  readonly #child: ChildProcess;
  readonly #client: AgentClient;

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
    return new RealAgent(directory, child, AgentClient.open(socket, { atBoundary: true }));
  }

  private constructor(directory: string, child: ChildProcess, client: AgentClient) {
    this.directory = directory;
    this.#child = child;
    this.#client = client;
  }

  get client(): AgentClient {
    return this.#client;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const exited = this.#child.exitCode === null ? once(this.#child, "exit") : undefined;
    await this.#client[Symbol.asyncDispose]();
    // It ends when its connection does; one that does not would keep the test waiting, which is a failure.
    await exited;
    await rm(this.directory, { recursive: true, force: true });
  }
}
