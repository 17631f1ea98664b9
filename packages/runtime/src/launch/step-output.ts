/** The end of what a program of a recipe wrote, for the error that reports its failure. */
import { AppError } from "@forkd/contract";

const maxLines = 20;
const maxChars = 4000;
const maxLineChars = 300;
const maxNameChars = 120;

/** Escape sequences of terminals, up to their final character. */
// eslint-disable-next-line no-control-regex
const escapes = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])/g;

/** The last lines without escape sequences and control characters. A line shows what was written last on it. */
export function outputTail(output: string): string {
  const lines = output
    .replaceAll(escapes, "")
    .split("\n")
    .map((line) => line.replace(/\r+$/, "").replace(/^.*\r/s, ""))
    .map((line) =>
      line
        .replaceAll("\t", "  ")
        .replaceAll(/\p{Cc}/gu, "")
        .trimEnd(),
    )
    .filter((line) => line !== "");
  return lines.slice(-maxLines).join("\n").slice(-maxChars);
}

/** A command line for a message. */
export function commandName(argv: readonly string[]): string {
  const text = argv.join(" ").replaceAll(/\p{Cc}+/gu, " ");
  return text.length <= maxNameChars ? text : `${text.slice(0, maxNameChars - 1)}…`;
}

/** A fault of the recipe. The message ends with the last line of the output, the details have its tail. */
export function stepFailure(
  message: string,
  output: string,
  { details, cause }: { details?: Record<string, unknown>; cause?: unknown } = {},
): AppError {
  const tail = outputTail(output);
  const line = tail.slice(tail.lastIndexOf("\n") + 1);
  const last = line.length <= maxLineChars ? line : `…${line.slice(1 - maxLineChars)}`;
  return new AppError("invalid_recipe", last === "" ? message : `${message}; last output: ${last}`, {
    details: { ...details, output: tail },
    ...(cause !== undefined && { cause }),
  });
}

/** A program that the guest refuses to start is a fault of the recipe, too. */
export function startFailure(argv: readonly string[], error: unknown): unknown {
  if (!(error instanceof AppError) || (error.code !== "guest_refused" && error.code !== "invalid_request"))
    return error;
  const text = typeof error.details["text"] === "string" ? error.details["text"] : error.message;
  return new AppError("invalid_recipe", `Cannot start "${commandName(argv)}" in the parent: ${text}`, {
    details: { argv: [...argv], ...error.details },
    cause: error,
  });
}
