/** What the tools of one caller work with: the daemon, stored outputs, and the sandboxes that it created. */
import type { Forkd } from "@forkd/sdk";
import { CreatedSandboxes } from "./created.ts";
import { OutputStore } from "./results/output-store.ts";

type BackendOptions = {
  /** Connects to the daemon; called when a tool first needs it. */
  readonly connect: () => Promise<Forkd>;
  /** Time to live of sandboxes that are created without one. */
  readonly ttlSecs?: number | undefined;
  /** Value of the label `mcp` of created sandboxes. */
  readonly label: string;
  /** Bytes of outputs that are kept; default: 32 MiB. */
  readonly outputBytes?: number | undefined;
};

/** How long cancelled calls may take to undo what they began. */
const settleMs = 10_000;
/** Calls of one caller at the same time. */
const mostCalls = 64;

export class Backend {
  readonly outputs: OutputStore;
  readonly created = new CreatedSandboxes();
  readonly ttlSecs: number | undefined;
  readonly label: string;
  readonly #connect: () => Promise<Forkd>;
  readonly #open = new Set<Promise<unknown>>();
  #forkd: Promise<Forkd> | undefined;

  constructor(options: BackendOptions) {
    this.#connect = options.connect;
    this.ttlSecs = options.ttlSecs;
    this.label = options.label;
    this.outputs = new OutputStore(options.outputBytes === undefined ? {} : { bytes: options.outputBytes });
  }

  /** The client of the daemon. After a failure the next call tries again. */
  forkd(): Promise<Forkd> {
    if (this.#forkd === undefined) {
      const connecting = this.#connect();
      this.#forkd = connecting;
      connecting.catch(() => (this.#forkd = undefined));
    }
    return this.#forkd;
  }

  /** Makes the next call connect again: the daemon may have been started again elsewhere. */
  disconnect(): void {
    this.#forkd = undefined;
  }

  /** Counts a call as open until it has settled. */
  async track<T>(call: Promise<T>): Promise<T> {
    this.#open.add(call);
    try {
      return await call;
    } finally {
      this.#open.delete(call);
    }
  }

  /** Resolves when no call is open, or after a time: cancelled calls still undo what they began. */
  async settled(): Promise<void> {
    const late = new Promise<void>((resolve) => setTimeout(resolve, settleMs).unref());
    await Promise.race([Promise.allSettled(this.#open), late]);
  }

  /** More calls would need too much memory for their outputs. */
  isBusy(): boolean {
    return this.#open.size >= mostCalls;
  }

  /** Nothing is lost when this backend is forgotten. */
  isIdle(): boolean {
    return this.#open.size === 0 && this.created.size === 0;
  }

  /** Labels for a sandbox that is created through this server. */
  labels(given: Readonly<Record<string, string>> = {}): Record<string, string> {
    return { mcp: this.label, ...given };
  }

  /** Kills what this caller created and has not killed. Resolves to the ids that could not be killed. */
  async killCreated(): Promise<string[]> {
    if (this.created.size === 0) return [];
    return this.created.killAll(await this.forkd());
  }
}
