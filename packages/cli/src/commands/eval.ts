import { readFile } from "node:fs/promises";
import { text } from "node:stream/consumers";
import { AppError, errorCodes } from "@forkd/contract/wire";
import type { EvalResult, Language } from "@forkd/contract";
import { wireOf, type Sandbox } from "@forkd/sdk";
import type { Command } from "commander";
import { parseDuration, usage } from "../options/arguments.ts";
import type { Cli, ToAction } from "../cli.ts";
import { displayWriter } from "../guest/show-display.ts";
import { formatBytes } from "../terminal/table.ts";
import { examples } from "../options/help.ts";
import { languageOption } from "../options/language.ts";
import { signalExitCode, type InterruptName } from "../terminal/interrupts.ts";
import { unreadable } from "../terminal/unreadable.ts";

type Options = { file?: string; language?: Language; context?: string; timeout?: number; save?: string };

export function define(command: Command, toAction: ToAction): void {
  command
    .argument("<id>", "Id or unique prefix of a sandbox, or a workspace")
    .argument("[code]", "Code to evaluate; - reads it from stdin")
    .option("--file <path>", "Read the code from a file")
    .addOption(languageOption())
    .option("--context <name>", "Use a separate set of variables (default: default)")
    .option(
      "--timeout <duration>",
      "Interrupt the code after this time, 0: never (default: 30s)",
      parseDuration,
    )
    .option("--save <dir>", "Save images, PDF and HTML of the results as files")
    .addHelpText(
      "after",
      "\nThe value of the last expression goes to stdout; output of the code goes to stderr.\n" +
        examples(
          "forkd eval 3f2a 'numpy.zeros(5).tolist()'",
          "forkd eval 3f2a --file script.py",
          "forkd eval 3f2a - < script.py",
          "forkd eval 3f2a --save plots 'plt.plot([1, 2])'",
        ),
    )
    .action(toAction(evaluate));
}

async function evaluate(
  cli: Cli,
  options: Options,
  prefix: string,
  operand: string | undefined,
): Promise<number> {
  const code = await readCode(options, operand);
  const sandbox = await cli.sandbox(prefix);
  const settings = {
    ...(options.language && { language: options.language }),
    ...(options.context !== undefined && { context: options.context }),
    ...(options.timeout !== undefined && { timeoutMs: options.timeout * 1000 }),
    signal: cli.signal,
  };
  const write = displayWriter(cli, options.save);
  using interrupt = interruptOnce(cli, sandbox, options.language);
  if (cli.out.json) {
    const result = wireOf<EvalResult>(await sandbox.eval(code, settings));
    if (options.save !== undefined) for (const display of result.results) await write(display);
    cli.out.document(result);
    return exitCodeOfResult(result, interrupt.received);
  }
  for await (const event of sandbox.eval(code, settings)) {
    if (event.type === "display") await write(wireOf(event.display));
    if (event.type === "result") return showResult(cli, wireOf(event.result), interrupt.received);
    if (event.type === "stdout" || event.type === "stderr")
      await cli.out.bytes(Buffer.from(event.data, event.encoding), "stderr");
  }
  throw new AppError("internal", "The daemon ended the stream without a result");
}

async function readCode({ file }: Options, operand: string | undefined): Promise<string> {
  if ((file === undefined) === (operand === undefined)) throw usage("Give either CODE or --file");
  if (file !== undefined) {
    return readFile(file, "utf8").catch((cause: unknown) => {
      throw unreadable(file, cause);
    });
  }
  return operand === "-" || operand === undefined ? text(process.stdin) : operand;
}

/** The first Ctrl-C interrupts the code, which then has a result; the second exits. */
function interruptOnce(cli: Cli, sandbox: Sandbox, language: Language | undefined): Disposable & Interrupt {
  const interrupt: Interrupt = { received: undefined };
  const taken = cli.interrupts.takeOver((name) => {
    if (interrupt.received !== undefined) return cli.interrupts.abort(name);
    interrupt.received = name;
    sandbox.interrupt({ language }).catch(() => cli.interrupts.abort(name));
  });
  return Object.assign(interrupt, taken);
}

/** The first signal to this process. */
type Interrupt = { received: InterruptName | undefined };

function showResult(cli: Cli, result: EvalResult, received: InterruptName | undefined): number {
  if (result.restarted) cli.out.report(`forkd: ${restartNote(result)}`);
  if (result.result !== null) cli.out.line(result.result);
  for (const note of cutNotes(result)) cli.out.report(`forkd: ${note}`);
  if (result.timed_out) cli.out.report("forkd: The code timed out and was interrupted");
  if (result.error !== null) cli.out.report((result.traceback ?? result.error).trimEnd());
  return exitCodeOfResult(result, received);
}

function restartNote({ warmup_error: error }: EvalResult): string {
  const lost = "The interpreter had ended and was started again: earlier variables are gone";
  return error === undefined ? lost : `${lost}, and the warm-up did not succeed: ${error}`;
}

/** What the user does not see. The JSON form is not shown here, so its size does not matter. */
function cutNotes({ truncated, truncated_parts, result, result_bytes: bytes }: EvalResult): string[] {
  // An older daemon has only the fact, about the output.
  const parts = truncated_parts ?? (truncated ? ["stdout"] : []);
  const notes: string[] = [];
  if (parts.includes("result")) {
    const shown = formatBytes(Buffer.byteLength(result ?? ""));
    const whole = bytes === undefined ? "" : ` of ${formatBytes(bytes)}`;
    notes.push(`The value is truncated: ${shown}${whole} shown`);
  }
  if (parts.includes("traceback")) notes.push("The traceback is truncated");
  if (parts.includes("stdout") || parts.includes("stderr")) notes.push("The output is truncated");
  if (parts.includes("results")) notes.push("Some results are left out");
  return notes;
}

/** Another client may have interrupted the code, too. */
function exitCodeOfResult(result: EvalResult, received: InterruptName | undefined): number {
  if (result.timed_out) return errorCodes.deadline_exceeded.exit;
  if (result.interrupted)
    return received === undefined ? errorCodes.cancelled.exit : signalExitCode(received);
  return result.exit_code;
}
