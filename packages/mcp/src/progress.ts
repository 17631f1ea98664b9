/** Progress notifications of one call: every second, for a client that asked for them. */
import type { ServerContext } from "@modelcontextprotocol/server";

const everyMs = 1000;
/** Longest message of a notification. */
const longestMessage = 200;

export class Progress implements Disposable {
  readonly #began = performance.now();
  readonly #timer: NodeJS.Timeout | undefined;
  #message: string;
  #done: { readonly count: number; readonly of: number } | undefined;

  constructor(context: ServerContext, message: string) {
    this.#message = message;
    const { _meta: meta, notify } = context.mcpReq;
    const progressToken = meta?.progressToken;
    if (progressToken === undefined) return;
    const send = () => {
      const { seconds } = this;
      const params = {
        progressToken,
        progress: seconds,
        message: `${this.#text()} (${Math.round(seconds)} s)`,
      };
      // A client that is gone needs no progress; its request is cancelled elsewhere.
      notify({ method: "notifications/progress", params }).catch(() => undefined);
    };
    this.#timer = setInterval(send, everyMs).unref();
  }

  /** Seconds since the start: a number that increases with every notification. */
  get seconds(): number {
    return (performance.now() - this.#began) / 1000;
  }

  /** What the next notifications say. */
  say(message: string): void {
    this.#message = message;
  }

  /** How many of how many are done. */
  count(done: number, of: number): void {
    this.#done = { count: done, of };
  }

  #text(): string {
    const line = this.#message.split("\n").at(-1)?.slice(0, longestMessage) ?? "";
    return this.#done === undefined ? line : `${line} ${this.#done.count}/${this.#done.of}`;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
  }
}
