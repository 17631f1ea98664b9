/** Arguments → verb → exit code. */
import { Command, CommanderError } from "commander";
import { readEnvironment } from "./options/arguments.ts";
import { Cli, type ToAction } from "./cli.ts";
import { addCommonOptions, examples } from "./options/help.ts";
import { Interrupts, signalExitCode } from "./terminal/interrupts.ts";
import { Output } from "./terminal/output.ts";
import { findVerb, verbs, type Verb } from "./verbs.ts";
import { ownVersion } from "./version.ts";

type CommonOptions = { json?: true; quiet?: true; trunc?: boolean };

/** Runs one command line. Never throws: failures are printed and become the exit code. */
export async function main(argv: readonly string[]): Promise<number> {
  const environment = readEnvironment();
  const interrupts = new Interrupts();
  const verb = selectedVerb(argv);
  let exitCode = 0;
  let json = asksForJson(argv);

  const toAction: ToAction = (handler) =>
    async function run(this: Command, ...args) {
      const options = this.optsWithGlobals<CommonOptions>();
      json = options.json === true;
      const isTerminal = process.stdout.isTTY;
      const color = isTerminal && !environment.noColor && !environment.dumbTerminal;
      const streams = { stdout: process.stdout, stderr: process.stderr };
      const noTrunc = options.trunc === false;
      const out = new Output({ json, quiet: options.quiet === true, color, isTerminal, noTrunc, ...streams });
      const operands = args.slice(0, -2); // commander adds the options and the command
      // Commander produces the types that the verb's definition declares.
      exitCode =
        (await handler(
          new Cli({ out, interrupts, environment, argv }),
          options as never,
          ...(operands as never),
        )) ?? 0;
    };

  try {
    const program = await makeProgram(verb, toAction);
    if (argv.length === 0) program.outputHelp();
    else await program.parseAsync(unknownTopic(argv) ?? [...argv], { from: "user" });
    return exitCode;
  } catch (error) {
    if (interrupts.pipeClosed) return 0;
    if (error instanceof CommanderError && error.exitCode === 0) return 0; // --help
    if (error instanceof CommanderError && error.code === "commander.help") return 2; // missing subcommand
    const code = await printFailure(error, { json, verb: verb && nameOf(verb, argv) });
    return interrupts.received === undefined ? code : signalExitCode(interrupts.received);
  }
}

/** The whole command line for commander, with the options of `selected` only. */
export async function makeProgram(selected: Verb | undefined, toAction: ToAction): Promise<Command> {
  const program = addCommonOptions(new Command("forkd"))
    .description("fork(2) for virtual machines: warm sandboxes for agents, in milliseconds")
    .version(`forkd ${ownVersion()}`, "-V, --version", "Print the version of the CLI")
    .helpOption("-h, --help", "Show help")
    .helpCommand("help [command]", "Show the help of a command")
    .enablePositionalOptions()
    .exitOverride()
    .configureOutput({ outputError: () => {} }) // printFailure prints it
    .addHelpText(
      "after",
      examples("forkd quickstart", "forkd run python-numpy -- python3 -c 'print(1 + 1)'"),
    );
  for (const verb of verbs) {
    const command = program.command(verb.name, { hidden: verb.hidden === true }).description(verb.summary);
    if (verb.alias !== undefined) command.alias(verb.alias);
    if (verb !== selected) continue;
    (await verb.load()).define(command, toAction);
    addCommonOptions(command);
  }
  return program;
}

function selectedVerb(argv: readonly string[]): Verb | undefined {
  const [first, second] = argv.filter((argument) => !argument.startsWith("-"));
  return findVerb(first === "help" ? second : first);
}

/** `help nosuch` as `nosuch`, which is refused with the names that are similar; commander would print all help. */
function unknownTopic(argv: readonly string[]): string[] | undefined {
  const [first, topic] = argv.filter((argument) => !argument.startsWith("-"));
  return first === "help" && topic !== undefined && topic !== "help" && findVerb(topic) === undefined
    ? [topic]
    : undefined;
}

/** For usage errors that occur before the options are parsed. */
function asksForJson(argv: readonly string[]): boolean {
  const end = argv.indexOf("--");
  return argv.slice(0, end === -1 ? argv.length : end).includes("--json");
}

/** "keys create" for a verb with subcommands. */
function nameOf({ name, subcommands }: Verb, argv: readonly string[]): string {
  const [, second = ""] = argv.filter((argument) => !argument.startsWith("-"));
  return subcommands && Object.hasOwn(subcommands, second) ? `${name} ${second}` : name;
}

async function printFailure(
  error: unknown,
  how: { json: boolean; verb: string | undefined },
): Promise<number> {
  const { describeFailure } = await import("./terminal/exit-code.ts");
  const { body, exitCode, remedy } = describeFailure(error, how.verb);
  if (how.json) {
    process.stderr.write(`${JSON.stringify(body)}\n`);
  } else {
    const lines = [`forkd: ${body.error}`];
    const { log = body.details["output"] } = body.details;
    if (typeof log === "string" && log !== "") lines.push(log.replaceAll(/^/gm, "  | "));
    if (remedy !== undefined) lines.push(`  ${remedy}`);
    const { cleanLines } = await import("./terminal/table.ts");
    process.stderr.write(`${cleanLines(lines.join("\n"))}\n`);
  }
  return exitCode;
}
