/** The handle of a running command. It reconnects after a restart of the daemon. */
import { AppError, deadlineSignal } from "@forkd/contract/wire";
import type { ExecEvent, ExecResult, RequestOf } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";
import { fromWire } from "./convert/answer.ts";
import { refuseUnknown } from "./convert/request.ts";
import { cancelled } from "./errors.ts";
import { OutputBuffer, outputBytes, toBase64 } from "./output.ts";
import { pause } from "./sleep.ts";
import type { CommandEvent, CommandResult } from "./types.ts";

/** Name of a signal that a command can receive. */
export type SignalName = NonNullable<RequestOf<"execSignal">["signal"]>;

/** Bytes of one write to stdin; the daemon accepts up to 1 MiB of text. */
const inputPiece = 512 * 1024;
/** How long to wait for a daemon that does not answer. */
const reconnectMs = 30_000;
const firstRetryMs = 100;
const longestRetryMs = 2000;

/** A new command that ends with its reader, or one that runs without one. */
export type Command = {
  sandboxId: string;
  execId: number;
  pid?: number | undefined;
  /** First bytes to read of the output. */
  offsets?: { stdout: number; stderr: number } | undefined;
  /** Ends the reading; `detach()` fires it. */
  stop: AbortController;
  /** Ends the reading too. */
  signal?: AbortSignal | undefined;
  /** Receives each event before a reader of the handle does. */
  onEvent?: ((event: ExecEvent) => void | Promise<void>) | undefined;
};

/**
 * A running command. Iterate it for its events, call `wait()` for the result, or do both: the handle keeps
 * the output (up to a limit) for `wait()`. It can be iterated once. Leaving the iteration early kills a
 * command of `start()` and only detaches from other commands.
 *
 * The command keeps running while the daemon restarts. After a lost connection the handle attaches again,
 * from the last byte it received, as soon as a daemon answers.
 */
export class CommandHandle implements AsyncIterable<CommandEvent> {
  /** Number of the command in its sandbox, for `commands.attach()`. */
  readonly execId: number;
  readonly #client: Client;
  readonly #sandboxId: string;
  readonly #stdout = new OutputBuffer();
  readonly #stderr = new OutputBuffer();
  readonly #events: AsyncGenerator<CommandEvent>;
  readonly #stop: AbortController;
  readonly #signal: AbortSignal;
  readonly #onEvent: Command["onEvent"];
  /** Bytes received of each stream. */
  readonly #seen: { stdout: number; stderr: number };
  readonly #result: Promise<CommandResult>;
  #settle!: { resolve: (result: CommandResult) => void; reject: (error: unknown) => void };
  #pid: number | undefined;
  #taken = false;
  #lastInput: Promise<unknown> = Promise.resolve();
  /** A command of `start()`: it is killed when its reader stops. */
  readonly #isOwn: boolean;
  /** The request that started the command has ended: closing a later one does not kill the command. */
  #isDetached = false;
  readonly #lost = { since: undefined as number | undefined, attachedAt: 0, waitMs: firstRetryMs };

