/** Commands: run, start in the background, list and signal. */
import { AppError, signalNames } from "@forkd/contract/wire";
import { s } from "../schema.ts";
import type { CommandRequest } from "../guest.ts";
import { Collector } from "../results/collector.ts";
import { partialOutputs } from "../results/partial.ts";
import { safeText, safeValue } from "../results/safe-text.ts";
import { env, guestPath, maxOutputBytes, partial, sandboxId } from "./fields.ts";
import { listAnswer, reads, runs, tool, type Answer, type Call } from "./tool.ts";

const execInput = s.object({
  sandbox_id: sandboxId,
  args: s
    .array(s.string().max(131_072))
    .max(4096)
    .optional()
    .describe('Program and arguments, without a shell: ["python3", "-c", "print(2+2)"]'),
  command: s.string().max(131_072).optional().describe("A line for /bin/sh, in place of args"),
  timeout_secs: s
    .number()
    .min(0)
    .max(31_536_000)
    .optional()
    .describe("Kill the command after this time; 0: no limit; default: 30, in the background no limit"),
  cwd: guestPath.optional().describe("Working directory; default: the home directory of the user"),
  env,
  user: s.string().max(128).optional().describe("User name or uid; default: root"),
  stdin: s.string().max(4_000_000).optional().describe("Input of the command; default: empty"),
  background: s
    .boolean()
    .default(false)
    .describe("Answer at once with exec_id and let the command run; wait_for_output follows it"),
  max_output_bytes: maxOutputBytes,
});

export const execCommand = tool("exec_command", {
  title: "Run a command",
  description:
    "Run a command in a sandbox and wait for its end. A command that fails is a result with its exit_code, not an error. " +
    "Give either args (no shell) or command (a line for /bin/sh). Long output is shown as head and tail; the whole is a resource. " +
    "Cancelling the call kills the command. With background true the command keeps running until it ends, signal_command ends it, or its sandbox is killed: use that for servers.",
  input: execInput,
  output: s.object({
    stdout: s.string(),
    stderr: s.string(),
    exit_code: s.number().optional().describe("128 + signal if a signal ended it; absent in the background"),
    signal: s.string().optional(),
    timed_out: s.boolean().optional(),
    duration_ms: s.number().optional(),
    exec_id: s.number().describe("Number of the command in its sandbox, for wait_for_output"),
    pid: s.number().optional(),
    ...partial,
  }),
  annotations: runs,
  run: async (input, call) => {
    const args = argvOf(input);
    const { cwd, env: variables, user, stdin, timeout_secs: secs } = input;
    const request = {
      args,
      cwd,
      env: variables,
      user,
      stdin,
      timeoutMs: secs === undefined ? undefined : secs * 1000,
    };
    return input.background ? start(input.sandbox_id, request, call) : await run(input, request, call);
  },
});

function argvOf({ args, command }: (typeof execInput)["type"]): string[] {
  if ((args === undefined) === (command === undefined))
    throw refused("args", 'give either "args" or "command"');
  if (command !== undefined) return ["/bin/sh", "-c", command];
  if (args === undefined || args.length === 0) throw refused("args", "must name a program");
  return args;
}

function refused(field: string, why: string): AppError {
  return new AppError("invalid_request", `Invalid argument "${field}" of exec_command: ${why}`, {
    details: { field },
  });
}

async function start(id: string, request: CommandRequest, { forkd, guest, signal }: Call): Promise<Answer> {
  const started = await guest.startCommand(forkd, id, request, signal);
  return { structured: { stdout: "", stderr: "", ...started } };
}

async function run(input: (typeof execInput)["type"], request: CommandRequest, call: Call): Promise<Answer> {
  const { forkd, guest, backend, signal, progress } = call;
  const outputs = { stdout: new Collector(), stderr: new Collector() };
  progress.say(`Running ${request.args[0] ?? ""}`);
  const exit = await guest.runCommand(forkd, input.sandbox_id, withLimit(request), {
    signal,
    output: (stream, bytes) => {
      outputs[stream].push(bytes);
      progress.say(lastLine(bytes));
    },
  });
  const shown = partialOutputs(
    { stdout: outputs.stdout.collected(), stderr: outputs.stderr.collected() },
    {
      store: backend.outputs,
      limit: input.max_output_bytes,
      of: `command ${exit.exec_id} in ${input.sandbox_id}`,
    },
  );
  return { structured: { ...shown.texts, ...exit, ...shown.fields }, more: shown.links };
}

/** A streamed command has no limit in the daemon; one that a model waits for has that of the original. */
function withLimit(request: CommandRequest): CommandRequest {
  return { ...request, timeoutMs: request.timeoutMs ?? 30_000 };
}

/** The last line that the output shows so far, for progress. */
export function lastLine(bytes: Uint8Array): string {
  return safeText(bytes.subarray(-512)).text.trimEnd().split("\n").at(-1) ?? "";
}

export const listCommands = tool("list_commands", {
  title: "List commands",
  description: "List the commands of a sandbox that run or have ended recently, with their exec_id.",
  input: s.object({ sandbox_id: sandboxId }),
  output: s.object({
    result: s.array(
      s.looseObject({ exec_id: s.number(), state: s.enum(["running", "finished"]), command: s.string() }),
    ),
  }),
  annotations: reads,
  run: async ({ sandbox_id: id }, { forkd, signal }) =>
    listAnswer(safeValue(await forkd.call("listExecs", { id }, { signal })) as unknown[]),
});

export const signalCommand = tool("signal_command", {
  title: "Signal a command",
  description:
    "Send a signal to a command that runs in the background, and to the processes that it started.",
  input: s.object({
    sandbox_id: sandboxId,
    exec_id: s.int().min(0).describe("Number of the command, from exec_command or list_commands"),
    signal: s.enum(signalNames).default("SIGTERM").describe("Name of the signal"),
  }),
  output: s.object({ sandbox_id: s.string(), exec_id: s.number(), signal: s.string() }),
  annotations: { ...runs, openWorldHint: false },
  run: async ({ sandbox_id: id, exec_id, signal: name }, { forkd, signal }) => {
    await forkd.call("execSignal", { id, exec_id, signal: name }, { signal });
    return { structured: { sandbox_id: id, exec_id, signal: name } };
  },
});
