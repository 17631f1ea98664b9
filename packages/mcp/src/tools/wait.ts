/** Waits: for output of a background command, and for text in a file of a guest. */
import { setTimeout as sleep } from "node:timers/promises";
import { AppError, deadlineSignal } from "@forkd/contract/wire";
import { s } from "../schema.ts";
import type { CommandExit } from "../guest.ts";
import { safeText } from "../results/safe-text.ts";
import { guestPath, sandboxId } from "./fields.ts";
import { reads, tool, type Call } from "./tool.ts";

const timeout = s.number().min(0).max(86_400).default(60).describe("Longest wait in seconds");

export const waitForOutput = tool("wait_for_output", {
  title: "Wait for output",
  description:
    "Wait until the output of a background command contains a text or matches a regular expression, until the command ends, or until the time is over. " +
    "Without text and pattern it waits for the end of the command. It only reads: the command keeps running. " +
    "To continue after an answer, pass its stdout_offset and stderr_offset.",
  input: s.object({
    sandbox_id: sandboxId,
    exec_id: s.int().min(0).describe("Number of the command, from exec_command with background true"),
    text: s.string().min(1).max(4096).optional().describe("Text to wait for"),
    pattern: s.string().min(1).max(1024).optional().describe("Regular expression (JavaScript) to wait for"),
    stream: s.enum(["any", "stdout", "stderr"]).default("any").describe("Output to look at"),
    timeout_secs: timeout,
    stdout_offset: s.int().min(0).default(0).describe("First byte of stdout to look at"),
    stderr_offset: s.int().min(0).default(0).describe("First byte of stderr to look at"),
  }),
  output: s.object({
    found: s.boolean(),
    match: s.string().optional().describe("The text that matched"),
    stream: s.string().optional().describe("The output that it was found in"),
    exited: s.boolean(),
    exit_code: s.number().optional(),
    timed_out: s.boolean().describe("The time of this call is over; the command may still run"),
    elapsed_ms: s.number(),
    stdout_offset: s.number().describe("Where the next call continues"),
    stderr_offset: s.number(),
    last_excerpt: s.string().describe("End of the output so far"),
  }),
  annotations: reads,
  run: async (input, call) => ({ structured: await waitForMatch(input, call) }),
});

type WaitInput = {
  sandbox_id: string;
  exec_id: number;
  text?: string | undefined;
  pattern?: string | undefined;
  stream: "any" | "stdout" | "stderr";
  timeout_secs: number;
  stdout_offset: number;
  stderr_offset: number;
};

async function waitForMatch(input: WaitInput, { forkd, guest, signal, progress }: Call) {
  const began = performance.now();
  const { text, pattern } = input;
  if (text !== undefined && pattern !== undefined)
    throw new AppError(
      "invalid_request",
      'Invalid argument "pattern" of wait_for_output: give text or pattern',
      {
        details: { field: "pattern" },
      },
    );
  const { outputMatcher } = await import("../results/match.ts");
  const matchers = { stdout: outputMatcher({ text, pattern }), stderr: outputMatcher({ text, pattern }) };
  const offsets = { stdout: input.stdout_offset, stderr: input.stderr_offset };
  using deadline = deadlineSignal(input.timeout_secs * 1000);
  const command = {
    id: input.sandbox_id,
    execId: input.exec_id,
    stdoutOffset: offsets.stdout,
    stderrOffset: offsets.stderr,
  };
  const until = AbortSignal.any([signal, deadline.signal]);
  let found: { match: string; stream: string } | undefined;
  let exit: CommandExit | undefined;
  let last = "";
  progress.say(`Waiting for ${text ?? pattern ?? "the end of the command"}`);
  try {
    for await (const event of guest.followCommand(forkd, command, until)) {
      if (event.type === "exit") {
        exit = event;
        break;
      }
      offsets[event.type] = event.end;
      const match = matchers[event.type].push(event.bytes);
      last = matchers[event.type].end();
      if (match === undefined || (input.stream !== "any" && input.stream !== event.type)) continue;
      found = { match, stream: event.type };
      break;
    }
  } catch (error) {
    // The time is over: what was seen so far is the result.
    if (!deadline.signal.aborted || signal.aborted) throw error;
  }
  return {
    found: found !== undefined || (text === undefined && pattern === undefined && exit !== undefined),
    ...found,
    exited: exit !== undefined,
    ...(exit && { exit_code: exit.exit_code }),
    timed_out: found === undefined && exit === undefined,
    elapsed_ms: Math.round(performance.now() - began),
    stdout_offset: offsets.stdout,
    stderr_offset: offsets.stderr,
    last_excerpt: last,
  };
}

/** Bytes at the end of a file that are searched, as the original does. */
const searched = 4096;
const excerpt = 256;

export const waitForText = tool("wait_for_text", {
  title: "Wait for text in a file",
  description:
    "Read the end of a file in a sandbox again and again until it contains a text, or until the time is over. " +
    "A file that does not exist yet counts as empty. For the output of a command use wait_for_output.",
  input: s.object({
    sandbox_id: sandboxId,
    path: guestPath.describe("Absolute path of the file in the guest"),
    marker: s.string().min(1).max(searched).describe("Text to wait for, in the last 4096 bytes"),
    timeout_secs: timeout,
    poll_interval_ms: s.int().min(20).max(60_000).default(200).describe("Time between two reads"),
  }),
  output: s.object({
    found: s.boolean(),
    elapsed_ms: s.number(),
    last_excerpt: s.string().describe("The last 256 bytes of the file"),
  }),
  annotations: reads,
  run: async ({ sandbox_id: id, path, marker, timeout_secs, poll_interval_ms }, call) => {
    const { signal, progress } = call;
    const began = performance.now();
    progress.say(`Waiting for text in ${path}`);
    for (;;) {
      const end = await endOfFile(call, id, path);
      const elapsed = performance.now() - began;
      const found = end.includes(marker);
      const rest = timeout_secs * 1000 - elapsed;
      if (found || rest <= 0) {
        const last = safeText(Buffer.from(end).subarray(-excerpt)).text;
        return { structured: { found, elapsed_ms: Math.round(elapsed), last_excerpt: last } };
      }
      // The interval is the caller's choice, as in the original.
      await sleep(Math.min(poll_interval_ms, rest), undefined, { signal });
    }
  },
});

/** The last bytes of a file as text; "" while it does not exist. */
async function endOfFile({ forkd, guest, signal }: Call, id: string, path: string): Promise<string> {
  try {
    const { size } = await forkd.call("statFile", { id, path, follow: true }, { signal });
    const part = { path, offset: Math.max(0, size - searched), limit: searched };
    return new TextDecoder().decode(await guest.readFile(forkd, id, part, signal));
  } catch (error) {
    if (error instanceof AppError && error.code === "file_not_found") return "";
    throw error;
  }
}
