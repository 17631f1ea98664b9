/**
 * One sandbox: an id that a user owns, and the machine behind it.
 *
 *   running ◄──resume── paused         rewind: running, on another machine
 *      │ └─────pause──────▲
 *      └──(VMM exits | agent lies or goes away)──► dead          kill: gone, from any state
 *
 * A dead sandbox has released everything on the host; what is left is the record of why. A paused one has only its saved state.
 */
import { advice, AppError, type Language, type SandboxInfo } from "@forkd/contract";
import { Mutex, type Scope } from "@forkd/base";
import type { AgentClient, Machine } from "@forkd/machine";
import type { SandboxHome, SandboxPaths } from "./paths.ts";
import { endedNote, reasonCode } from "../admission/limits.ts";
import type { WarmKernel } from "../launch/warm-kernel.ts";
import { childEnv, type SandboxFacts, type SandboxTimeouts, type SavedState } from "./facts.ts";
import { explainEnd, looksLikeEnd } from "./exit-reason.ts";
import type { SandboxMachine } from "./sandbox-machine.ts";
import { RecordFile, recordOf, type RecordState } from "./record.ts";

export class Sandbox implements AsyncDisposable {
  readonly facts: SandboxFacts;
  readonly id: string;
  readonly home: SandboxHome;
  readonly record: RecordFile;
  /** time to live, counted anew whenever a machine begins */
  ttlSecs: number | undefined;
  expiresAt: number | undefined;
  readonly timeouts: SandboxTimeouts;
  branchCount = 0;
  lastActive = Date.now() / 1000;
  /** the tagged snapshot that it descends from */
  snapshotTag: string;
  readonly #lifecycle = new Mutex();
  /** fires when it is killed or dies */
  readonly #ending = new AbortController();
  #isPausing = false;
  /** its end was asked for */
  #killed = false;
  /** where it can go back to when its machine is gone */
  saved: SavedState | undefined;
  /** why it cannot be resumed */
  unusable: AppError | undefined;
  isCondemned = false;
  /** for a person: what is to know about a paused sandbox */
  note: string | undefined;
  /** called when its machine ended by itself and it is paused */
  onFallBack: (() => void) | undefined;
  readonly #homeScope: Scope;
  #current: SandboxMachine | undefined;
  #machines: number;
  #deathReason: string | undefined;
  #release: Promise<void> | undefined;
  #console = "";
  /** resolves with the reason once the sandbox is dead; never rejects */
  readonly died: Promise<string>;
  #die: (reason: string) => void = () => undefined;

