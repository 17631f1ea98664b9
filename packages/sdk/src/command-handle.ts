/**
 * A command that runs. Iterate it for its events, or `wait()` for the whole result, or both: what passes through the
 * iteration is kept (up to a limit) for `wait()`. Only one iteration; stopping it early ends the request, which kills
 * a command made by `start()` and only detaches from one given by `attach()`.
 *
 * A command goes on when the daemon is restarted. The events go on too: where the connection is lost, the command is attached to
 * again from the bytes that have come so far, as soon as a daemon answers.
 */
import { AppError } from "@forkd/contract/wire";
import type { ExecEvent, ExecResult, RequestOf } from "@forkd/contract";
import type { Client } from "./client.ts";
import { cancelled } from "./errors.ts";
import { OutputBuffer, outputBytes, toBase64 } from "./output.ts";
import { pause } from "./sleep.ts";

export type SignalName = NonNullable<RequestOf<"execSignal">["signal"]>;

/** Bytes of one write to stdin; the daemon takes up to 1 MiB of text */
const inputPiece = 512 * 1024;
/** How long a daemon is waited for that does not answer. */
const reconnectMs = 30_000;
const firstRetryMs = 100;
const longestRetryMs = 2000;

export class CommandHandle implements AsyncIterable<ExecEvent> {
  readonly execId: number;
  readonly #client: Client;
  readonly #sandboxId: string;
  readonly #stdout = new OutputBuffer();
  readonly #stderr = new OutputBuffer();
  readonly #events: AsyncGenerator<ExecEvent>;
  readonly #signal: AbortSignal | undefined;
  /** bytes of each stream that have come */
  readonly #seen: { stdout: number; stderr: number };
  readonly #result: Promise<ExecResult>;
  #settle!: { resolve: (result: ExecResult) => void; reject: (error: unknown) => void };
  #pid: number | undefined;
  #taken = false;
  #lastInput: Promise<unknown> = Promise.resolve();
  /** made by `start()`: it ends with its reader */
  readonly #isOwn: boolean;
  /** the request that made the command is over, so that its end no longer ends the command */
  #isDetached = false;
  readonly #lost = { since: undefined as number | undefined, attachedAt: 0, waitMs: firstRetryMs };

  constructor(
    client: Client,
    command: {
      sandboxId: string;
      execId: number;
      /** where the events begin */
      offsets?: { stdout: number; stderr: number };
      signal?: AbortSignal | undefined;
    },
    events: AsyncGenerator<ExecEvent>,
    first?: Extract<ExecEvent, { type: "started" }>,
  ) {
    this.#client = client;
    this.#sandboxId = command.sandboxId;
    this.execId = command.execId;
    this.#pid = first?.pid;
    this.#isOwn = first !== undefined;
    this.#seen = command.offsets ?? { stdout: 0, stderr: 0 };
    this.#signal = command.signal;
    this.#result = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    // A failure that nobody waits for is not an unhandled one.
    this.#result.catch(() => undefined);
    this.#events = this.#follow(first, events);
  }

  /** The handle of a command that begins with these events; waits for the first, which says what has started. */
  static async started(
    client: Client,
    sandboxId: string,
    events: AsyncGenerator<ExecEvent>,
    signal?: AbortSignal,
  ): Promise<CommandHandle> {
    const { value: first } = await events.next();
    if (first?.type !== "started") {
      await events.return(undefined);
      throw new AppError("internal", "The daemon did not say which command it started");
    }
    return new CommandHandle(client, { sandboxId, execId: first.exec_id, signal }, events, first);
  }

  /** process id in the guest; undefined if the daemon did not say, as when attached */
  get pid(): number | undefined {
    return this.#pid;
  }

  [Symbol.asyncIterator](): AsyncGenerator<ExecEvent> {
    if (this.#taken) throw new TypeError("The events of a command can be iterated once");
    this.#taken = true;
    return this.#events;
  }

  /** The result, with the output that this handle has seen. Reads the events itself unless they are being iterated. */
  async wait(): Promise<ExecResult> {
    if (!this.#taken) for await (const _ of this);
    return this.#result;
  }

  /** Writes to stdin, in order of calling. */
  write(data: string | Uint8Array): Promise<void> {
    return this.#input(async () => {
      const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
      for (let at = 0; at < bytes.length; at += inputPiece) {
        const piece = toBase64(bytes.subarray(at, at + inputPiece));
        await this.#sendInput({ data: piece, encoding: "base64" });
      }
    });
  }

  closeStdin(): Promise<void> {
    return this.#input(() => this.#sendInput({ eof: true }));
  }

  /** Signals the process group. */
  async signal(name: SignalName): Promise<void> {
    await this.#client.call("execSignal", { ...this.#address(), signal: name });
  }

  async kill(): Promise<void> {
    await this.signal("SIGKILL");
  }

  async resize(rows: number, cols: number): Promise<void> {
    await this.#client.call("execResize", { ...this.#address(), rows, cols });
  }

