/**
 * One machine of a sandbox, from its start to its end. A resume or a rewind gives the sandbox another one
 * with the next number, so that the new one is complete before the old one ends.
 */
import { basename, dirname, join } from "node:path";
import {
  advice,
  AppError,
  type AskedLimits,
  type Language,
  type NotEnforced,
  type SandboxInfo,
} from "@forkd/contract";
import { Mutex, within, type Scope } from "@forkd/base";
import type { AgentClient, AgentProcess, ExitReason, Machine } from "@forkd/machine";
import type { FileDigest, StoredSnapshot } from "@forkd/store";
import type { SharedOutput } from "../guest/shared-output.ts";
import type { MachineSlot } from "../network/network.ts";
import type { SandboxNetwork } from "../network/sandbox-network.ts";
import type { SandboxPaths } from "./paths.ts";
import type { WarmKernel } from "../launch/warm-kernel.ts";
import type { EndReason, Loss } from "./exit-reason.ts";
import type { MachineFacts, MappedImage } from "./record.ts";

type SandboxMachineParts = {
  number: number;
  base: StoredSnapshot;
  paths: SandboxPaths;
  machine: Machine;
  agent: AgentClient;
  slot: MachineSlot;
  kernels: Map<Language, WarmKernel>;
  /** the flat image or view that it maps, if it maps one */
  image: MappedImage | undefined;
  scope: Scope;
  readyMs: number;
  /** whether it waited in the pool until it was handed out, or was started for its sandbox */
  from: SandboxInfo["from"];
  /** disk overlays made so far; default: the one that a machine starts with */
  overlays?: number;
  /** limits that were asked for and that the host does not enforce */
  notEnforced?: readonly NotEnforced[];
  /** the reason of an exit, where the limits of the machine say more than the exit */
  diagnose?: (exit: ExitReason) => EndReason | undefined;
};

/** A process that is attached, and its output for all calls that read it. */
export type FollowedProcess = { readonly process: AgentProcess; readonly output: SharedOutput };

/** The VMM's sockets close a moment before its exit is known, and the exit says more. */
const exitGraceMs = 500;

export class SandboxMachine implements AsyncDisposable {
  readonly number: number;
  /** what its memory and disk started from */
  readonly base: StoredSnapshot;
  readonly paths: SandboxPaths;
  readonly machine: Machine;
  readonly agent: AgentClient;
  /** its network */
  readonly slot: MachineSlot;
  readonly kernels: Map<Language, WarmKernel>;
  readonly readyMs: number;
  readonly from: SandboxInfo["from"];
  readonly notEnforced: readonly NotEnforced[];
  /** processes that Linux in the guest has killed for lack of memory, when they were last counted */
  oomKills = 0;
  /** commands whose output calls read at the moment, by id */
  readonly #followed = new Map<number, FollowedProcess>();
  readonly #attaching = new Mutex();
  readonly #restarts = new Map<Language, Promise<WarmKernel>>();
  /** digests of the disk layers that it has frozen, by path */
  readonly #frozen = new Map<string, FileDigest>();
  #overlays: number;
  readonly #image: MappedImage | undefined;
  /** resolves when the VMM has exited or the agent has closed its connection; never rejects */
  readonly ended: Promise<Loss>;
  readonly #scope: Scope;
  #disposal: Promise<void> | undefined;

  constructor(parts: SandboxMachineParts) {
    this.number = parts.number;
    this.base = parts.base;
    this.paths = parts.paths;
    this.machine = parts.machine;
    this.agent = parts.agent;
    this.slot = parts.slot;
    this.kernels = parts.kernels;
    this.readyMs = parts.readyMs;
    this.from = parts.from;
    this.notEnforced = parts.notEnforced ?? [];
    this.#scope = parts.scope;
    this.#image = parts.image;
    this.#overlays = parts.overlays ?? 1;
    const machineEnd = parts.machine.exited.then((exit): Loss => ({
      reason: parts.diagnose?.(exit) ?? { text: exit.text },
      console: exit.console,
    }));
    const agentEnd = parts.agent.closed.then(async (error): Promise<Loss> => {
      const exit = await within(machineEnd, exitGraceMs);
      if (!exit && parts.machine.isEnding) return machineEnd;
      const text = `agent: ${error?.message ?? "the guest closed its port"}`;
      return exit ?? { reason: { text }, console: "" };
    });
    this.ended = Promise.race([machineEnd, agentEnd]);
  }

