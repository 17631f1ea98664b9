/** Code in the warm interpreters of a sandbox. */
import { s } from "../schema.ts";
import { collect, Collector } from "../results/collector.ts";
import { partialOutputs } from "../results/partial.ts";
import { safeText, safeValue } from "../results/safe-text.ts";
import { lastLine } from "./commands.ts";
import { maxOutputBytes, partial, sandboxId } from "./fields.ts";
import { runs, tool } from "./tool.ts";

/** JSON of a value that an answer repeats; longer ones are only in `result`. */
const longestJson = 16_384;

export const evalCodeTool = tool("eval_code", {
  title: "Evaluate code",
  description:
    "Evaluate code in a warm interpreter of a sandbox (Python or Node). Variables stay for the next call in the same context, and a branch keeps them. " +
    "result is the printed value of the last expression; figures and images that the code shows are images of the answer. Code that raises is a result with error, traceback and exit_code 1. " +
    "Cancelling the call interrupts the code.",
  input: s.object({
    sandbox_id: sandboxId,
    code: s.string().max(4_000_000).describe("Code to evaluate"),
    language: s.enum(["python", "node"]).optional().describe("Default: the first language of the snapshot"),
    context: s.string().max(64).optional().describe('Name of a set of variables; default: "default"'),
    timeout_secs: s
      .number()
      .min(0)
      .max(31_536_000)
      .default(30)
      .describe("Interrupt the code after this time; 0: no limit"),
    max_output_bytes: maxOutputBytes,
  }),
  output: s.looseObject({
    result: s.nullable(s.string()),
    error: s.nullable(s.string()),
    exit_code: s.number(),
    stdout: s.string(),
    stderr: s.string(),
    traceback: s.nullable(s.string()),
    result_json: s.unknown().optional(),
    results: s
      .array(s.looseObject({ is_main_result: s.boolean() }))
      .optional()
      .describe("What the code displayed, in its text forms; images follow as content"),
    timed_out: s.boolean(),
    language: s.string(),
    context: s.string(),
    duration_ms: s.number(),
    ...partial,
  }),
  annotations: runs,
  run: async ({ sandbox_id: id, max_output_bytes: limit, timeout_secs, ...request }, call) => {
    const { forkd, guest, backend, signal, progress } = call;
    const outputs = { stdout: new Collector(), stderr: new Collector() };
    const { Displays } = await import("../results/displays.ts");
    const displays = new Displays(limit);
    const answer = await guest.evalCode(
      forkd,
      id,
      { ...request, timeoutMs: timeout_secs * 1000 },
      {
        signal,
        output: (stream, bytes) => {
          outputs[stream].push(bytes);
          progress.say(lastLine(bytes));
        },
        display: (display) => displays.add(display),
      },
    );
    const shown = partialOutputs(
      {
        stdout: outputs.stdout.collected(),
        stderr: outputs.stderr.collected(),
        result: collect(answer.result ?? ""),
        traceback: collect(answer.traceback ?? ""),
      },
      { store: backend.outputs, limit, of: `code in ${id}` },
    );
    const { texts } = shown;
    const structured = {
      result: answer.result === null ? null : texts["result"],
      error: answer.error === null ? null : safeText(answer.error).text.slice(0, limit),
      exit_code: answer.exit_code,
      stdout: texts["stdout"],
      stderr: texts["stderr"],
      traceback: answer.traceback === null ? null : texts["traceback"],
      ...jsonField(answer.result_json),
      ...displays.fields(),
      timed_out: answer.timed_out,
      interrupted: answer.interrupted,
      restarted: answer.restarted,
      language: answer.language,
      context: answer.context,
      duration_ms: answer.duration_ms,
      ...shown.fields,
    };
    return { structured, more: [...displays.images, ...shown.links] };
  },
});

function jsonField(value: unknown): { result_json?: unknown } {
  if (value === null || value === undefined) return {};
  return JSON.stringify(value).length > longestJson ? {} : { result_json: safeValue(value) };
}
