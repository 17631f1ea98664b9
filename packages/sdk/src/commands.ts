/** The commands of one sandbox. */
import { AppError } from "@forkd/contract/wire";
import type { ExecEvent, RequestOf } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";
import { CommandHandle, readingSignal } from "./command-handle.ts";
import { remember } from "./convert/answer.ts";
import { requestOf, shown } from "./convert/request.ts";
import { CommandError } from "./errors.ts";
import { outputReaders, type OutputCallbacks } from "./output.ts";
import { Run } from "./run.ts";
import type { CommandEvent, CommandInfo, CommandResult } from "./types.ts";

/** Options of every command. */
export type CommandOptions = {
  /** Variables in addition to those of the sandbox; default: none. */
  env?: Record<string, string> | undefined;
  /** Working directory in the guest; default: the home directory of the user. */
  cwd?: string | undefined;
  /** User as name, uid, name:group or uid:gid; default: "root". */
  user?: string | undefined;
  /** Kills the command after this many ms; 0: no limit; default: 30000, in the background no limit. */
  timeoutMs?: number | undefined;
  /** Text for stdin, followed by end of file; default: empty. */
  stdin?: string | undefined;
  /** Keeps stdin open for `write()` of the handle; default: false. */
  stdinOpen?: boolean | undefined;
  /** Gives the command a terminal of this size; default: none. */
  pty?:
    | {
        /** Lines of the terminal; default: 24. */
        rows?: number | undefined;
        /** Columns of the terminal; default: 80. */
        cols?: number | undefined;
      }
    | undefined;
  /** Aborts the call, which kills the command unless it runs in the background; default: none. */
  signal?: AbortSignal | undefined;
} & OutputCallbacks;

/** Options of `commands.run()`. */
export type RunOptions = CommandOptions & {
  /** Rejects with CommandError if the exit code is not 0; default: false. */
  check?: boolean | undefined;
  /** Returns the handle at once; the command keeps running without this client; default: false. */
  background?: false | undefined;
};
/** Options of `commands.run()` with `background`. */
export type BackgroundOptions = CommandOptions & {
  /** Returns the handle at once; the command keeps running without this client. */
  background: true;
};
/** Options of `commands.attach()`. */
export type AttachOptions = CallOptions &
  OutputCallbacks & {
    /** First byte of stdout to receive; default: 0. */
    stdoutOffset?: number | undefined;
    /** First byte of stderr to receive; default: 0. */
    stderrOffset?: number | undefined;
  };

/** A command of `commands.run()`: await it for its result, or iterate it for its events. */
export type CommandRun = Run<CommandResult, CommandEvent>;

const callbacks = ["onStdout", "onStderr"];
const defaultTimeoutMs = 30_000;

/** Runs commands in one sandbox. */
export class Commands {
  readonly #client: Client;
  readonly #id: string;

  /** @internal */
  constructor(client: Client, sandboxId: string) {
    this.#client = client;
    this.#id = sandboxId;
  }

  /**
   * Runs a command: text in `/bin/sh`, a list of program and arguments without a shell. Await the result, iterate
   * the events, or get the handle with `background: true`. Leaving the loop, or abort, kills the command.
   */
  run(command: string | readonly string[], options: BackgroundOptions): Promise<CommandHandle>;
  run(command: string | readonly string[], options?: RunOptions): CommandRun;
  run(
    command: string | readonly string[],
    { background, ...options }: RunOptions | BackgroundOptions = {},
  ): CommandRun | Promise<CommandHandle> {
    if (background === true) return this.#background(command, options);
    const { check, ...rest } = { check: undefined, ...options };
    const run: CommandRun = new Run(
      this.start(command, { timeoutMs: defaultTimeoutMs, ...rest }).then((handle) => ({
        result: async () => {
          const result = await handle.wait();
          if (check === true && result.exitCode !== 0) throw new CommandError(programOf(command), result);
          return result;
        },
        events: () => handle[Symbol.asyncIterator](),
      })),
    );
    return run;
  }

  /**
   * Starts a command that ends with this client, and resolves to its handle. Abort kills it, and so does leaving the
   * loop over its events. It has no time limit by default.
   */
  async start(command: string | readonly string[], options: CommandOptions = {}): Promise<CommandHandle> {
    const { signal, onStdout, onStderr } = options;
    const request = this.#request(command, { stream: true }, options);
    const stop = new AbortController();
    const reading = { sandboxId: this.#id, stop, signal, ...onEvent({ onStdout, onStderr }) };
    const events = await this.#client.lines("exec", request, { signal: readingSignal(reading) });
    return CommandHandle.started(this.#client, reading, events);
  }

  /** Attaches to a running or recently finished command. Abort only detaches. */
  async attach(command: number | CommandHandle, options: AttachOptions = {}): Promise<CommandHandle> {
    const { signal, timeoutMs, onStdout, onStderr } = options;
    const execId = typeof command === "number" ? command : command.execId;
    const request = requestOf("attachExec", { id: this.#id, exec_id: execId }, options, callbacks);
    const stop = new AbortController();
    const offsets = { stdout: options.stdoutOffset ?? 0, stderr: options.stderrOffset ?? 0 };
    const reading = {
      sandboxId: this.#id,
      execId,
      offsets,
      stop,
      signal,
      ...onEvent({ onStdout, onStderr }),
    };
    const timed = { signal: readingSignal(reading), timeoutMs };
    return new CommandHandle(this.#client, reading, {
      events: await this.#client.lines("attachExec", request, timed),
    });
  }

  /** Lists running and recently finished commands. */
  list(options: CallOptions = {}): Promise<CommandInfo[]> {
    return this.#client.invoke("listExecs", { id: this.#id }, options);
  }

  async #background(
    command: string | readonly string[],
    options: CommandOptions & { check?: unknown },
  ): Promise<CommandHandle> {
    const { signal, onStdout, onStderr } = options;
    const request = this.#request(command, { background: true }, options);
    // The daemon answers with these two fields because the request has `background`.
    const started = (await this.#client.call("exec", request, { signal })) as {
      exec_id: number;
      pid: number;
    };
    const stop = new AbortController();
    const facts = { sandboxId: this.#id, execId: started.exec_id, pid: started.pid, stop };
    const handle = new CommandHandle(this.#client, { ...facts, ...onEvent({ onStdout, onStderr }) });
    // Without a reader the callbacks would get nothing. wait() reports a failure.
    if (onStdout || onStderr) handle.wait().catch(() => undefined);
    return remember(handle, started);
  }

  #request(
    command: string | readonly string[],
    fixed: Partial<RequestOf<"exec">>,
    options: object,
  ): RequestOf<"exec"> {
    if (typeof command !== "string" && !Array.isArray(command))
      throw new AppError(
        "invalid_request",
        `The command must be text or a list of a program and its arguments, not ${shown(command)}`,
      );
    const args = typeof command === "string" ? ["/bin/sh", "-c", command] : [...command];
    const all = { id: this.#id, args, stream: undefined, background: undefined, ...fixed };
    return requestOf("exec", all, options, callbacks);
  }
}

/** How errors name the command. */
export function programOf(command: string | readonly string[]): string {
  return typeof command === "string" ? `"${command.slice(0, 100)}"` : (command[0] ?? "");
}

function onEvent(given: OutputCallbacks): {
  onEvent?: (event: ExecEvent) => void | Promise<void>;
} {
  const read = outputReaders(given);
  if (read === undefined) return {};
  return {
    onEvent: (event) =>
      event.type === "stdout" || event.type === "stderr" ? read(event.type, event) : undefined,
  };
}