  /** Lets other calls use a process and its output while a call reads it. */
  addFollowed(followed: FollowedProcess): void {
    this.#followed.set(followed.process.id, followed);
  }

  removeFollowed(followed: FollowedProcess): void {
    const { id } = followed.process;
    if (this.#followed.get(id) === followed) this.#followed.delete(id);
  }

  /** A command whose output calls read. */
  followed(execId: number): FollowedProcess | undefined {
    return this.#followed.get(execId);
  }

  /** For `work` that attaches to a command for a moment: one at a time. */
  attachBriefly<T>(work: () => Promise<T>): Promise<T> {
    return this.#attaching.run(work);
  }

  /** Kernels that are being started or recovered. */
  get restarts(): ReadonlyMap<Language, Promise<WarmKernel>> {
    return this.#restarts;
  }

  /**
   * Makes callers wait for this kernel instead of starting a second one. Takes it as its own when it is
   * ready.
   */
  addRestart(language: Language, starting: Promise<WarmKernel>): Promise<WarmKernel> {
    const restart = starting
      .then((kernel) => {
        this.addKernel(kernel);
        return kernel;
      })
      .finally(() => this.#restarts.delete(language));
    this.#restarts.set(language, restart);
    return restart;
  }

  /** The languages of its kernels, including those that are being started. */
  get languages(): Language[] {
    return this.#inOrder([...new Set([...this.kernels.keys(), ...this.#restarts.keys()])], (each) => each);
  }

  /** The kernel of that language, or the first one. */
  kernel(language: Language | undefined): WarmKernel {
    const { kernels, languages } = this;
    const found = language === undefined ? kernels.values().next().value : kernels.get(language);
    if (found) return found;
    const has = languages.join(", ") || "none";
    throw new AppError(
      "unsupported",
      `Cannot eval ${language ?? "code"} in ${basename(dirname(this.paths.dir))}: its snapshot has no such warm interpreter (it has: ${has})`,
      {
        details: { language, available: languages },
        remedy: advice('Add it to "languages" of the recipe.'),
      },
    );
  }

  /** Kernels keep the order of the snapshot, whose first is the default. */
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

  /** What is no longer allowed is closed first; only then the guest sees its link change. */
  async applyNetwork(network: SandboxNetwork, limits: AskedLimits | undefined): Promise<void> {
    await this.slot.apply(network, limits);
    await this.agent.setNetwork(network.mode !== "none");
  }

  /** For the record of the sandbox. */
  get facts(): MachineFacts {
    return {
      number: this.number,
      process: this.machine.process,
      socketDir: this.paths.socketDir,
      base: this.base,
      image: this.#image,
    };
  }

  /** The digest of a disk layer that it has frozen, if it is known. */
  frozenDigest(path: string): FileDigest | undefined {
    return this.#frozen.get(path);
  }

  addFrozen(path: string, digest: FileDigest): void {
    this.#frozen.set(path, digest);
  }

  forgetFrozen(path: string): void {
    this.#frozen.delete(path);
  }

  /** Path for another disk overlay. */
  nextOverlayPath(): string {
    return join(this.paths.dir, `disk-${this.#overlays++}.qcow2`);
  }

  /**
   * The machine keeps running without this daemon; nothing of it is removed. Open calls into it fail with the
   * reason.
   */
  async release(reason: AppError): Promise<void> {
    this.#scope.keep();
    await this.agent.close(reason);
    await this.machine.leave();
  }

  /** Ends the machine; open calls into it fail with the reason. */
  async end(reason: AppError): Promise<void> {
    await this.agent.close(reason);
    await this[Symbol.asyncDispose]();
  }

  /** Ends the machine and removes everything of it from the host. */
  [Symbol.asyncDispose](): Promise<void> {
    this.#disposal ??= this.#scope[Symbol.asyncDispose]();
    return this.#disposal;
  }
}
