/** The commands of one sandbox. */
import type { ExecInfo, ExecResult, RequestOf } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";
import { CommandHandle } from "./command-handle.ts";
import { CommandError } from "./errors.ts";

/** Options of every command. */
export type CommandOptions = {
  /** Variables in addition to those of the sandbox; default: none. */
  env?: Record<string, string> | undefined;
  /** Working directory in the guest; default: the home directory of the user. */
  cwd?: string | undefined;
  /** User as name, uid, name:group or uid:gid; default: root. */
  user?: string | undefined;
  /** Kills the command after this time; 0: no limit; default: 30 for `run()`, otherwise no limit. */
  timeoutSecs?: number | undefined;
  /** Text for stdin, followed by end of file; default: empty. */
  stdin?: string | undefined;
  /** Aborts the call, which kills a command of `run()` or `start()`. */
  signal?: AbortSignal | undefined;
};
/** Options of `commands.run()`. */
export type RunOptions = CommandOptions & {
  /** Rejects with CommandError if the exit code is not 0; default: false. */
  check?: boolean | undefined;
};
/** Options of `commands.start()` and `commands.background()`. */
export type StartOptions = CommandOptions & {
  /** Gives the command a terminal of this size; default: none. */
  pty?: { rows: number; cols: number } | undefined;
  /** Keeps stdin open for `write()`; default: false. */
  stdinOpen?: boolean | undefined;
};

/** Runs commands in one sandbox. */
export class Commands {
  readonly #client: Client;
  readonly #id: string;

  constructor(client: Client, sandboxId: string) {
    this.#client = client;
    this.#id = sandboxId;
  }

  /** Runs a command and resolves when it has exited. Abort kills it. */
  async run(args: readonly string[], options: RunOptions = {}): Promise<ExecResult> {
    const result = await this.#client.call("exec", this.#request(args, options), options);
    // The daemon answers with the whole result unless the request has `background`.
    const whole = result as ExecResult;
    if (options.check === true && whole.exit_code !== 0) throw new CommandError(args, whole);
    return whole;
  }

  /** Starts a command and resolves to its handle. Abort kills it. */
  async start(args: readonly string[], options: StartOptions = {}): Promise<CommandHandle> {
    const request = { ...this.#request(args, options), stream: true };
    const events = await this.#client.lines("exec", request, options);
    return CommandHandle.started(this.#client, this.#id, events, options.signal);
  }

  /** Starts a command that keeps running after this call; see `attach()` and `list()`. */
  async background(
    args: readonly string[],
    options: StartOptions = {},
  ): Promise<{ exec_id: number; pid: number }> {
    const request = { ...this.#request(args, options), background: true };
    // The daemon answers with these two fields because the request has `background`.
    return (await this.#client.call("exec", request, options)) as { exec_id: number; pid: number };
  }

  /** Attaches to a running or recently finished command. Abort only detaches. */
  async attach(
    execId: number,
    options: {
      /** First byte of stdout to receive; default: 0. */
      stdoutOffset?: number | undefined;
      /** First byte of stderr to receive; default: 0. */
      stderrOffset?: number | undefined;
      /** Detaches from the command. */
      signal?: AbortSignal | undefined;
    } = {},
  ): Promise<CommandHandle> {
    const request = {
      id: this.#id,
      exec_id: execId,
      stdout_offset: options.stdoutOffset ?? 0,
      stderr_offset: options.stderrOffset ?? 0,
    };
    const events = await this.#client.lines("attachExec", request, options);
    const offsets = { stdout: request.stdout_offset, stderr: request.stderr_offset };
    const command = { sandboxId: this.#id, execId, offsets, signal: options.signal };
    return new CommandHandle(this.#client, command, events);
  }

  /** Lists running and recently finished commands. */
  list(options: CallOptions = {}): Promise<ExecInfo[]> {
    return this.#client.call("listExecs", { id: this.#id }, options);
  }

  #request(args: readonly string[], options: StartOptions): RequestOf<"exec"> {
    return {
      id: this.#id,
      args: [...args],
      env: options.env,
      cwd: options.cwd,
      user: options.user,
      timeout_secs: options.timeoutSecs,
      stdin: options.stdin,
      pty: options.pty,
      stdin_open: options.stdinOpen,
    };
  }
}