  /** @internal Without events the handle attaches to the command when it is read. */
  constructor(
    client: Client,
    command: Command,
    given?: { events: AsyncGenerator<ExecEvent>; first?: Extract<ExecEvent, { type: "started" }> },
  ) {
    this.#client = client;
    this.#sandboxId = command.sandboxId;
    this.execId = command.execId;
    this.#pid = given?.first?.pid ?? command.pid;
    this.#isOwn = given?.first !== undefined;
    this.#seen = command.offsets ?? { stdout: 0, stderr: 0 };
    this.#stop = command.stop;
    this.#signal = readingSignal(command);
    this.#onEvent = command.onEvent;
    this.#result = new Promise((resolve, reject) => {
      this.#settle = { resolve, reject };
    });
    // Without this, a failure that no caller waits for would be an unhandled rejection.
    this.#result.catch(() => undefined);
    this.#events = this.#follow(given?.first, given?.events ?? this.#attachLater());
  }

  /** @internal Makes a handle from the events of a new command; waits for the first, which has its number. */
  static async started(
    client: Client,
    command: Omit<Command, "execId">,
    events: AsyncGenerator<ExecEvent>,
  ): Promise<CommandHandle> {
    const { value: first } = await events.next();
    if (first?.type !== "started") {
      await events.return(undefined);
      throw new AppError("internal", "The daemon did not say which command it started");
    }
    return new CommandHandle(client, { ...command, execId: first.exec_id }, { events, first });
  }

  /** Process id in the guest; undefined after `attach()`. */
  get pid(): number | undefined {
    return this.#pid;
  }

  /** Iterates the events; works once. */
  [Symbol.asyncIterator](): AsyncGenerator<CommandEvent> {
    if (this.#taken) throw new TypeError("The events of a command can be iterated once");
    this.#taken = true;
    return this.#events;
  }

  /** Resolves to the result and the output received. Reads the events unless the caller iterates them. */
  async wait(): Promise<CommandResult> {
    if (!this.#taken) for await (const _ of this);
    return this.#result;
  }

  /** Writes to stdin, in the order of the calls. */
  write(data: string | Uint8Array, options: CallOptions = {}): Promise<void> {
    return this.#input(options, async () => {
      const bytes = typeof data === "string" ? new TextEncoder().encode(data) : data;
      for (let at = 0; at < bytes.length; at += inputPiece) {
        const piece = toBase64(bytes.subarray(at, at + inputPiece));
        await this.#sendInput({ data: piece, encoding: "base64" }, options);
      }
    });
  }

  /** Closes stdin after all writes. */
  closeStdin(options: CallOptions = {}): Promise<void> {
    return this.#input(options, () => this.#sendInput({ eof: true }, options));
  }

  /** Sends a signal to the process group of the command; default: "SIGTERM". */
  async signal(name: SignalName = "SIGTERM", options: CallOptions = {}): Promise<void> {
    await this.#client.invoke("execSignal", { ...this.#address(), signal: name }, options);
  }

  /** Kills the process group of the command. */
  async kill(options: CallOptions = {}): Promise<void> {
    await this.signal("SIGKILL", options);
  }

  /** Sets the size of the terminal of a command that has one (`pty`). */
  async resize(rows: number, cols: number, options: CallOptions = {}): Promise<void> {
    await this.#client.invoke("execResize", { ...this.#address(), rows, cols }, options);
  }

  /**
   * Stops reading the events. The command keeps running, unless it was started with `start()`: that kills it.
   * `wait()` then rejects with `cancelled`, unless the command had exited.
   */
  async detach(): Promise<void> {
    this.#stop.abort();
    if (this.#taken) return;
    this.#taken = true;
    await this.#events.return(undefined);
    this.#settle.reject(cancelled("detached"));
    // A generator that was never read does not run its cleanup.
    if (this.#isOwn) await this.#endUnread();
  }

  #address(): { id: string; exec_id: number } {
    return { id: this.#sandboxId, exec_id: this.execId };
  }

  #input(options: CallOptions, send: () => Promise<void>): Promise<void> {
    const sent = this.#lastInput.then(() => {
      refuseUnknown("execInput", options, []);
      return send();
    });
    this.#lastInput = sent.catch(() => undefined);
    return sent;
  }

  /** Waits for a daemon that restarts. Does not repeat input that may have arrived: it could arrive twice. */
  async #sendInput(
    input: Omit<RequestOf<"execInput">, "id" | "exec_id">,
    options: CallOptions,
  ): Promise<void> {
    const until = performance.now() + reconnectMs;
    for (let waitMs = firstRetryMs; ; waitMs = Math.min(2 * waitMs, longestRetryMs)) {
      try {
        return await this.#client.call("execInput", { ...this.#address(), ...input }, options);
      } catch (error) {
        const isGivenUp = this.#signal.aborted || options.signal?.aborted === true;
        if (!wasNotSent(error) || isGivenUp || performance.now() > until) throw error;
      }
      await pause(waitMs, this.#signal);
    }
  }

  /** Opens the events when they are read. */
  async *#attachLater(): AsyncGenerator<ExecEvent> {
    yield* await this.#attach();
  }

  /** Resolves to the events that this handle has not received. */
  #attach(): Promise<AsyncGenerator<ExecEvent>> {
    const offsets = { stdout_offset: this.#seen.stdout, stderr_offset: this.#seen.stderr };
    const request = { ...this.#address(), ...offsets };
    return this.#client.lines("attachExec", request, { signal: this.#signal });
  }

  async *#follow(
    first: ExecEvent | undefined,
    given: AsyncGenerator<ExecEvent>,
  ): AsyncGenerator<CommandEvent> {
    let rest = given;
    let isOver = false;
    try {
      if (first) yield toEvent(first);
      for (;;) {
        try {
          for await (const event of rest) {
            this.#note(event);
            isOver = event.type === "exit";
            await this.#onEvent?.(event);
            yield toEvent(event);
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
      if (this.#signal.aborted) throw cancelled(this.#signal.reason);
      if (performance.now() - state.since > reconnectMs) break;
      state.waitMs = Math.min(2 * state.waitMs, longestRetryMs);
      try {
        const events = await this.#attach();
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
      const result: ExecResult = {
        exec_id: this.execId,
        stdout: this.#stdout.toString(),
        stderr: this.#stderr.toString(),
        ...exit,
        truncated: this.#stdout.truncated || this.#stderr.truncated,
      };
      this.#settle.resolve(fromWire(result));
    }
  }
}

/** Fires when `detach()` or the signal of the caller ends the reading. */
export function readingSignal({ stop, signal }: Pick<Command, "stop" | "signal">): AbortSignal {
  return signal === undefined ? stop.signal : AbortSignal.any([stop.signal, signal]);
}

/** The stream throws the last kind of event, so that no reader sees it. */
function toEvent(event: ExecEvent): CommandEvent {
  return fromWire(event) as CommandEvent;
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
