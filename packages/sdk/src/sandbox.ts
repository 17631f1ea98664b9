/** One sandbox: commands, code, files. `await using` kills it at the end of the block. */
import type { EvalEvent, EvalResult, Language, RequestOf, SandboxInfo } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";
import { Commands } from "./commands.ts";
import { Files } from "./files.ts";

export type EvalOptions = CallOptions & {
  /** default: the first language of the snapshot */
  language?: Language | undefined;
  /** name of the set of variables that the code sees */
  context?: string | undefined;
  /** 0 = no limit */
  timeoutSecs?: number | undefined;
};

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

  async kill(): Promise<void> {
    await this.#client.call("kill", { id: this.id });
  }

  /** Seconds to live from now; null removes the limit. */
  async setTtl(secs: number | null): Promise<SandboxInfo> {
    this.#info = await this.#client.call("setTtl", { id: this.id, ttl_secs: secs });
    return this.#info;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill().catch(ignoreGone);
  }

  #evalRequest(code: string, options: EvalOptions): RequestOf<"eval"> {
    const { language, context, timeoutSecs } = options;
    return { id: this.id, code, language, context, timeout_secs: timeoutSecs };
  }
}

function ignoreGone(error: unknown): void {
  if (!(error instanceof Error && "code" in error && error.code === "sandbox_not_found")) throw error;
}
