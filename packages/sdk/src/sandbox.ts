/** One sandbox: commands, code, files, state and branches. */
import { AppError, isSandbox } from "@forkd/contract/wire";
import type {
  BranchMode,
  BranchResult,
  ForkEntry,
  RequestOf,
  SandboxInfo as WireSandbox,
} from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";
import { Evals, evaluate, type EvalOptions, type EvalRun } from "./code.ts";
import { Commands } from "./commands.ts";
import { forkdOr, type Daemon } from "./connector.ts";
import { Contexts, type InterruptOptions } from "./contexts.ts";
import { fromWire, remember } from "./convert/answer.ts";
import { filterOf, requestOf, shown, type OptionsFor } from "./convert/request.ts";
import type { Camel } from "./convert/types.ts";
import { ForkError, isForkdError } from "./errors.ts";
import { Files } from "./files.ts";
import { SandboxNetwork } from "./network.ts";
import { Paginator } from "./paginator.ts";
import { Ports } from "./ports.ts";
import { Pty } from "./pty.ts";
import type { ForkOptions, SandboxFilter, SandboxOptions, TimeoutOptions } from "./sandbox-options.ts";
import { Stream } from "./stream.ts";
import type { Ping, SandboxInfo, ServiceInfo } from "./types.ts";

/** Options of `branch()`. Those of new sandboxes apply to the children. */
export type BranchOptions = ForkOptions & {
  /** Tag of the new snapshot; default: made from the sandbox and the time. */
  tag?: string | undefined;
  /** When memory is written, and whether the snapshot has a parent; default: "live". */
  mode?: BranchMode | undefined;
  /** False: do not wait for the disk; `snapshots.ready()` does; default: true. */
  wait?: boolean | undefined;
  /** Number of children to fork from the new snapshot; default: 0. */
  n?: number | undefined;
};
/** The new snapshot, its timings and its children; a child that failed is a ForkError. */
export type Branch = Omit<Camel<BranchResult>, "children"> & {
  /** Tag of the new snapshot. */
  snapshotTag: string;
  /** Its children in the order of the request; empty without `n`. */
  children: (Sandbox | ForkError)[];
};

/** Changes of `setTimeouts()`. */
export type TimeoutChanges = Pick<TimeoutOptions, "onTimeout" | "autoResume"> & {
  /** Ends the sandbox this many ms from now, rounded up to seconds; null: no limit; default: as before. */
  ttlMs?: number | null | undefined;
  /** Ends it after this many ms without a call into it; null: no limit; default: as before. */
  idleTimeoutMs?: number | null | undefined;
};

/** Options of `logs()`. */
export type LogOptions = CallOptions & {
  /** Waits for new output at the end; default: false. */
  follow?: boolean | undefined;
  /** Starts with this many last lines; default: all. */
  tail?: number | undefined;
  /** Reads the output of this service; default: the console. */
  service?: string | undefined;
};

/** Which daemon to use. */
export type DaemonOption = {
  /** The client of the daemon; default: that of this user, which `connect()` finds (only in Node). */
  forkd?: Daemon<Sandbox> | undefined;
};

/** A sandbox. `await using` kills it at the end of the block. */
export class Sandbox implements AsyncDisposable {
  /** Runs commands in the sandbox. */
  readonly commands: Commands;
  /** Opens terminals in the sandbox. */
  readonly pty: Pty;
  /** Reads and changes files in the sandbox. */
  readonly files: Files;
  /** Makes, lists and drops sets of variables of its interpreters. */
  readonly contexts: Contexts;
  /** Lists code that runs, and follows code that a branch carried into the sandbox. */
  readonly evals: Evals;
  /** Reads and changes where the sandbox may connect to. */
  readonly network: SandboxNetwork;
  /** Opens ports of the sandbox and connects to them. */
  readonly ports: Ports;
  readonly #client: Client;
  /** Called once, when the sandbox is gone. */
  #onKilled: (() => Promise<void>) | undefined;
  #info: SandboxInfo;

