/** What a verb works with: output, progress, interrupts and the daemon. */
import type { Forkd, Sandbox } from "@forkd/sdk";
import { matchSandbox, type Environment } from "./options/arguments.ts";
import type { Interrupts } from "./terminal/interrupts.ts";
import type { Output } from "./terminal/output.ts";
import { Progress } from "./terminal/progress.ts";

type CliParts = {
  readonly out: Output;
  readonly interrupts: Interrupts;
  readonly environment: Environment;
};

export class Cli {
  readonly out: Output;
  readonly interrupts: Interrupts;
  readonly environment: Environment;

  constructor(parts: CliParts) {
    this.out = parts.out;
    this.interrupts = parts.interrupts;
    this.environment = parts.environment;
  }

  /** Aborts on Ctrl-C and when the reader of stdout has closed it. */
  get signal(): AbortSignal {
    return this.interrupts.signal;
  }

  progress(message: string): Progress {
    const live = process.stderr.isTTY && !this.environment.dumbTerminal;
    const silent = this.out.quiet || this.out.json;
    const progress = new Progress({ stream: process.stderr, live, silent }, message);
    this.out.hideBeforeWriting(progress);
    return progress;
  }

  /** Connects to the daemon and starts it if it is not running. */
  async daemon(): Promise<Forkd> {
    const { openDaemon } = await import("./daemon/client.ts");
    return openDaemon(this);
  }

  /** Finds the sandbox whose id starts with `prefix`, or whose workspace has that name. */
  async sandbox(prefix: string): Promise<Sandbox> {
    const forkd = await this.daemon();
    const [id = prefix] = await this.sandboxIds(forkd, [prefix]);
    return forkd.sandboxes.get(id);
  }

  /** Resolves prefixes of ids and names of workspaces to full ids. */
  async sandboxIds(forkd: Forkd, prefixes: readonly string[]): Promise<string[]> {
    const { AppError, sandboxIdPattern, similarNames } = await import("@forkd/contract/wire");
    if (prefixes.every((prefix) => sandboxIdPattern.test(prefix))) return [...prefixes];
    const all = await forkd.call("listSandboxes", {}, { signal: this.signal });
    return prefixes.map((prefix) => {
      const match = matchSandbox(prefix, all);
      if (match === undefined) {
        const message = `No sandbox has an id that starts with "${prefix}", and no workspace has that name`;
        const names = all.flatMap(({ workspace }) => workspace ?? []);
        throw new AppError("sandbox_not_found", message, { details: similarNames(prefix, names) });
      }
      if ("id" in match) return match.id;
      const matches = match.ambiguous;
      throw new AppError("invalid_request", `"${prefix}" is ambiguous: ${matches.join(", ")}`, {
        details: { matches },
      });
    });
  }
}

/** The function of a verb. Resolves to the exit code, or to nothing for 0. */
type Handler<Options, Operands extends readonly unknown[]> = (
  cli: Cli,
  options: Options,
  ...operands: Operands
) => Promise<number | void>;

/** Turns a handler into an action of commander. */
export type ToAction = <Options, Operands extends readonly unknown[]>(
  handler: Handler<Options, Operands>,
) => (...args: unknown[]) => Promise<void>;
