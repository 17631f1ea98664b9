/** One sandbox: commands, code, files, its state and its branches. `await using` kills it at the end of the block. */
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
} from "@forkd/contract";
import type { CallOptions, Client, CreateOptions } from "./client.ts";
import { Commands } from "./commands.ts";
import { ForkError } from "./errors.ts";
import { Files } from "./files.ts";
import { lifeFields, type LifeOptions } from "./sandbox-options.ts";

export type EvalOptions = CallOptions & {
  /** default: the first language of the snapshot */
  language?: Language | undefined;
  /** name of the set of variables that the code sees */
  context?: string | undefined;
  /** 0 = no limit */
  timeoutSecs?: number | undefined;
};

export type BranchOptions = CreateOptions & {
  /** default: made from the sandbox and the time */
  tag?: string | undefined;
  /** default: live */
  mode?: BranchMode | undefined;
  /** false: resolve as soon as the sandbox runs again; `snapshots.ready(tag)` waits for the rest */
  wait?: boolean | undefined;
  /** children to fork from the new snapshot */
  n?: number | undefined;
  /** one entry per child, in order; at most n */
  vary?: RequestOf<"branch">["vary"];
  /** of the children, as are `labels` and `ttlSecs` */
  env?: Record<string, string> | undefined;
  labels?: Record<string, string> | undefined;
  ttlSecs?: number | undefined;
} & LifeOptions;
/** The new snapshot, what taking it cost, and its children; one that could not be made is a ForkError. */
export type Branch = Omit<BranchResult, "children"> & { children: (Sandbox | ForkError)[] };

export class Sandbox implements AsyncDisposable {
  readonly commands: Commands;
  readonly files: Files;
  readonly #client: Client;
  #info: SandboxInfo;

  constructor(client: Client, info: SandboxInfo) {
    this.#client = client;
    this.#info = info;
    this.commands = new Commands(client, info.id);
    this.files = new Files(client, info.id);
  }

  get id(): string {
    return this.#info.id;
  }

  /** as last told by the daemon */
  get info(): SandboxInfo {
    return this.#info;
  }

  /** Code that raises is a result (`error`, `exit_code` 1), not a rejection. */
  eval(code: string, options: EvalOptions = {}): Promise<EvalResult> {
    return this.#client.call("eval", this.#evalRequest(code, options), options);
  }

  /** Output as it comes; the last event is `result`. */
  async *evalStream(code: string, options: EvalOptions = {}): AsyncGenerator<EvalEvent> {
    yield* await this.#client.lines("eval", { ...this.#evalRequest(code, options), stream: true }, options);
  }

  async interrupt(language?: Language): Promise<void> {
    await this.#client.call("interrupt", { id: this.id, language });
  }

  contexts(): Promise<{ name: string; language: Language }[]> {
    return this.#client.call("listContexts", { id: this.id });
  }

  async dropContext(name: string, language?: Language): Promise<void> {
    await this.#client.call("dropContext", { id: this.id, name, language });
  }

  /** Console of the guest. */
  async *logs(
    options: CallOptions & { follow?: boolean | undefined; tail?: number | undefined } = {},
  ): AsyncGenerator<Uint8Array> {
    const follow = options.follow === true ? "true" : undefined;
    yield* await this.#client.bytes("logs", { id: this.id, follow, tail: options.tail }, options);
  }

  ping(options: CallOptions = {}): Promise<{ ok: boolean; round_trip_ms: number }> {
    return this.#client.call("ping", { id: this.id }, options);
  }

  /** Captures the sandbox as a snapshot; it goes on. */
  async branch(options: BranchOptions = {}): Promise<Branch> {
    const { tag, mode, wait, n, vary, env, labels, ttlSecs } = options;
    const life = { ttl_secs: ttlSecs, ...lifeFields(options) };
    const request = { id: this.id, tag, mode, wait, n, vary, env, labels, ...life };
    const result = await this.#client.call("branch", request, options);
    return { ...result, children: toChildren(this.#client, result.children) };
  }

  /** Saves the sandbox to disk and ends its machine; the id stays. */
  pause(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#keep(this.#client.call("pause", { id: this.id }, options));
  }

  /** Goes on with the sandbox where it was paused. */
  resume(options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#keep(this.#client.call("resume", { id: this.id }, options));
  }

  /** Returns the sandbox in place to an ancestor, or to a branch that was taken of it. */
  rewind(tag: string, options: CallOptions = {}): Promise<SandboxInfo> {
    return this.#keep(this.#client.call("rewind", { id: this.id, to: tag }, options));
  }

  async kill(): Promise<void> {
    await this.#client.call("kill", { id: this.id });
  }

  /** Seconds to live from now; null removes the limit. */
  setTtl(secs: number | null): Promise<SandboxInfo> {
    return this.#keep(this.#client.call("setTtl", { id: this.id, ttl_secs: secs }));
  }

  /** Changes what is given; null removes a time. */
  setTimeouts(
    changes: {
      ttlSecs?: number | null | undefined;
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