  /** @internal */
  constructor(client: Client, info: WireSandbox, onKilled?: () => Promise<void>) {
    this.#client = client;
    this.#onKilled = onKilled;
    this.#info = this.#keep(info);
    this.commands = new Commands(client, info.id);
    this.pty = new Pty(client, info.id);
    this.files = new Files(client, info.id);
    this.contexts = new Contexts(client, info.id);
    this.evals = new Evals(client, info.id);
    this.network = new SandboxNetwork(client, info.id);
    this.ports = new Ports(client, info.id);
  }

  /** Forks one sandbox from the snapshot with this tag. */
  static async create(
    tag: string,
    { forkd, ...options }: SandboxOptions & DaemonOption = {},
  ): Promise<Sandbox> {
    return (await forkdOr(forkd)).create(tag, options);
  }

  /** Returns the sandbox with this id, running or paused. */
  static async connect(id: string, { forkd, ...options }: CallOptions & DaemonOption = {}): Promise<Sandbox> {
    return (await forkdOr(forkd)).sandboxes.get(id, options);
  }

  /** Lists the sandboxes that match, the oldest first; default: all. */
  static list(
    filter: SandboxFilter = {},
    { forkd, ...options }: CallOptions & DaemonOption = {},
  ): Paginator<Sandbox> {
    let pages: Promise<Paginator<Sandbox>> | undefined;
    return new Paginator(async () => {
      pages ??= forkdOr(forkd).then(({ sandboxes }) => sandboxes.list(filter, options));
      const opened = await pages;
      return { items: await opened.page(), next: opened.hasNext ? "next" : undefined };
    });
  }

  /** Id of the sandbox, such as "sb-3f2a…". */
  get id(): string {
    return this.#info.id;
  }

  /** State of the sandbox in the last answer of the daemon. */
  get info(): SandboxInfo {
    return this.#info;
  }

  /** What `console.log()` of Node shows: which sandbox it is, and its last known state. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    const { id, snapshotTag, state } = this.#info;
    return `Sandbox ${id} of ${snapshotTag} (${state})`;
  }

  /** Reads the state of the sandbox again. */
  async refresh(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#keep(await this.#call("getSandbox", {}, options));
  }

