/** Commands in one sandbox. */
import type { ExecInfo, ExecResult, RequestOf } from "@forkd/contract";
import type { Client } from "./client.ts";
import { CommandHandle } from "./command-handle.ts";
import { CommandError } from "./errors.ts";

export type CommandOptions = {
  env?: Record<string, string> | undefined;
  cwd?: string | undefined;
  /** name, uid, name:group or uid:gid */
  user?: string | undefined;
  /** 0 = no limit */
  timeoutSecs?: number | undefined;
  /** text given as input, then end of file */
  stdin?: string | undefined;
  signal?: AbortSignal | undefined;
};
export type RunOptions = CommandOptions & {
  /** a non-zero exit rejects with CommandError */
  check?: boolean | undefined;
};
export type StartOptions = CommandOptions & {
  pty?: { rows: number; cols: number } | undefined;
  /** leave stdin open for `write()` */
  stdinOpen?: boolean | undefined;
};

export class Commands {
  readonly #client: Client;
  readonly #id: string;

  constructor(client: Client, sandboxId: string) {
    this.#client = client;
    this.#id = sandboxId;
  }

  /** Runs a command to its end. Abort kills it. */
  async run(args: readonly string[], options: RunOptions = {}): Promise<ExecResult> {
    const result = await this.#client.call("exec", this.#request(args, options), options);
    // The daemon answers with the whole result unless `background` is asked for.
    const whole = result as ExecResult;
    if (options.check === true && whole.exit_code !== 0) throw new CommandError(args, whole);
    return whole;
  }

  /** Resolves when the command has started. Abort kills it. */
  async start(args: readonly string[], options: StartOptions = {}): Promise<CommandHandle> {
    const request = { ...this.#request(args, options), stream: true };
    const events = await this.#client.lines("exec", request, options);
    return CommandHandle.started(this.#client, this.#id, events, options.signal);
  }

  /** The command outlives this connection; see `attach()` and `list()`. */
  async background(
    args: readonly string[],
    options: StartOptions = {},
  ): Promise<{ exec_id: number; pid: number }> {
    const request = { ...this.#request(args, options), background: true };
    // The daemon answers with this part alone because `background` is asked for.
    return (await this.#client.call("exec", request, options)) as { exec_id: number; pid: number };
  }

  /** Follows a command from given offsets. Abort only detaches. */
  async attach(
    execId: number,
    options: {
      stdoutOffset?: number | undefined;
      stderrOffset?: number | undefined;
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

  list(): Promise<ExecInfo[]> {
    return this.#client.call("listExecs", { id: this.#id });
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
