/** Sets of variables of one sandbox. */
import type { Language } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";
import type { ContextInfo } from "./types.ts";

/** Options of calls on one context. */
export type ContextOptions = CallOptions & {
  /** Language of the context; default: the first language of the snapshot. */
  language?: Language | undefined;
};

/** Options of `contexts.create()`. */
export type CreateContextOptions = ContextOptions & {
  /** Working directory of its code; default: that of the interpreter after its warm-up. */
  cwd?: string | undefined;
  /** Environment variables during its code; default: none in addition. */
  env?: Record<string, string> | undefined;
};

/** Options of `interrupt()`. */
export type InterruptOptions = ContextOptions & {
  /** Interrupts only code that runs in this context; default: any. */
  context?: string | undefined;
};

/** Sets of variables of one sandbox: code in one context does not see the variables of another. */
export class Contexts {
  readonly #client: Client;
  readonly #id: string;

  /** @internal */
  constructor(client: Client, sandboxId: string) {
    this.#client = client;
    this.#id = sandboxId;
  }

  /** Lists the contexts of all languages. */
  list(options: CallOptions = {}): Promise<ContextInfo[]> {
    return this.#client.invoke("listContexts", { id: this.#id }, options);
  }

  /** Makes a context, which begins with what the warm-up defined. Code that names a new context makes one too. */
  create(name: string, options: CreateContextOptions = {}): Promise<ContextInfo> {
    return this.#client.invoke("createContext", { id: this.#id, name }, options);
  }

  /** Makes a context again, without its variables. */
  restart(name: string, options: ContextOptions = {}): Promise<ContextInfo> {
    return this.#client.invoke("restartContext", { id: this.#id, name }, options);
  }

  /** Removes a context with its variables. */
  async drop(name: string, options: ContextOptions = {}): Promise<void> {
    await this.#client.invoke("dropContext", { id: this.#id, name }, options);
  }
}
