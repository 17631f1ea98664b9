/**
 * Makes calls that create something safe to repeat: the same key, caller, route and input get the answer of
 * the first call, which runs once. Answers are kept for a day, within bounds. Failures are not kept: a failed
 * call undoes its work, so that a repeated call starts again.
 *
 * A repeated call that arrives while the first one runs waits for it. The work is aborted when the last
 * caller has gone.
 */
import { createHash } from "node:crypto";
import { nullLogger, SharedTask, type Logger } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { Journal, type Entry } from "./journal.ts";

const keptMs = 24 * 60 * 60 * 1000;
const maxEntries = 10_000;
const maxBytes = 64 * 1024 * 1024;
/** The file is rewritten when it has grown this far beyond what is kept in it */
const slackBytes = 16 * 1024 * 1024;

export type Answer = { readonly status: number; readonly body: string };
export type KeyedCall = {
  readonly key: string;
  readonly route: string;
  readonly input: unknown;
  readonly context: { readonly signal: AbortSignal; readonly caller?: { readonly name: string } | undefined };
};
type Work = (signal: AbortSignal) => Promise<Answer>;
type Running = { digest: string; task: SharedTask<Answer> };

export class Idempotency implements AsyncDisposable {
  readonly #journal: Journal | undefined;
  readonly #log: Logger;
  /** oldest first; `dueMs` is when the answer is dropped, by the monotonic clock */
  readonly #kept = new Map<string, { entry: Entry; dueMs: number }>();
  readonly #running = new Map<string, Running>();
  readonly #limits: { entries: number; bytes: number };
  #bytes = 0;

  constructor(
    options: { journal?: Journal; log?: Logger; limits?: { entries: number; bytes: number } } = {},
  ) {
    this.#journal = options.journal;
    this.#log = options.log ?? nullLogger();
    this.#limits = options.limits ?? { entries: maxEntries, bytes: maxBytes };
  }

  /** Reads the answers of the file and rewrites it without those that have expired. */
  static async open(path: string, log: Logger): Promise<Idempotency> {
    const journal = new Journal(path);
    const idempotency = new Idempotency({ journal, log });
    const found = await journal.read();
    // The last answer of a key counts. The wall clock may have been set between two lines, so that they are
    // not in order.
    const last = new Map(found.map((entry) => [nameOf(entry.principal, entry.key), entry]));
    for (const entry of [...last.values()].sort((a, b) => a.at_ms - b.at_ms)) idempotency.#keep(entry);
    idempotency.#forgetOld();
    if (found.length > 0) await idempotency.#shorten();
    return idempotency;
  }

  get size(): number {
    return this.#kept.size;
  }

  /** Rejects with `idempotency_mismatch` if the key was used for another request. */
  async run(call: KeyedCall, work: Work): Promise<Answer & { replayed: boolean }> {
    const principal = call.context.caller?.name ?? "";
    const name = nameOf(principal, call.key);
    const digest = digestOf(call);
    this.#forgetOld();
    const kept = this.#kept.get(name)?.entry;
    if (kept) {
      requireSame(call, kept.digest, digest);
      return { status: kept.status, body: kept.body, replayed: true };
    }
    const running = this.#running.get(name);
    // Aborted work undoes what it began; start again after that.
    if (running?.task.isAbandoned) {
      await running.task.result.catch(() => undefined);
      return this.run(call, work);
    }
    if (running) requireSame(call, running.digest, digest);
    const shared =
      running ??
      this.#begin(name, digest, work, (answer) => ({
        principal,
        key: call.key,
        route: call.route,
        digest,
        ...answer,
        at_ms: Date.now(),
      }));
    return { ...(await shared.task.wait(call.context.signal)), replayed: running !== undefined };
  }

  #begin(name: string, digest: string, work: Work, entryOf: (answer: Answer) => Entry): Running {
    const task = new SharedTask(async (signal) => {
      try {
        const answer = await work(signal);
        await this.#remember(entryOf(answer));
        return answer;
      } finally {
        this.#running.delete(name);
      }
    });
    const running = { digest, task };
    this.#running.set(name, running);
    return running;
  }

  /** A failed append does not fail the call: its work is done. */
  async #remember(entry: Entry): Promise<void> {
    this.#keep(entry);
    this.#forgetOld();
    try {
      await this.#journal?.append(entry);
    } catch (error) {
      this.#log.error({ event: "idempotency.journal", outcome: "failed", error });
    }
    if ((this.#journal?.size ?? 0) > this.#bytes + slackBytes) await this.#shorten();
  }

  /** Rewrites the file with the current answers. If that fails, the file stays as it is. */
  async #shorten(): Promise<void> {
    try {
      await this.#journal?.rewrite([...this.#kept.values()].map(({ entry }) => entry));
    } catch (error) {
      this.#log.error({ event: "idempotency.journal", outcome: "failed", error });
    }
  }

  #keep(entry: Entry): void {
    const name = nameOf(entry.principal, entry.key);
    this.#drop(name);
    const now = Date.now();
    // A time in the future comes from a wrong clock and counts as now.
    const at = Math.min(entry.at_ms, now);
    const kept = { ...entry, at_ms: at };
    this.#kept.set(name, { entry: kept, dueMs: performance.now() + keptMs - (now - at) });
    this.#bytes += sizeOf(kept);
  }

  #drop(name: string): void {
    const kept = this.#kept.get(name);
    if (kept === undefined) return;
    this.#kept.delete(name);
    this.#bytes -= sizeOf(kept.entry);
  }

  #forgetOld(): void {
    const now = performance.now();
    for (const [name, { dueMs }] of this.#kept) {
      const isOver = this.#kept.size > this.#limits.entries || this.#bytes > this.#limits.bytes;
      if (!isOver && dueMs > now) return;
      this.#drop(name);
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.allSettled([...this.#running.values()].map(({ task }) => task.result));
    await this.#journal?.[Symbol.asyncDispose]();
  }
}

function nameOf(principal: string, key: string): string {
  return JSON.stringify([principal, key]);
}

function digestOf({ route, input }: KeyedCall): string {
  return createHash("sha256")
    .update(JSON.stringify([route, input]))
    .digest("hex");
}

function sizeOf(entry: Entry): number {
  return Buffer.byteLength(entry.body) + entry.key.length + 256;
}

function requireSame({ key }: KeyedCall, found: string, asked: string): void {
  if (found === asked) return;
  throw new AppError(
    "idempotency_mismatch",
    `Cannot use Idempotency-Key "${key}": it was used for another request`,
    { details: { key }, remedy: { action: "new_idempotency_key" } },
  );
}
