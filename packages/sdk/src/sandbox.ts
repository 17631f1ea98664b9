/** One sandbox: commands, code, files, state and branches. */
import { isSandbox } from "@forkd/contract/wire";
import type {
  BranchMode,
  BranchResult,
  EvalEvent,
  EvalResult,
  ForkEntry,
  Language,
  RequestOf,
  SandboxInfo,
  ServiceInfo,
} from "@forkd/contract";
import type { CallOptions, Client, CreateOptions } from "./client.ts";
import { Commands } from "./commands.ts";
import { ForkError } from "./errors.ts";
import { Files } from "./files.ts";
import { SandboxNetwork } from "./network.ts";
import { Ports } from "./ports.ts";
import { lifeFields, networkFields, type LifeOptions, type NetworkOptions } from "./sandbox-options.ts";

/** Options of `eval()` and `evalStream()`. */
export type EvalOptions = CallOptions & {
  /** Language of the code; default: the first language of the snapshot. */
  language?: Language | undefined;
  /** Name of the set of variables that the code uses; default: "default". */
  context?: string | undefined;
  /** Interrupts the code after this time; 0: no limit; default: 30. */
  timeoutSecs?: number | undefined;
};

/** Options of `branch()`. Timeouts, limits, network and secrets apply to the children. */
export type BranchOptions = CreateOptions & {
  /** Tag of the new snapshot; default: made from the sandbox and the time. */
  tag?: string | undefined;
  /** When memory is written, and whether the snapshot has a parent; default: "live". */
  mode?: BranchMode | undefined;
  /** False: do not wait for the disk; `snapshots.ready()` does; default: true. */
  wait?: boolean | undefined;
  /** Number of children to fork from the new snapshot; default: 0. */
  n?: number | undefined;
  /** Own environment and values for the children in order, at most one entry per child; default: none. */
  vary?: RequestOf<"branch">["vary"];
  /** Environment of each child; default: that of the snapshot. */
  env?: Record<string, string> | undefined;
  /** Labels of each child; default: none. */
  labels?: Record<string, string> | undefined;
  /** Time to live of each child in seconds; default: no limit. */
  ttlSecs?: number | undefined;
} & LifeOptions &
  NetworkOptions;
/** The new snapshot, its timings and its children; a child that failed is a ForkError. */
export type Branch = Omit<BranchResult, "children"> & { children: (Sandbox | ForkError)[] };

/** A sandbox. `await using` kills it at the end of the block. */
export class Sandbox implements AsyncDisposable {
  /** Runs commands in the sandbox. */
  readonly commands: Commands;
  /** Reads and changes files in the sandbox. */
  readonly files: Files;
  /** Reads and changes where the sandbox may connect to. */
  readonly network: SandboxNetwork;
  /** Opens ports of the sandbox and connects to them. */
  readonly ports: Ports;
  readonly #client: Client;
  #info: SandboxInfo;

  constructor(client: Client, info: SandboxInfo) {
    this.#client = client;
    this.#info = info;
    this.commands = new Commands(client, info.id);
    this.files = new Files(client, info.id);
    this.network = new SandboxNetwork(client, info.id);
    this.ports = new Ports(client, info.id);
  }

  /** Id of the sandbox, such as "sb-3f2a…". */
  get id(): string {
    return this.#info.id;
  }

  /** State of the sandbox in the last answer of the daemon. */
  get info(): SandboxInfo {
    return this.#info;
  }

  /** Evaluates code. Code that raises is a result (`error`, `exit_code` 1), not a rejection. */
  eval(code: string, options: EvalOptions = {}): Promise<EvalResult> {
    return this.#client.call("eval", this.#evalRequest(code, options), options);
  }

  /** Evaluates code and yields its output as it arrives; the last event is `result`. */
  async *evalStream(code: string, options: EvalOptions = {}): AsyncGenerator<EvalEvent> {
    yield* await this.#client.lines("eval", { ...this.#evalRequest(code, options), stream: true }, options);
  }

  /** Interrupts running code; default language: the first of the snapshot. */
  async interrupt(
    language?: Language,
    options: CallOptions & {
      /** Interrupts only code that runs in this context; default: any. */
      context?: string | undefined;
    } = {},
  ): Promise<void> {
    await this.#client.call("interrupt", { id: this.id, language, context: options.context }, options);
  }

  /** Lists the contexts of all languages. */
  contexts(options: CallOptions = {}): Promise<{ name: string; language: Language }[]> {
    return this.#client.call("listContexts", { id: this.id }, options);
  }

