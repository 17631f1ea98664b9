/** The answer to an eval, from what its kernel said. */
import { roundMs } from "@forkd/base";
import type { EvalDisplay, EvalErrorInfo, EvalResult, Language } from "@forkd/contract";
import type { EvalOutcome, KernelDisplay } from "@forkd/machine";
import type { Restart } from "../launch/warm-kernel.ts";
import type { OutputBuffer } from "./output-buffer.ts";

export type EvalDone = {
  readonly result: EvalOutcome;
  readonly language: Language;
  readonly context: string;
  readonly restart: Restart | undefined;
};

type Collected = {
  readonly stdout: OutputBuffer;
  readonly stderr: OutputBuffer;
  readonly displays?: readonly KernelDisplay[];
};

export function toDisplay({ isMain, forms, cut }: KernelDisplay): EvalDisplay {
  return {
    is_main_result: isMain,
    // JSON forms are text of JSON, which becomes part of the answer as it is.
    ...(forms as unknown as Omit<EvalDisplay, "is_main_result">),
    ...(cut.length > 0 && { truncated_parts: [...cut] }),
  };
}

/** The value of the last expression, if it is only text. One with other forms has its own result. */
export function mainDisplay({ status, text, wholeTextBytes }: EvalOutcome): EvalDisplay | undefined {
  if (status !== "value") return undefined;
  return {
    is_main_result: true,
    text,
    ...(wholeTextBytes !== undefined && { truncated_parts: ["text" as const] }),
  };
}

function resultsOf(outcome: EvalOutcome, displays: readonly KernelDisplay[]): EvalDisplay[] {
  const results = displays.map(toDisplay);
  const main = results.some((each) => each.is_main_result) ? undefined : mainDisplay(outcome);
  return main ? [...results, main] : results;
}

function errorInfo({ name, value, frames }: NonNullable<EvalOutcome["error"]>): EvalErrorInfo {
  return { name, value, frames: frames.map((frame) => ({ ...frame })) };
}

/** Without displays, the eval was streamed, and its results are in the events. */
export async function toResult(
  { result, language, context, restart }: EvalDone,
  output: Collected,
  durationMs: number,
): Promise<EvalResult> {
  const failed = result.status === "error" || result.status === "interrupted";
  const cut = cutParts(result, output);
  return {
    result: result.status === "value" ? result.text : null,
    result_json: failed ? null : (result.json ?? null),
    results: output.displays ? resultsOf(result, output.displays) : [],
    ...(result.droppedResults && { results_dropped: result.droppedResults }),
    ...(result.executionCount && { execution_count: result.executionCount }),
    stdout: await output.stdout.text(),
    stderr: await output.stderr.text(),
    error: failed ? errorLine(result) : null,
    traceback: failed ? result.text : null,
    error_info: failed && result.error ? errorInfo(result.error) : null,
    exit_code: failed ? 1 : 0,
    interrupted: result.status === "interrupted",
    timed_out: result.timedOut,
    truncated: cut.length > 0,
    ...(cut.length > 0 && { truncated_parts: cut }),
    ...(!failed && result.wholeTextBytes && { result_bytes: result.wholeTextBytes }),
    restarted: restart !== undefined,
    ...(restart?.warmupError !== undefined && { warmup_error: restart.warmupError }),
    language,
    context,
    duration_ms: roundMs(durationMs),
  };
}

type Part = NonNullable<EvalResult["truncated_parts"]>[number];

function cutParts(
  { status, wholeTextBytes, isJsonCut, droppedResults, lostOutputBytes = 0 }: EvalOutcome,
  { stdout, stderr }: Collected,
): Part[] {
  const failed = status === "error" || status === "interrupted";
  const parts: Part[] = [];
  if (wholeTextBytes !== undefined) parts.push(failed ? "traceback" : "result");
  if (isJsonCut) parts.push(failed ? "error" : "result_json");
  // Lost output between two evals is not attributed to a stream.
  if (stdout.isCut || lostOutputBytes > 0) parts.push("stdout");
  if (stderr.isCut || lostOutputBytes > 0) parts.push("stderr");
  if (droppedResults) parts.push("results");
  return parts;
}

/** `Name: message`, or only the name */
function errorLine(result: EvalOutcome): string {
  const { error } = result;
  if (error) return error.value === "" ? error.name : `${error.name}: ${error.value}`;
  const text = result.text.trimEnd();
  return text.slice(text.lastIndexOf("\n") + 1) || "error";
}