  /**
   * Evaluates code in a warm interpreter. Await the result or iterate the events. Code that raises is a result
   * (`error`, `exitCode` 1), not a rejection.
   */
  eval(code: string, options: EvalOptions = {}): EvalRun {
    return evaluate(this.#client, this.id, code, options);
  }

  /** Another name of `eval()`. */
  runCode(code: string, options: EvalOptions = {}): EvalRun {
    return this.eval(code, options);
  }

  /** Interrupts running code. */
  async interrupt(options: InterruptOptions = {}): Promise<void> {
    await this.#call("interrupt", {}, options);
  }

  /** Lists the services that the recipe of its snapshot started. */
  services(options: CallOptions = {}): Promise<ServiceInfo[]> {
    return this.#client.invoke("listServices", { id: this.id }, options);
  }

  /** Reads the console of the guest, or the output of a service. */
  logs(options: LogOptions = {}): Stream<Uint8Array> {
    return new Stream((signal) => this.#logs({ ...options, signal }), options.signal);
  }

  async *#logs({ service, ...options }: LogOptions): AsyncGenerator<Uint8Array> {
    const request = requestOf("logs", { id: this.id }, options, ["service"]);
    yield* service === undefined
      ? await this.#client.bytes("logs", request, options)
      : await this.#client.bytes("serviceLogs", { ...request, name: service }, options);
  }

  /** Measures a round trip to the agent in the guest. */
  ping(options: CallOptions = {}): Promise<Ping> {
    return this.#client.invoke("ping", { id: this.id }, options);
  }

  /** Snapshots the running sandbox, which continues, and with `n` forks children from the snapshot. */
  async branch(options: BranchOptions = {}): Promise<Branch> {
    return this.#branch({}, options);
  }

  /**
   * Forks `n` children from this instant. A child that fails is a ForkError; the call rejects if all fail. The
   * snapshot behind them has an automatic tag: killing the last child through these objects removes it. If the
   * children end otherwise, `forkd.gc({ branches: true })` removes it.
   */
  async fork(n = 1, options: ForkOptions = {}): Promise<(Sandbox | ForkError)[]> {
    wholeNumber("n", n);
    let left = n;
    let tag: string | undefined;
    const release = async (): Promise<void> => {
      left -= 1;
      if (left > 0 || tag === undefined) return;
      await this.#client.call("removeSnapshot", { tag }).catch(ignoreUsed);
    };
    const fixed = { n, tag: undefined, mode: undefined, wait: undefined };
    const branch = await this.#branch(fixed, options, release);
    tag = branch.tag;
    const failed = branch.children.filter((child) => child instanceof ForkError);
    for (const _ of failed) await release();
    if (failed.length === n && failed[0]) throw failed[0];
    return branch.children;
  }

  async #branch(
    fixed: Partial<RequestOf<"branch">>,
    options: BranchOptions,
    onKilled?: () => Promise<void>,
  ): Promise<Branch> {
    const { signal, timeoutMs, idempotencyKey } = options;
    const all = { ...fixed, id: this.id, parent_tag: undefined };
    const request = requestOf("branch", all, options, ["idempotencyKey"]);
    const answer = await this.#client.call("branch", request, { signal, timeoutMs, idempotencyKey });
    const { children: entries, ...snapshot } = answer;
    const children = toChildren(this.#client, entries, onKilled);
    return remember({ ...fromWire(snapshot), snapshotTag: snapshot.tag, children }, answer);
  }

  /** Saves the sandbox to disk and stops its machine; the id stays. */
  async pause(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#keep(await this.#call("pause", {}, options));
  }

  /** Resumes the paused sandbox. */
  async resume(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#keep(await this.#call("resume", {}, options));
  }

  /** Puts the sandbox back to one of its ancestors or branches; the id stays. */
  async rewind(tag: string, options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#keep(await this.#call("rewind", { to: tag }, options));
  }

  /** Changes timeouts from now on; those that are not given stay as they are, `null` removes a time. */
  async setTimeouts(changes: TimeoutChanges, options: CallOptions = {}): Promise<SandboxInfo> {
    const request = filterOf("setTimeouts", { id: this.id }, changes);
    return this.#keep(await this.#call("setTimeouts", request, options));
  }

  /** Kills the sandbox. */
  async kill(options: CallOptions = {}): Promise<void> {
    try {
      await this.#call("kill", {}, options);
    } catch (error) {
      if (isForkdError(error, "sandbox_not_found")) await this.#release();
      throw error;
    }
    await this.#release();
  }

  /** Kills the sandbox unless it is gone already. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill().catch(ignoreGone);
  }

  async #release(): Promise<void> {
    const release = this.#onKilled;
    this.#onKilled = undefined;
    await release?.();
  }

  /** Fields are on the wire already; options have only `signal` and `timeoutMs`, or fields of the route. */
  async #call<N extends "getSandbox" | "pause" | "resume" | "rewind" | "setTimeouts" | "kill" | "interrupt">(
    name: N,
    fields: Omit<RequestOf<N>, "id">,
    options: CallOptions,
  ) {
    const fixed = { ...fields, id: this.id } as Partial<RequestOf<N>>;
    const request = requestOf(name, fixed, options as OptionsFor<N>);
    return this.#client.call(name, request, options);
  }

  #keep(info: WireSandbox): SandboxInfo {
    this.#info = fromWire(info);
    remember(this, info);
    return this.#info;
  }
}

/** Entries of a fork or a branch as objects, in the same order. */
export function toChildren(
  client: Client,
  entries: readonly ForkEntry[],
  onKilled?: () => Promise<void>,
): (Sandbox | ForkError)[] {
  const children = entries.map((entry) =>
    isSandbox(entry) ? new Sandbox(client, entry, onKilled) : new ForkError(entry),
  );
  return remember(children, entries);
}

/** Refuses what looks like options in place of a number. */
export function wholeNumber(name: string, value: unknown): void {
  if (typeof value === "number" && Number.isInteger(value) && value >= 1) return;
  throw new AppError("invalid_request", `"${name}" must be a whole number from 1 on, not ${shown(value)}`, {
    details: { option: name },
  });
}

function ignoreGone(error: unknown): void {
  if (!isForkdError(error, "sandbox_not_found")) throw error;
}

/** The snapshot stays if something was forked or branched from it in the meantime. */
function ignoreUsed(error: unknown): void {
  const isGone = isForkdError(error, "snapshot_not_found") || isForkdError(error, "snapshot_in_use");
  if (!isGone) throw error;
}
