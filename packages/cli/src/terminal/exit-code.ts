/** Failures → exit code, message and remedy. The numbers come from the contract's table of codes. */
import { CommanderError } from "commander";
import { advice, errorCodes, toErrorBody, AppError } from "@forkd/contract/wire";
import type { ErrorBody, ErrorCode } from "@forkd/contract";
import { remedyOf } from "./remedies.ts";

type Failure = {
  readonly body: ErrorBody;
  readonly exitCode: number;
  readonly remedy: string | undefined;
};

/** Exit code of a code on the wire; a code this version does not know counts as `internal`. */
export function exitCodeOf(code: string): number {
  return isKnown(code) ? errorCodes[code].exit : errorCodes.internal.exit;
}

function isKnown(code: string): code is ErrorCode {
  return Object.hasOwn(errorCodes, code);
}

/** `verb` is the one that was asked for, if it is known, with its subcommand: "keys create". */
export function describeFailure(error: unknown, verb: string | undefined): Failure {
  const body = inCliWords(toErrorBody(error instanceof CommanderError ? usageError(error, verb) : error));
  return { body, exitCode: exitCodeOf(body.code), remedy: remedyOf(body) };
}

/** The same body with the words of this surface in its remedy. */
export function inCliWords<B extends ErrorBody>(body: B): B {
  if (!body.remedy) return body;
  return { ...body, remedy: { ...body.remedy, text: remedyOf(body) ?? body.remedy.text } };
}

function usageError(error: CommanderError, verb: string | undefined): AppError {
  const takesCommand = verb === "exec" || verb === "run" || verb === "derive";
  const remedy =
    takesCommand && error.code === "commander.unknownOption"
      ? "Put `--` before the command of the guest, so that its options are its own."
      : `See \`forkd ${verb === undefined ? "" : `${verb} `}--help\`.`;
  const message = error.message.replace(/^error: /, "");
  return new AppError("invalid_request", message.charAt(0).toUpperCase() + message.slice(1), {
    remedy: advice(remedy),
    cause: error,
  });
}
