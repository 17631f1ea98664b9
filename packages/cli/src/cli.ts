/** What a verb works with: output, progress, interrupts and the daemon. */
import type { AppError } from "@forkd/contract";
import type { Forkd, Sandbox } from "@forkd/sdk";
import { matchSandbox, type Environment } from "./options/arguments.ts";
import type { Interrupts } from "./terminal/interrupts.ts";
import type { Output } from "./terminal/output.ts";
import { Progress } from "./terminal/progress.ts";

type CliParts = {
  readonly out: Output;
  readonly interrupts: Interrupts;
  readonly environment: Environment;
  /** The arguments of this process. */
  readonly argv: readonly string[];
};

export class Cli {
  readonly out: Output;
  readonly interrupts: Interrupts;
  readonly environment: Environment;
  readonly #argv: readonly string[];

  constructor(parts: CliParts) {
    this.out = parts.out;
    this.interrupts = parts.interrupts;
    this.environment = parts.environment;
    this.#argv = parts.argv;
  }

  /** How many arguments follow the first `--`; commander does not report it. */
  get countAfterDashes(): number {
    const at = this.#argv.indexOf("--");
    return at === -1 ? 0 : this.#argv.length - at - 1;
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

  /** Resolves prefixes of ids and names of workspaces to full ids; throws for the first that fits none. */
  async sandboxIds(forkd: Forkd, prefixes: readonly string[]): Promise<string[]> {
    return (await this.findSandboxes(forkd, prefixes)).map((each) => {
      if ("id" in each) return each.id;
      throw each.error;
    });
  }

  /** The same, with an error for each that fits no sandbox or several. */
  async findSandboxes(forkd: Forkd, prefixes: readonly string[]): Promise<Found[]> {
    const { advice, AppError, sandboxIdPattern, similarNames } = await import("@forkd/contract/wire");
    if (prefixes.every((prefix) => sandboxIdPattern.test(prefix))) return prefixes.map((id) => ({ id }));
    const all = await forkd.call("listSandboxes", {}, { signal: this.signal });
    const matches = prefixes.map((prefix) => ({ prefix, match: matchSandbox(prefix, all) }));
    const tags = matches.every(({ match }) => match !== undefined) ? [] : await this.#tags(forkd);
    return matches.map(({ prefix, match }) => {
      if (match === undefined) {
        const message = `No sandbox has an id that starts with "${prefix}", and no workspace has that name`;
        const names = all.flatMap(({ workspace }) => workspace ?? []);
        const details = similarNames(prefix, names);
        const remedy = tags.includes(prefix)
          ? { remedy: advice(`It is a snapshot. Run \`forkd fork ${prefix}\` to fork one.`) }
          : {};
        return { prefix, error: new AppError("sandbox_not_found", message, { details, ...remedy }) };
      }
      if ("id" in match) return match;
      const { ambiguous } = match;
      const message = `"${prefix}" is ambiguous: ${ambiguous.join(", ")}`;
      const details = { matches: ambiguous };
      return { prefix, error: new AppError("invalid_request", message, { details }) };
    });
  }

  /** Helps a user who named a snapshot in place of a sandbox. Without the right to list snapshots it says nothing. */
  async #tags(forkd: Forkd): Promise<string[]> {
    const { snapshots } = forkd;
    const all = await snapshots
      .list({}, { signal: this.signal })
      .all()
      .catch(() => []);
    return all.map(({ tag }) => tag);
  }
}

/** The sandbox with a given name, or why none was found. */
type Found = { readonly id: string } | { readonly prefix: string; readonly error: AppError };

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
