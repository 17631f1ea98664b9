/**
 * One machine of a sandbox, from its start to its end. A sandbox has one at a time: being resumed or rewound gives it another,
 * numbered one higher, so that the new one is complete before the old one goes.
 */
import type { AppError, Language, NotEnforced } from "@forkd/contract";
import { Mutex, within, type Scope } from "@forkd/base";
import type { AgentClient, AgentProcess, ExitReason, Machine } from "@forkd/machine";
import type { FileDigest, StoredSnapshot } from "@forkd/store";
import type { SandboxPaths } from "./paths.ts";
import type { WarmKernel } from "../launch/warm-kernel.ts";
import type { MachineFacts } from "./record.ts";

export type SandboxMachineParts = {
  number: number;
  base: StoredSnapshot;
  paths: SandboxPaths;
  machine: Machine;
  agent: AgentClient;
  kernels: Map<Language, WarmKernel>;
  /** stamp of the flat image that it maps, if it maps one */
  imageStamp: string | undefined;
  scope: Scope;
  readyMs: number;
  pooled: boolean;
  /** default: the one that a machine begins with */
  overlays?: number;
  /** limits that it is asked to keep and is not held to */
  notEnforced?: readonly NotEnforced[];
  /** knows more about an exit than the VMM tells */
  diagnose?: (exit: ExitReason) => string | undefined;
};

/** The VMM's sockets close a moment before its exit is known, and the exit says more. */
const exitGraceMs = 500;

export class SandboxMachine implements AsyncDisposable {
  readonly number: number;
  /** what its memory and disk were when it began */
  readonly base: StoredSnapshot;
  readonly paths: SandboxPaths;
  readonly machine: Machine;
  readonly agent: AgentClient;
  readonly kernels: Map<Language, WarmKernel>;
  readonly readyMs: number;
  readonly pooled: boolean;
  readonly notEnforced: readonly NotEnforced[];
  /** commands that a call follows at the moment */
  readonly attached = new Map<number, AgentProcess>();
  /** attachments for the moment, one at a time */
  readonly attaching = new Mutex();
  /** kernels being started again or found again, so that two callers do not start two */
  readonly restarts = new Map<Language, Promise<WarmKernel>>();
  /** digests of disk layers that it has frozen, by path */
  readonly frozen = new Map<string, FileDigest>();
  /** overlays made so far, for their names */
  overlays: number;
  readonly #imageStamp: string | undefined;
  /** resolves when the machine or its agent has ended; never rejects */
  readonly ended: Promise<{ reason: string; console: string }>;
  readonly #scope: Scope;
  #release: Promise<void> | undefined;

  constructor(parts: SandboxMachineParts) {
    this.number = parts.number;
    this.base = parts.base;
    this.paths = parts.paths;
    this.machine = parts.machine;
    this.agent = parts.agent;
    this.kernels = parts.kernels;
    this.readyMs = parts.readyMs;
    this.pooled = parts.pooled;
    this.notEnforced = parts.notEnforced ?? [];
    this.#scope = parts.scope;
    this.#imageStamp = parts.imageStamp;
    this.overlays = parts.overlays ?? 1;
    const machineEnd = parts.machine.exited.then((exit) => ({
      reason: parts.diagnose?.(exit) ?? exit.text,
      console: exit.console,
    }));
    const agentEnd = parts.agent.closed.then(async (error) => {
      const exit = await within(machineEnd, exitGraceMs);
      if (!exit && parts.machine.isEnding) return machineEnd;
      return exit ?? { reason: `agent: ${error?.message ?? "the guest closed its port"}`, console: "" };
    });
    this.ended = Promise.race([machineEnd, agentEnd]);
  }

  /** of its kernels, also those that are being started */
  get languages(): Language[] {
    return this.#inOrder([...new Set([...this.kernels.keys(), ...this.restarts.keys()])], (each) => each);
  }

  /** Adds one that was found again. They keep the order of the snapshot, whose first is the one meant by default. */
  addKernel(kernel: WarmKernel): void {
    this.kernels.set(kernel.language, kernel);
    const all = this.#inOrder([...this.kernels.values()], ({ language }) => language);
    this.kernels.clear();
    for (const each of all) this.kernels.set(each.language, each);
  }

  #inOrder<T>(items: T[], languageOf: (item: T) => Language): T[] {
    const order = this.base.manifest.kernels.map(({ language }) => language);
    return items.sort((a, b) => order.indexOf(languageOf(a)) - order.indexOf(languageOf(b)));
  }

  /** For the record of its sandbox. */
  get facts(): MachineFacts {
    return {
      number: this.number,
      process: this.machine.process,
      socketDir: this.paths.socketDir,
      base: this.base,
      imageStamp: this.#imageStamp,
    };
  }

  /** Lets go of the machine, which runs on; nothing of it is removed. What callers have open into it rejects. */
  async letGo(reason: AppError): Promise<void> {
    this.#scope.keep();
    await this.agent.close(reason);
    await this.machine.leave();
  }

  /** Ends the machine; what callers have open into it rejects with the reason. */
  async end(reason: AppError): Promise<void> {
    await this.agent.close(reason);
    await this[Symbol.asyncDispose]();
  }

  /** Ends the machine and removes everything of it from the host. */
  [Symbol.asyncDispose](): Promise<void> {
    this.#release ??= this.#scope[Symbol.asyncDispose]();
    return this.#release;
  }
}