  constructor(parts: {
    facts: SandboxFacts;
    home: SandboxHome;
    homeScope: Scope;
    snapshotTag: string;
    ttlSecs: number | undefined;
    timeouts?: SandboxTimeouts | undefined;
    /** machines that it has had, to name the next one */
    machines: number;
  }) {
    this.facts = parts.facts;
    this.id = parts.facts.id;
    this.home = parts.home;
    this.record = new RecordFile(parts.home);
    this.snapshotTag = parts.snapshotTag;
    this.ttlSecs = parts.ttlSecs;
    this.timeouts = { ...(parts.timeouts ?? { idleSecs: undefined, onTimeout: "kill", autoResume: false }) };
    this.#homeScope = parts.homeScope;
    this.#machines = parts.machines;
    this.died = new Promise((resolve) => (this.#die = resolve));
  }

  get labels(): Readonly<Record<string, string>> {
    return this.facts.labels;
  }

  get state(): SandboxInfo["state"] {
    if (this.#deathReason !== undefined) return "dead";
    return this.#current ? "running" : "paused";
  }

  get isDead(): boolean {
    return this.state === "dead";
  }

  /** last lines of the console of a dead machine */
  get lastConsole(): string {
    return this.#console;
  }

  /** Alive, but without a machine that takes calls: paused, or about to be. */
  get isAsleep(): boolean {
    return this.#deathReason === undefined && (!this.#current || this.#isPausing);
  }

  /** Throws if it is dead. */
  requireAlive(): void {
    const death = this.death();
    if (death) throw death;
  }

  /** If it is dead: what its users are told. */
  death(cause?: unknown): AppError | undefined {
    const reason = this.#deathReason;
    if (reason === undefined) return undefined;
    const code = reasonCode(reason);
    return new AppError("sandbox_dead", `Cannot use ${this.id}: it is dead (${reason})`, {
      details: {
        id: this.id,
        reason,
        ...(code !== undefined && { reason_code: code }),
        console: this.#console,
      },
      remedy: { action: "fork_another" },
      cause,
    });
  }

  /** The machine at work; throws if there is none, or if it is about to end. */
  get current(): SandboxMachine {
    this.requireAlive();
    if (!this.#current || this.#isPausing) {
      throw new AppError("sandbox_paused", `Cannot use ${this.id}: it is paused`, {
        details: { id: this.id },
        remedy: { action: "resume", id: this.id },
      });
    }
    return this.#current;
  }

  /** The machine at work, if there is one. */
  get machineAtWork(): SandboxMachine | undefined {
    return this.#deathReason === undefined ? this.#current : undefined;
  }

  get agent(): AgentClient {
    return this.current.agent;
  }

  get machine(): Machine {
    return this.current.machine;
  }

  get paths(): SandboxPaths {
    return this.current.paths;
  }

  /** variables of commands and kernels */
  get env(): Readonly<Record<string, string>> {
    return childEnv(this.current.base.manifest.env, this.facts);
  }

  get kernels(): ReadonlyMap<Language, WarmKernel> {
    return this.current.kernels;
  }

  kernel(language: Language | undefined): WarmKernel {
    const { kernels, languages } = this.current;
    const found = language === undefined ? kernels.values().next().value : kernels.get(language);
    if (found) return found;
    const has = languages.join(", ") || "none";
    throw new AppError(
      "unsupported",
      `Cannot eval ${language ?? "code"} in ${this.id}: its snapshot has no such warm interpreter (it has: ${has})`,
      {
        details: { language, available: languages },
        remedy: advice('Add it to "languages" of the recipe.'),
      },
    );
  }

  get machineCount(): number {
    return this.#machines;
  }

  /** Number for the next machine. */
  nextNumber(): number {
    return this.#machines++;
  }

  /**
   * Branch, pause, resume and rewind, one at a time. The signal fires when the sandbox ends meanwhile, and then that is what went
   * wrong, whatever it looked like.
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
        const isEnd = error instanceof AppError && this.#killed && looksLikeEnd(error);
        if (error instanceof AppError && error.code !== "cancelled" && !isEnd) throw error;
        this.requireAlive();
        throw error;
      }
    });
  }

  /** Takes no calls while `work` runs, which is to end the machine. */
  async whilePausing(work: () => Promise<void>): Promise<void> {
    this.#isPausing = true;
    try {
      await work();
    } finally {
      this.#isPausing = false;
    }
  }

  /** When a machine that begins now ends. */
  nextExpiry(): number | undefined {
    return this.ttlSecs === undefined ? undefined : Date.now() / 1000 + this.ttlSecs;
  }

  /** Goes on with another machine; the one before is given back for the caller to end. Throws if it was killed meanwhile. */
  enter(next: SandboxMachine, expiresAt = this.nextExpiry()): SandboxMachine | undefined {
    this.requireAlive();
    const before = this.#current;
    this.#current = next;
    this.lastActive = Date.now() / 1000;
    this.note = undefined;
    this.unusable = undefined;
    this.expiresAt = expiresAt;
    void next.ended.then(({ reason, console }) => {
      if (this.#current !== next || this.#deathReason !== undefined) return;
      if (this.comesBack) this.#fallBack(next, reason, console);
      else this.perish(reason, console);
    });
    return before;
  }

  /** Whether there is something to go back to when its machine is gone. */
  get comesBack(): boolean {
    return this.saved !== undefined || this.facts.workspace !== undefined;
  }

  /** Is dead from now on. */
  perish(reason: string, console: string): void {
    this.#console = console;
    this.#deathReason = reason;
    this.#ending.abort(new AppError("cancelled", "The sandbox ended"));
    this.#die(reason);
  }

  /** Is dead from now on, but keeps what it has on the host until it is killed. */
  condemn(reason: string): void {
    this.#deathReason = reason;
    this.isCondemned = true;
  }

  /** For the record, as it is now. */
  get recordState(): RecordState {
    const { saved, snapshotTag: tag, expiresAt } = this;
    return { machine: this.#current?.facts, saved, tag, expiresAt };
  }

  /** Makes a later daemon know what is so now, or with some of it changed, what is about to be so. */
  async persist(changed: Partial<RecordState> = {}): Promise<void> {
    await this.record.write(recordOf(this, { ...this.recordState, ...changed }));
  }

  /** A machine that ended by itself costs what it did since the state that was saved, or since the snapshot. */
  #fallBack(machine: SandboxMachine, reason: string, console: string): void {
    this.#console = console;
    this.leave();
    this.noteLoss(reason);
    // What cannot be removed now is found as a stray.
    machine[Symbol.asyncDispose]().catch(() => undefined);
    this.onFallBack?.();
  }

  /** Says why it has no machine, and from where it comes back. */
  noteLoss(reason: string): void {
    const from = this.saved ? "from the state that was saved" : `anew from snapshot "${this.snapshotTag}"`;
    this.note = `${endedNote}${reason}); it can be resumed ${from}`;
  }

  /** Has no machine any more: paused. The one before is given back for the caller to end. */
  leave(): SandboxMachine | undefined {
    const before = this.#current;
    this.#current = undefined;
    this.expiresAt = undefined;
    this.lastActive = Date.now() / 1000;
    return before;
  }

  info(): SandboxInfo {
    const at = this.#current;
    const shape = (at?.base ?? this.saved?.snapshot)?.manifest;
    const { state } = this;
    const reason = this.#deathReason ?? this.note;
    return {
      id: this.id,
      snapshot_tag: this.snapshotTag,
      state,
      ...(reason !== undefined && { reason }),
      created_at_unix: this.facts.createdAt,
      ...(this.expiresAt !== undefined && { expires_at_unix: this.expiresAt }),
      ...(at && state === "running" && { pid: at.machine.process.pid }),
      index: this.facts.index,
      hostname: this.facts.identity.hostname,
      labels: { ...this.facts.labels },
      vcpus: shape?.machine.vcpus ?? 0,
      memory_mib: shape?.machine.memory_mib ?? 0,
      accelerator: shape?.machine.accelerator ?? "tcg",
      languages: at ? at.languages : (shape?.kernels.map(({ language }) => language) ?? []),
      ready_ms: Math.round((at?.readyMs ?? 0) * 10) / 10,
      pooled: at?.pooled ?? false,
      ...(state === "paused" && this.saved && { paused_at_unix: this.saved.savedAt }),
      branch_count: this.branchCount,
      ...(this.facts.workspace !== undefined && { workspace: this.facts.workspace }),
      ...(this.facts.owner !== undefined && { owner: this.facts.owner }),
      ...this.#quotaInfo(reason, at),
    };
  }

  #quotaInfo(reason: string | undefined, at: SandboxMachine | undefined): Partial<SandboxInfo> {
    const { idleSecs, onTimeout, autoResume } = this.timeouts;
    const code = reasonCode(reason);
    const { best_effort: _, ...limits } = this.facts.limits ?? { best_effort: false };
    return {
      ...(code !== undefined && { reason_code: code }),
      ...(this.facts.limits && { limits }),
      ...(at && at.notEnforced.length > 0 && { limits_not_enforced: [...at.notEnforced] }),
      ...(idleSecs !== undefined && { idle_timeout_secs: idleSecs }),
      ...((idleSecs !== undefined || this.ttlSecs !== undefined) && { on_timeout: onTimeout }),
      ...(autoResume && { auto_resume: true }),
    };
  }

  /** Ends the machine; what the daemon may need to bring the sandbox back stays. */
  async stop(): Promise<void> {
    await this.leave()?.[Symbol.asyncDispose]();
  }

  /** The machine runs on for a later daemon; nothing is removed. */
  async letGo(): Promise<void> {
    const reason = new AppError("daemon_stopping", "The daemon is stopping; the sandbox keeps running");
    const left = this.record.leave();
    await this.leave()?.letGo(reason);
    await left;
  }

  /** Ends the machine and removes everything of the sandbox from the host. */
  [Symbol.asyncDispose](): Promise<void> {
    if (this.#deathReason === undefined) this.#killed = true;
    this.#deathReason ??= "killed";
    this.#ending.abort(new AppError("cancelled", "The sandbox was killed"));
    this.#release ??= (async () => {
      try {
        await this.record.remove();
      } finally {
        // A record that cannot be removed goes with the home, and is no reason to let the machine run.
        await this.#end();
      }
    })();
    return this.#release;
  }

  async #end(): Promise<void> {
    try {
      await this.#current?.[Symbol.asyncDispose]();
    } finally {
      // What is under way may still write there.
      await this.#lifecycle.run(() => this.#homeScope[Symbol.asyncDispose]());
    }
  }
}