  #address(): { id: string; exec_id: number } {
    return { id: this.#sandboxId, exec_id: this.execId };
  }

  #input(send: () => Promise<void>): Promise<void> {
    const sent = this.#lastInput.then(send);
    this.#lastInput = sent.catch(() => undefined);
    return sent;
  }

  /** Waits for a daemon that is being restarted. What may have reached one is not sent again: it could arrive twice. */
  async #sendInput(input: Omit<RequestOf<"execInput">, "id" | "exec_id">): Promise<void> {
    const until = performance.now() + reconnectMs;
    for (let waitMs = firstRetryMs; ; waitMs = Math.min(2 * waitMs, longestRetryMs)) {
      try {
        return await this.#client.call("execInput", { ...this.#address(), ...input });
      } catch (error) {
        if (!wasNotSent(error) || this.#signal?.aborted || performance.now() > until) throw error;
      }
      await pause(waitMs, this.#signal);
    }
  }

  async *#follow(first: ExecEvent | undefined, given: AsyncGenerator<ExecEvent>): AsyncGenerator<ExecEvent> {
    let rest = given;
    let isOver = false;
    try {
      if (first) yield first;
      for (;;) {
        try {
          for await (const event of rest) {
            this.#note(event);
            isOver = event.type === "exit";
            yield event;
            if (isOver) return;
          }
          throw new AppError("daemon_unreachable", "The stream of the command ended before the command did");
        } catch (error) {
          rest = await this.#reattach(error);
        }
      }
    } catch (error) {
      this.#settle.reject(error);
      throw error;
    } finally {
      // No effect after an exit event or a failure: the first cause stays.
      this.#settle.reject(new AppError("cancelled", "The events of the command were not read to the end"));
      await rest.return(undefined);
      if (this.#isOwn && this.#isDetached && !isOver) await this.#endUnread();
    }
  }

  /** As the daemon does where the request that made the command ends. */
  async #endUnread(): Promise<void> {
    const options = { signal: AbortSignal.timeout(longestRetryMs) };
    const request = { ...this.#address(), signal: "SIGKILL" as const };
    // A command or a daemon that is gone needs no more.
    await this.#client.call("execSignal", request, options).catch(() => undefined);
  }

  /** The events from where they broke off. Throws what broke them off if that is not the daemon's end. */
  async #reattach(lost: unknown): Promise<AsyncGenerator<ExecEvent>> {
    const state = this.#lost;
    // Streams that end as soon as they begin count as one loss.
    if (performance.now() - state.attachedAt > longestRetryMs) this.#isHeard();
    while (isDaemonGone(lost)) {
      this.#isDetached = true;
      state.since ??= performance.now();
      // A daemon that is not there has no way to say when it will be.
      await pause(state.waitMs, this.#signal);
      if (this.#signal?.aborted) throw cancelled(this.#signal.reason);
      if (performance.now() - state.since > reconnectMs) break;
      state.waitMs = Math.min(2 * state.waitMs, longestRetryMs);
      try {
        const offsets = { stdout_offset: this.#seen.stdout, stderr_offset: this.#seen.stderr };
        const options = { signal: this.#signal };
        const events = await this.#client.lines("attachExec", { ...this.#address(), ...offsets }, options);
        state.attachedAt = performance.now();
        return events;
      } catch (error) {
        if (!isDaemonGone(error)) throw error;
      }
    }
    throw lost;
  }

  #isHeard(): void {
    this.#lost.since = undefined;
    this.#lost.waitMs = firstRetryMs;
  }

  #note(event: ExecEvent): void {
    this.#isHeard();
    if (event.type === "started") this.#pid = event.pid;
    else if (event.type === "stdout" || event.type === "stderr") {
      const bytes = outputBytes(event);
      this.#seen[event.type] = event.offset + bytes.length;
      (event.type === "stdout" ? this.#stdout : this.#stderr).push(bytes);
    } else if (event.type === "exit") {
      const { type: _, ...exit } = event;
      this.#settle.resolve({
        ...exit,
        exec_id: this.execId,
        stdout: this.#stdout.toString(),
        stderr: this.#stderr.toString(),
        truncated: this.#stdout.truncated || this.#stderr.truncated,
      });
    }
  }
}

function isDaemonGone(error: unknown): boolean {
  return (
    error instanceof AppError && (error.code === "daemon_unreachable" || error.code === "daemon_stopping")
  );
}

/** Nothing listened, so nothing took it. */
function wasNotSent(error: unknown): boolean {
  if (!(error instanceof AppError) || error.code !== "daemon_unreachable") return false;
  // fetch() hides the reason in the cause of a TypeError.
  for (let cause = error.cause; cause instanceof Error; cause = cause.cause)
    if ("code" in cause && (cause.code === "ECONNREFUSED" || cause.code === "ENOENT")) return true;
  return false;
}