  /** Removes a context with its variables; default language: the first of the snapshot. */
  async dropContext(name: string, language?: Language, options: CallOptions = {}): Promise<void> {
    await this.#client.call("dropContext", { id: this.id, name, language }, options);
  }

  /** Lists the services that the recipe of its snapshot started. */
  services(options: CallOptions = {}): Promise<ServiceInfo[]> {
    return this.#client.call("listServices", { id: this.id }, options);
  }

  /** Reads the console of the guest, or the output of a service. */
  async *logs(
    options: CallOptions & {
      /** Waits for new output at the end; default: false. */
      follow?: boolean | undefined;
      /** Starts with this many last lines; default: all. */
      tail?: number | undefined;
      /** Reads the output of this service; default: the console. */
      service?: string | undefined;
    } = {},
  ): AsyncGenerator<Uint8Array> {
    const { tail, service: name } = options;
    const request = { id: this.id, follow: options.follow === true ? ("true" as const) : undefined, tail };
    yield* name === undefined
      ? await this.#client.bytes("logs", request, options)
      : await this.#client.bytes("serviceLogs", { ...request, name }, options);
  }

  /** Measures a round trip to the agent in the guest. */
  ping(options: CallOptions = {}): Promise<{ ok: boolean; round_trip_ms: number }> {
    return this.#client.call("ping", { id: this.id }, options);
  }

  /** Snapshots the running sandbox, which continues. */
  async branch(options: BranchOptions = {}): Promise<Branch> {
    const { tag, mode, wait, n, vary, env, labels, ttlSecs } = options;
    const life = { ttl_secs: ttlSecs, ...lifeFields(options) };
    const request = {
      id: this.id,
      tag,
      mode,
      wait,
      n,
      vary,
      env,
      labels,
      ...life,
      ...networkFields(options),
    };
    const result = await this.#client.call("branch", request, options);
    return { ...result, children: toChildren(this.#client, result.children) };
  }

  /** Saves the sandbox to disk and stops its machine; the id stays. */
  pause(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#keep(this.#client.call("pause", { id: this.id }, options));
  }

  /** Resumes the paused sandbox. */
  resume(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#keep(this.#client.call("resume", { id: this.id }, options));
  }

  /** Puts the sandbox back to one of its ancestors or branches; the id stays. */
  rewind(tag: string, options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#keep(this.#client.call("rewind", { id: this.id, to: tag }, options));
  }

  /** Kills the sandbox. */
  async kill(): Promise<void> {
    await this.#client.call("kill", { id: this.id });
  }

  /** Sets the time to live from now in seconds; null removes the limit. */
  setTtl(secs: number | null): Promise<SandboxInfo> {
    return this.#keep(this.#client.call("setTtl", { id: this.id, ttl_secs: secs }));
  }

  /** Changes timeouts; those that are not given stay as they are. */
  setTimeouts(
    changes: {
      /** Time to live from now in seconds; null removes the limit. */
      ttlSecs?: number | null | undefined;
      /** Longest time without a call into the sandbox in seconds; null removes the limit. */
      idleTimeoutSecs?: number | null | undefined;
    } & Pick<LifeOptions, "onTimeout" | "autoResume">,
    options: CallOptions = {},
  ): Promise<SandboxInfo> {
    const { ttlSecs, idleTimeoutSecs, onTimeout, autoResume } = changes;
    const request = { ttl_secs: ttlSecs, idle_timeout_secs: idleTimeoutSecs, on_timeout: onTimeout };
    return this.#keep(
      this.#client.call("setTimeouts", { id: this.id, ...request, auto_resume: autoResume }, options),
    );
  }

  /** Kills the sandbox unless it is gone already. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill().catch(ignoreGone);
  }

  async #keep(answer: Promise<SandboxInfo>): Promise<SandboxInfo> {
    this.#info = await answer;
    return this.#info;
  }

  #evalRequest(code: string, options: EvalOptions): RequestOf<"eval"> {
    const { language, context, timeoutSecs } = options;
    return { id: this.id, code, language, context, timeout_secs: timeoutSecs };
  }
}

/** Entries of a fork or a branch as objects, in the same order. */
export function toChildren(client: Client, entries: readonly ForkEntry[]): (Sandbox | ForkError)[] {
  return entries.map((entry) => (isSandbox(entry) ? new Sandbox(client, entry) : new ForkError(entry)));
}

function ignoreGone(error: unknown): void {
  if (!(error instanceof Error && "code" in error && error.code === "sandbox_not_found")) throw error;
}
