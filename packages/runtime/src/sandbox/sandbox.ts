/**
 * One sandbox: an id that a user owns, its state (states.ts), and the work around each change of state. Other
 * files change it only through the methods below.
 */
import { AppError, type Language, type SandboxInfo } from "@forkd/contract";
import { Mutex, type Scope } from "@forkd/base";
import type { AgentClient, Machine } from "@forkd/machine";
import type { SandboxHome } from "./paths.ts";
import type { WarmKernel } from "../launch/warm-kernel.ts";
import {
  changeTimeouts,
  childEnv,
  noTimeouts,
  type SandboxFacts,
  type SandboxTimeouts,
  type SavedState,
  type TimeoutChanges,
} from "./facts.ts";
import { noNetwork, type SandboxNetwork } from "../network/sandbox-network.ts";
import { deadError, explainEnd, looksLikeEnd, type EndReason, type Loss } from "./exit-reason.ts";
import { sandboxInfo } from "./info.ts";
import { SandboxPorts, type OpenPort } from "./ports.ts";
import type { SandboxMachine } from "./sandbox-machine.ts";
import { recordOf, type RecordState } from "./record.ts";
import { RecordFile } from "./record-file.ts";
import * as states from "./states.ts";

type AttachOptions = { expiresAt?: number | undefined; rewound?: states.Rewound | undefined };

export class Sandbox implements AsyncDisposable {
  readonly facts: SandboxFacts;
  readonly id: string;
  readonly home: SandboxHome;
  readonly record: RecordFile;
  readonly ports: SandboxPorts;
  #state: states.SandboxState;
  #ttlSecs: number | undefined;
  #timeouts: SandboxTimeouts;
  /** where it may connect to, whichever machine it has; changed by changeNetwork() */
  network: SandboxNetwork;
  /** branches of it so far by this daemon; countBranch() adds one */
  branchCount = 0;
  #pauseFailures: { text: string; count: number } | undefined;
  /** Unix time of the last call; touch() sets it */
  lastActive: number;
  #machines: number;
  readonly #lifecycle = new Mutex();
  /** fires when it is dead */
  readonly #ending = new AbortController();
  readonly #homeScope: Scope;
  #disposal: Promise<void> | undefined;
  #onRevert: () => void = () => undefined;
  /** resolves with the reason once it is dead, unless it was killed; never rejects */
  readonly died: Promise<string>;
  #resolveDied: (reason: string) => void = () => undefined;

