/** Terminals in one sandbox. */
import { requestOf } from "./convert/request.ts";
import type { CallOptions, Client } from "./client.ts";
import { CommandHandle } from "./command-handle.ts";
import { outputBytes } from "./output.ts";

/** Options of `pty.create()`. */
export type PtyOptions = CallOptions & {
  /** Lines of the terminal; default: 24. */
  rows?: number | undefined;
  /** Columns of the terminal; default: 80. */
  cols?: number | undefined;
  /** Program and arguments; default: bash if the guest has it, otherwise sh, as a login shell. */
  shell?: readonly string[] | undefined;
  /** User as name, uid, name:group or uid:gid; default: "root". */
  user?: string | undefined;
  /** Working directory in the guest; default: the home directory of the user. */
  cwd?: string | undefined;
  /** Variables in addition to those of the sandbox; default: TERM=xterm-256color. */
  env?: Record<string, string> | undefined;
  /** Receives the output as it arrives; default: iterate the handle, or call `wait()`. */
  onData?: ((bytes: Uint8Array) => void | Promise<void>) | undefined;
};

const loginShell = "command -v bash >/dev/null && exec bash -il; exec sh -il";

/** Opens terminals in one sandbox. */
export class Pty {
  readonly #client: Client;
  readonly #id: string;

  /** @internal */
  constructor(client: Client, sandboxId: string) {
    this.#client = client;
    this.#id = sandboxId;
  }

  /** Starts a shell with a terminal. It keeps running without this client until it exits or `kill()`. */
  async create(options: PtyOptions = {}): Promise<CommandHandle> {
    const { rows = 24, cols = 80, shell, onData, signal, timeoutMs, ...rest } = options;
    const request = requestOf(
      "exec",
      {
        id: this.#id,
        args: shell === undefined ? ["/bin/sh", "-c", loginShell] : [...shell],
        env: { TERM: "xterm-256color", ...options.env },
        pty: { rows, cols },
        stdin_open: true,
        background: true,
        stream: undefined,
        stdin: undefined,
        timeout_secs: undefined,
      },
      rest,
      ["env", "rows", "cols", "shell", "onData"],
    );
    // The daemon answers with these two fields because the request has `background`.
    const started = (await this.#client.call("exec", request, { signal, timeoutMs })) as {
      exec_id: number;
      pid: number;
    };
    const handle = new CommandHandle(this.#client, {
      sandboxId: this.#id,
      execId: started.exec_id,
      pid: started.pid,
      stop: new AbortController(),
      onEvent: onData && ((event) => (event.type === "stdout" ? onData(outputBytes(event)) : undefined)),
    });
    // Without a reader the callback would get nothing. wait() reports a failure.
    if (onData) handle.wait().catch(() => undefined);
    return handle;
  }
}
