/**
 * One sandbox: a machine with an id that a user owns.
 *
 *   running ──(VMM exits | agent lies or goes away)──► dead ──kill──► gone
 *      └──────────────────────kill─────────────────────────────────────┘
 *
 * A dead sandbox has released everything on the host; what is left is the record of why.
 */
import { AppError, type Language, type SandboxInfo } from "@forkd/contract";
import { Mutex, type Scope } from "@forkd/base";
import type { AgentClient, AgentProcess, Machine } from "@forkd/machine";
import type { StoredSnapshot } from "@forkd/store";
import type { GuestIdentity, SandboxPaths } from "../identity.ts";
import type { ChildRequest } from "../launch.ts";
import type { WarmKernel } from "../warm-kernel.ts";

export type SandboxParts = {
  id: string;
  snapshot: StoredSnapshot;
  identity: GuestIdentity;
  env: Record<string, string>;
  paths: SandboxPaths;
  machine: Machine;
  agent: AgentClient;
  kernels: Map<Language, WarmKernel>;
  scope: Scope;
  request: ChildRequest;
  readyMs: number;
};

export class Sandbox implements AsyncDisposable {
  readonly id: string;
  readonly env: Readonly<Record<string, string>>;
  readonly paths: SandboxPaths;
  readonly machine: Machine;
  readonly snapshot: StoredSnapshot;
  expiresAt: number | undefined;
  /** commands that a call follows at the moment */
  readonly attached = new Map<number, AgentProcess>();
  /** attachments for the moment, one at a time */
  readonly attaching = new Mutex();
  /** kernels being started again, so that two callers do not start two */
  readonly restarts = new Map<Language, Promise<WarmKernel>>();
  readonly #parts: SandboxParts;
  readonly #createdAt = Date.now() / 1000;
  #deathReason: string | undefined;
  #release: Promise<void> | undefined;
  #console = "";
  /** resolves with the reason once the sandbox is dead; never rejects */
  readonly died: Promise<string>;

  constructor(parts: SandboxParts) {
    this.#parts = parts;
    this.id = parts.id;
    this.env = parts.env;
    this.paths = parts.paths;
    this.machine = parts.machine;
    this.snapshot = parts.snapshot;
    const { ttlSecs } = parts.request;
    this.expiresAt = ttlSecs === undefined ? undefined : Date.now() / 1000 + ttlSecs;
    const machineEnd = parts.machine.exited.then((reason) => {
      this.#console = reason.console;
      return reason.text;
    });
    const agentEnd = parts.agent.closed.then(async (error) => {
      // When the VMM dies its sockets close first; its exit says more. 500 ms separates the two causes.
      const exit = await Promise.race([
        machineEnd,
        new Promise<undefined>((resolve) => setTimeout(() => resolve(undefined), 500).unref()),
      ]);
      return exit ?? `agent: ${error?.message ?? "the guest closed its port"}`;
    });
    this.died = Promise.race([machineEnd, agentEnd]).then((reason) => {
      this.#deathReason ??= reason;
      return this.#deathReason;
    });
  }

  get labels(): Readonly<Record<string, string>> {
    return this.#parts.request.labels;
  }

  get isDead(): boolean {
    return this.#deathReason !== undefined;
  }

  /** last lines of the console of a dead machine */
  get lastConsole(): string {
    return this.#console;
  }

  get agent(): AgentClient {
    this.#requireRunning();
    return this.#parts.agent;
  }

  kernel(language: Language | undefined): WarmKernel {
    this.#requireRunning();
    const { kernels } = this.#parts;
    const found = language === undefined ? kernels.values().next().value : kernels.get(language);
    if (found) return found;
    const has = [...kernels.keys()].join(", ") || "none";
    throw new AppError(
      "unsupported",
      `Cannot eval ${language ?? "code"} in ${this.id}: its snapshot has no such warm interpreter (it has: ${has}). Add it to "languages" of the recipe`,
      { details: { language, available: [...kernels.keys()] } },
    );
  }

  get kernels(): ReadonlyMap<Language, WarmKernel> {
    this.#requireRunning();
    return this.#parts.kernels;
  }

  /** Replaces a kernel that died. */
  setKernel(kernel: WarmKernel): void {
    this.#parts.kernels.set(kernel.language, kernel);
  }

  info(): SandboxInfo {
    const { machine } = this.snapshot.manifest;
    return {
      id: this.id,
      snapshot_tag: this.snapshot.tag,
      state: this.isDead ? "dead" : "running",
      ...(this.#deathReason !== undefined && { reason: this.#deathReason }),
      created_at_unix: this.#createdAt,
      ...(this.expiresAt !== undefined && { expires_at_unix: this.expiresAt }),
      ...(!this.isDead && { pid: this.machine.process.pid }),
      index: this.#parts.request.index,
      hostname: this.#parts.identity.hostname,
      labels: { ...this.labels },
      vcpus: machine.vcpus,
      memory_mib: machine.memory_mib,
      accelerator: machine.accelerator,
      languages: [...this.#parts.kernels.keys()],
      ready_ms: Math.round(this.#parts.readyMs * 10) / 10,
      pooled: this.#parts.request.pooled,
    };
  }

  #requireRunning(): void {
    if (this.#deathReason === undefined) return;
    throw new AppError(
      "sandbox_dead",
      `Cannot use ${this.id}: it is dead (${this.#deathReason}). Fork another one`,
      {
        details: { id: this.id, reason: this.#deathReason, console: this.#console },
      },
    );
  }

  /** Ends the machine and removes everything of it from the host. */
  [Symbol.asyncDispose](): Promise<void> {
    this.#deathReason ??= "killed";
    this.#release ??= this.#parts.scope[Symbol.asyncDispose]();
    return this.#release;
  }
}
