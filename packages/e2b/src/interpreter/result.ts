/** Results and errors of evals as E2B's code interpreter sends them. Pure. */
import type { EvalDisplay, EvalResult } from "@forkd/contract";

export function resultLine(display: EvalDisplay): object {
  const { truncated_parts: _cut, text, ...forms } = display;
  return { type: "result", ...(text !== undefined && { text: withoutQuotes(text) }), ...forms };
}

/** A string is shown without the quotes of its printed form. */
function withoutQuotes(text: string): string {
  const [first] = text;
  const isQuoted = text.length > 1 && (first === "'" || first === '"') && text.endsWith(first);
  return isQuoted ? text.slice(1, -1) : text;
}

/** undefined if the code did not fail */
export function errorLine(result: EvalResult): object | undefined {
  const { error, error_info: info, traceback } = result;
  if (error === null) return undefined;
  const colon = error.indexOf(": ");
  const name = info?.name ?? (colon < 0 ? error : error.slice(0, colon));
  const value = info?.value ?? (colon < 0 ? "" : error.slice(colon + 2));
  return { type: "error", name, value, traceback: traceback ?? error };
}
