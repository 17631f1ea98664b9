/** Searches output as it arrives, in bounded memory and time. */
import { createContext, Script } from "node:vm";
import { AppError, errorMessage } from "@forkd/contract/wire";
import { safeText } from "./safe-text.ts";

/** Characters that are searched again with the next output, so that a match may begin before it. */
const windowLength = 64 * 1024;
const excerptLength = 256;
const longestMatch = 4096;
/** Time for one search: a pattern can take exponential time, and a guest chooses the text. */
const searchMs = 200;

type OutputMatcher = {
  /** Returns the text that matches, or undefined. */
  push(bytes: Uint8Array): string | undefined;
  /** The end of the output so far. */
  end(): string;
};

export function outputMatcher(wanted: {
  text?: string | undefined;
  pattern?: string | undefined;
}): OutputMatcher {
  const decoder = new TextDecoder("utf-8");
  const find = finder(wanted);
  let seen = "";
  return {
    push(bytes) {
      const whole = seen + decoder.decode(bytes, { stream: true });
      const match = find(safeText(whole).text)?.slice(0, longestMatch);
      seen = whole.slice(-windowLength);
      return match;
    },
    end: () => safeText(seen.slice(-excerptLength)).text,
  };
}

function finder({
  text,
  pattern,
}: {
  text?: string | undefined;
  pattern?: string | undefined;
}): (output: string) => string | undefined {
  if (pattern !== undefined) return regexFinder(pattern);
  return (output) => (text !== undefined && output.includes(text) ? text : undefined);
}

/** The search runs in its own context because only that has a time limit. */
function regexFinder(pattern: string): (output: string) => string | undefined {
  let regex: RegExp;
  try {
    regex = new RegExp(pattern, "mu");
  } catch (error) {
    throw new AppError(
      "invalid_request",
      `Invalid argument "pattern" of wait_for_output: ${errorMessage(error)}`,
      { details: { field: "pattern" } },
    );
  }
  const script = new Script("(regex.exec(output) ?? [])[0]");
  const globals = { regex, output: "" };
  const context = createContext(globals);
  return (output) => {
    globals.output = output;
    try {
      return script.runInContext(context, { timeout: searchMs }) as string | undefined;
    } catch (error) {
      throw new AppError(
        "invalid_request",
        `The search for the pattern was stopped after ${searchMs} ms: ${errorMessage(error)}`,
        { details: { field: "pattern" }, cause: error },
      );
    }
  };
}