  constructor(parts: {
    facts: SandboxFacts;
    home: SandboxHome;
    homeScope: Scope;
    snapshotTag: string;
    saved?: SavedState | undefined;
    visited?: readonly string[] | undefined;
    ttlSecs: number | undefined;
    timeouts?: SandboxTimeouts | undefined;
    network?: SandboxNetwork | undefined;
    ports?: readonly OpenPort[] | undefined;
    /** how many machines it has had, which is the number of the next one */
    machines: number;
    /** default: now */
    lastActive?: number | undefined;
  }) {
    const { facts, snapshotTag, saved, visited = [] } = parts;
    this.facts = facts;
    this.id = facts.id;
    this.home = parts.home;
    this.record = new RecordFile(parts.home);
    this.ports = new SandboxPorts(parts.ports);
    const isWorkspace = facts.workspace !== undefined;
    this.#state = { kind: "new", origin: { snapshotTag, saved, visited, isWorkspace } };
    this.#ttlSecs = parts.ttlSecs;
    this.#timeouts = parts.timeouts ?? noTimeouts;
    this.network = parts.network ?? noNetwork;
    this.#homeScope = parts.homeScope;
    this.#machines = parts.machines;
    this.lastActive = parts.lastActive ?? now();
    this.died = new Promise((resolve) => (this.#resolveDied = resolve));
  }

  /** Its state with all that belongs to it; `state` is what the API shows. */
  get status(): states.SandboxState {
    return this.#state;
  }

  get state(): SandboxInfo["state"] {
    return states.publicState(this.#state);
  }

  get isDead(): boolean {
    return states.isDead(this.#state);
  }

  get needsResume(): boolean {
    return states.needsResume(this.#state);
  }

  /** last console lines of a machine that ended */
  get lastConsole(): string {
    return states.lastConsole(this.#state);
  }

  /** the state that the next machine starts from, if one was saved */
  get saved(): SavedState | undefined {
    return this.#state.origin.saved;
  }

  /** ids of the snapshots that it came from, beside the chain of the current one */
  get visited(): readonly string[] {
    return this.#state.origin.visited;
  }

  /** the tagged snapshot that it descends from */
  get snapshotTag(): string {
    return this.#state.origin.snapshotTag;
  }

  /** time to live, counted again from the start of each machine */
  get ttlSecs(): number | undefined {
    return this.#ttlSecs;
  }

  /** when the time to live of its machine is over */
  get expiresAt(): number | undefined {
    return states.lastAttached(this.#state)?.expiresAt;
  }

  get timeouts(): SandboxTimeouts {
    return this.#timeouts;
  }

  /** Throws if it is dead. */
  requireAlive(): void {
    const death = this.death();
    if (death) throw death;
  }

  /** Throws the error of a saved state that cannot be read. */
  requireResumable(): void {
    if (this.#state.kind === "unresumable") throw this.#state.error;
  }

  /** The error for its callers if it is dead. */
  death(cause?: unknown): AppError | undefined {
    if (!this.isDead) return undefined;
    const reason = states.reasonOf(this.#state) ?? { text: "killed" };
    return deadError({ id: this.id, tag: this.snapshotTag }, { reason, console: this.lastConsole }, cause);
  }

  /** The machine that takes calls; throws if there is none. */
  get current(): SandboxMachine {
    this.requireAlive();
    const machine = this.machineAtWork;
    if (!machine || !states.takesCalls(this.#state)) {
      throw new AppError("sandbox_paused", `Cannot use ${this.id}: it is paused`, {
        details: { id: this.id },
        remedy: { action: "resume", id: this.id },
      });
    }
    return machine;
  }

  /** The machine that it has, also while that is being saved. */
  get machineAtWork(): SandboxMachine | undefined {
    return states.machineOf(this.#state);
  }

  get agent(): AgentClient {
    return this.current.agent;
  }

  get machine(): Machine {
    return this.current.machine;
  }

  /** variables of commands and kernels */
  get env(): Readonly<Record<string, string>> {
    return childEnv(this.current.base.manifest.env, this.facts, this.network);
  }

  get kernels(): ReadonlyMap<Language, WarmKernel> {
    return this.current.kernels;
  }

  kernel(language: Language | undefined): WarmKernel {
    return this.current.kernel(language);
  }

  get machineCount(): number {
    return this.#machines;
  }

  /** Number for the next machine. */
  nextNumber(): number {
    return this.#machines++;
  }

  /**
   * Branch, pause, resume and rewind, one at a time. The signal fires when the sandbox is dead; then that is
   * the error, whatever `work` failed with.
   */
  exclusively<T>(signal: AbortSignal | undefined, work: (signal: AbortSignal) => Promise<T>): Promise<T> {
    const ending = this.#ending.signal;
    return this.#lifecycle.run(async () => {
      this.requireAlive();
      const machine = this.machineAtWork;
      try {
        return await work(signal ? AbortSignal.any([signal, ending]) : ending);
      } catch (thrown) {
        const error = await explainEnd(this, machine, thrown);
        const isEnd = error instanceof AppError && states.wasKilled(this.#state) && looksLikeEnd(error);
        if (error instanceof AppError && error.code !== "cancelled" && !isEnd) throw error;
        this.requireAlive();
        throw error;
      }
    });
  }

  /** The only place that changes the state. */
  #apply(event: states.SandboxEvent): void {
    const wasDead = this.isDead;
    this.#state = states.transition(this.#state, event);
    if (wasDead || this.#state.kind !== "dead") return;
    const { reason, wasKilled } = this.#state;
    this.#ending.abort(new AppError("cancelled", wasKilled ? "The sandbox was killed" : "The sandbox ended"));
    if (!wasKilled) this.#resolveDied(reason.text);
  }

  /** When the time to live of a machine that starts now is over. */
  nextExpiry(): number | undefined {
    return this.#ttlSecs === undefined ? undefined : now() + this.#ttlSecs;
  }

  /** Calls go to this machine from now on. Returns the one before, for the caller to end. */
  attachMachine(next: SandboxMachine, options: AttachOptions = {}): SandboxMachine | undefined {
    this.requireAlive();
    const before = this.machineAtWork;
    const { expiresAt = this.nextExpiry(), rewound } = options;
    this.#apply({ type: "attached", machine: next, expiresAt, rewound });
    this.#pauseFailures = undefined;
    this.touch();
    void next.ended.then((loss) => this.#machineEnded(next, loss));
    return before;
  }

  /** A machine that ended unasked costs what it did since the state that was saved, or since the snapshot. */
  #machineEnded(machine: SandboxMachine, loss: Loss): void {
    if (this.machineAtWork !== machine) return;
    this.#apply({ type: "machineEnded", machine, ...loss });
    if (this.isDead) return;
    this.touch();
    // The next daemon removes what cannot be removed now.
    machine[Symbol.asyncDispose]().catch(() => undefined);
    this.#onRevert();
  }

  /** Takes no calls while `work` saves the machine and calls markPaused(). If it throws, running again. */
  async whilePausing(work: () => Promise<void>): Promise<void> {
    this.#apply({ type: "pauseBegan" });
    try {
      await work();
    } finally {
      this.#apply({ type: "pauseEnded" });
    }
  }

  /** Its state is on disk. Returns the machine that is no longer needed, for the caller to end. */
  markPaused(saved: SavedState, visited?: readonly string[]): SandboxMachine | undefined {
    const machine = this.machineAtWork;
    this.#apply({ type: "paused", saved, visited });
    this.#pauseFailures = undefined;
    this.touch();
    return machine;
  }

  /** Adopted without a machine: it is paused, or with a loss paused or dead. */
  markWithoutMachine(loss: Loss | undefined): void {
    this.#apply({ type: "machineAbsent", loss });
  }

  /** Adopted, but its saved state cannot be read. */
  markUnresumable(error: AppError): void {
    this.#apply({ type: "savedStateBroken", error });
  }

  /** Its record cannot be read: it is listed as dead but keeps its files until it is killed. */
  markUnreadable(problem: string): void {
    this.#apply({ type: "recordBroken", problem });
  }

  /** It has no machine from now on. Returns the one before. */
  #detachMachine(): SandboxMachine | undefined {
    const before = this.machineAtWork;
    this.#apply({ type: "detached" });
    return before;
  }

  /** Calls it when a machine ended unasked and the sandbox is paused because of that. */
  onRevert(listener: () => void): void {
    this.#onRevert = listener;
  }

  /** Counts as activity. */
  touch(): void {
    this.lastActive = now();
  }

  /** It could not be paused after a timeout. Returns how often in a row. */
  countPauseFailure(text: string): number {
    this.#pauseFailures = { text, count: (this.#pauseFailures?.count ?? 0) + 1 };
    return this.#pauseFailures.count;
  }

  get pauseProblem(): EndReason | undefined {
    return this.#pauseFailures && { text: `it could not be paused: ${this.#pauseFailures.text}` };
  }

  countBranch(): void {
    this.branchCount++;
  }

  /** Writes the record first, so a failure changes nothing. A new time to live counts from now. */
  async setTimeouts(ttl: number | null | undefined, changes: TimeoutChanges): Promise<void> {
    const ttlSecs = ttl === undefined ? this.#ttlSecs : (ttl ?? undefined);
    const timeouts = changeTimeouts(this.#timeouts, changes);
    const expiresAt = ttlSecs === undefined ? undefined : now() + ttlSecs;
    await this.persist({ ttlSecs, timeouts, ...(ttl !== undefined && { expiresAt }) });
    this.#ttlSecs = ttlSecs;
    this.#timeouts = timeouts;
    if (ttl !== undefined && this.machineAtWork) this.#apply({ type: "expiryChanged", expiresAt });
  }

  /** Its time to live is over in `secs` from now. Not in the record: a restarted daemon tries at once. */
  postponeExpiry(secs: number): void {
    this.#apply({ type: "expiryChanged", expiresAt: now() + secs });
  }

  /** The parts of the record that change. */
  get recordState(): RecordState {
    const { saved, snapshotTag: tag, expiresAt, ttlSecs, timeouts, visited, network } = this;
    const { all: ports } = this.ports;
    const lasting = { saved, tag, expiresAt, ttlSecs, timeouts, visited, network, ports };
    return { machine: this.machineAtWork?.facts, ...lasting };
  }

  /** Writes the record as things are now, or with some of them as they are about to be. */
  async persist(changed: Partial<RecordState> = {}): Promise<void> {
    await this.record.write(recordOf(this, { ...this.recordState, ...changed }));
  }

  info(): SandboxInfo {
    return sandboxInfo(this);
  }

  /** Ends the machine but keeps what a later daemon needs to resume the sandbox. */
  async stopMachine(): Promise<void> {
    await this.#detachMachine()?.[Symbol.asyncDispose]();
  }

  /** The machine keeps running for the next daemon; nothing is removed. */
  async release(): Promise<void> {
    const reason = new AppError("daemon_stopping", "The daemon is stopping; the sandbox keeps running");
    const written = this.record.handOver();
    await this.#detachMachine()?.release(reason);
    await written;
  }

  /** Kills it: ends the machine and removes everything of the sandbox from the host. */
  [Symbol.asyncDispose](): Promise<void> {
    this.#apply({ type: "killed" });
    this.#disposal ??= this.#dispose();
    return this.#disposal;
  }

  async #dispose(): Promise<void> {
    try {
      await this.record.remove();
    } finally {
      // The machine ends even if the record cannot be removed, which then goes with the home.
      try {
        await states.lastAttached(this.#state)?.machine[Symbol.asyncDispose]();
      } finally {
        // An operation that holds the lock may still write to the home.
        await this.#lifecycle.run(() => this.#homeScope[Symbol.asyncDispose]());
      }
    }
  }
}

/** Unix time in seconds. */
const now = () => Date.now() / 1000;
