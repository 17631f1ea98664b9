/** The handle of a running command. It reconnects after a restart of the daemon. */
import { AppError, deadlineSignal } from "@forkd/contract/wire";
import type { ExecEvent, ExecResult, RequestOf } from "@forkd/contract";
import type { Client } from "./client.ts";
import { cancelled } from "./errors.ts";
import { OutputBuffer, outputBytes, toBase64 } from "./output.ts";
import { pause } from "./sleep.ts";

/** Name of a signal that a command can receive. */
export type SignalName = NonNullable<RequestOf<"execSignal">["signal"]>;

/** Bytes of one write to stdin; the daemon accepts up to 1 MiB of text. */
const inputPiece = 512 * 1024;
/** How long to wait for a daemon that does not answer. */
const reconnectMs = 30_000;
const firstRetryMs = 100;
const longestRetryMs = 2000;

/**
 * A running command. Iterate it for its events, call `wait()` for the result, or do both: the handle keeps
 * the output (up to a limit) for `wait()`. It can be iterated once. Leaving the iteration early kills a
 * command of `start()` and only detaches from one of `attach()`.
 *
 * The command keeps running while the daemon restarts. After a lost connection the handle attaches again,
 * from the last byte it received, as soon as a daemon answers.
 */
export class CommandHandle implements AsyncIterable<ExecEvent> {
  /** Number of the command in its sandbox, for `commands.attach()`. */
  readonly execId: number;
  readonly #client: Client;
  readonly #sandboxId: string;
  readonly #stdout = new OutputBuffer();
  readonly #stderr = new OutputBuffer();
  readonly #events: AsyncGenerator<ExecEvent>;
  readonly #signal: AbortSignal | undefined;
  /** Bytes received of each stream. */
  readonly #seen: { stdout: number; stderr: number };
  readonly #result: Promise<ExecResult>;
  #settle!: { resolve: (result: ExecResult) => void; reject: (error: unknown) => void };
  #pid: number | undefined;
  #taken = false;
  #lastInput: Promise<unknown> = Promise.resolve();
  /** A command of `start()`: it is killed when its reader stops. */
  readonly #isOwn: boolean;
  /** The request that started the command has ended: closing a later one does not kill the command. */
  #isDetached = false;
  readonly #lost = { since: undefined as number | undefined, attachedAt: 0, waitMs: firstRetryMs };

  constructor(
    client: Client,
    command: {
      sandboxId: string;
      execId: number;
      /** Offsets of the first events. */
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
    // Without this, a failure that no caller waits for would be an unhandled rejection.
    this.#result.catch(() => undefined);
    this.#events = this.#follow(first, events);
  }

  /** Makes a handle from the events of a new command; waits for the first, which has its number. */
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

  /** Process id in the guest; undefined after `attach()`. */
  get pid(): number | undefined {
    return this.#pid;
  }

  /** Iterates the events; works once. */
  [Symbol.asyncIterator](): AsyncGenerator<ExecEvent> {
    if (this.#taken) throw new TypeError("The events of a command can be iterated once");
    this.#taken = true;
    return this.#events;
  }

  /** Resolves to the result and the output received. Reads the events unless the caller iterates them. */
  async wait(): Promise<ExecResult> {
    if (!this.#taken) for await (const _ of this);
    return this.#result;
  }

  /** Writes to stdin, in the order of the calls. */
  write(data: string | Uint8Array): Promise<void> {
    return this.#input(async () => {
      const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
      for (let at = 0; at < bytes.length; at += inputPiece) {
        const piece = toBase64(bytes.subarray(at, at + inputPiece));
        await this.#sendInput({ data: piece, encoding: "base64" });
      }
    });
  }

  /** Closes stdin after all writes. */
  closeStdin(): Promise<void> {
    return this.#input(() => this.#sendInput({ eof: true }));
  }

  /** Sends a signal to the process group of the command. */
  async signal(name: SignalName): Promise<void> {
    await this.#client.call("execSignal", { ...this.#address(), signal: name });
  }

  /** Kills the process group of the command. */
  async kill(): Promise<void> {
    await this.signal("SIGKILL");
  }

  /** Sets the size of the terminal of a command that has one (`pty`). */
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

  /** Waits for a daemon that restarts. Does not repeat input that may have arrived: it could arrive twice. */
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
      // Has no effect after an exit event or a failure: the promise is settled.
      this.#settle.reject(new AppError("cancelled", "The events of the command were not read to the end"));
      await rest.return(undefined);
      if (this.#isOwn && this.#isDetached && !isOver) await this.#endUnread();
    }
  }

  /** Kills the command, as the daemon does when the request that started it ends early. */
  async #endUnread(): Promise<void> {
    using deadline = deadlineSignal(longestRetryMs);
    const options = { signal: deadline.signal };
    const request = { ...this.#address(), signal: "SIGKILL" as const };
    // Nothing is left to do if the command or the daemon is gone.
    await this.#client.call("execSignal", request, options).catch(() => undefined);
  }

  /** Resolves to the missing events. Throws `lost` unless it means that the daemon is gone. */
  async #reattach(lost: unknown): Promise<AsyncGenerator<ExecEvent>> {
    const state = this.#lost;
    // Streams that end right after they begin count as one loss.
    if (performance.now() - state.attachedAt > longestRetryMs) this.#isHeard();
    while (isDaemonGone(lost)) {
      this.#isDetached = true;
      state.since ??= performance.now();
      // Polls, because a daemon that is not running cannot announce its start.
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

/** True if no process listened, so that nothing was received. */
function wasNotSent(error: unknown): boolean {
  if (!(error instanceof AppError) || error.code !== "daemon_unreachable") return false;
  // fetch() puts the reason into the cause of a TypeError.
  for (let cause = error.cause; cause instanceof Error; cause = cause.cause)
    if ("code" in cause && (cause.code === "ECONNREFUSED" || cause.code === "ENOENT")) return true;
  return false;
}
