/** Commands of a sandbox as processes of E2B's agent, which clients name by pid. */
import { advice, AppError, fromErrorBody, toAppError, type ExecEvent, type ExecInfo } from "@forkd/contract";
import {
  attachExec,
  execInput,
  execResize,
  execSignal,
  getSandbox,
  listExecs,
  streamExec,
} from "@forkd/runtime";
import { errnoOf } from "../connect/codes.ts";
import { accountOf, pathOf, type EnvdCall } from "./call.ts";
import { endEvent } from "./exit-status.ts";
import type { ProcessSelector, StartRequest } from "./requests.ts";

/** The event of a stream of a process */
type ProcessEvent = { event: object };

/** Starts a process that keeps running when the client goes; only its deadline and signals end it. */
export async function startProcess(
  call: EnvdCall,
  request: StartRequest,
  timeoutMs: number | undefined,
): Promise<AsyncIterable<ProcessEvent>> {
  const { runtime, id, context } = call;
  const { process, pty } = request;
  if (request.tag !== undefined) throw noTags();
  context.note?.({ args: [process.cmd, ...process.args] });
  const account = await accountOf(call);
  const cwd = process.cwd || call.defaults?.workdir;
  const size = pty && (pty.size ?? { rows: 24, cols: 80 });
  const start = (args: string[]) =>
    streamExec(
      runtime,
      {
        id,
        args,
        env: { ...e2bEnvironment(call), ...process.envs },
        user: account.name,
        ...(cwd && { cwd: pathOf(call, account, cwd) }),
        ...(size && { pty: { rows: size.rows, cols: size.cols } }),
        // The guest keeps the deadline, also when the daemon restarts meanwhile.
        timeout_secs: (timeoutMs ?? 0) / 1000,
        stdin_open: request.stdin || pty !== undefined,
        stream: true,
        // It keeps running when the client goes.
        background: true,
      },
      context,
    );
  const events = await withShell([process.cmd, ...process.args], start, account.name);
  return processEvents(events, { isPty: pty !== undefined, deadline: timeoutMs });
}

function e2bEnvironment({ runtime, id, defaults }: EnvdCall): Record<string, string> {
  const template = defaults?.templateId ?? getSandbox(runtime, { id }).snapshot_tag;
  return { E2B_SANDBOX: "true", E2B_SANDBOX_ID: id, E2B_TEMPLATE_ID: template };
}

/** Clients run every command with bash. An image without it has to do with its shell. */
async function withShell<T>(args: string[], start: (args: string[]) => Promise<T>, user: string): Promise<T> {
  try {
    return await start(args);
  } catch (error) {
    if (args[0] !== "/bin/bash" || !isMissing(error, "exec")) throw startFailure(error, user);
    try {
      return await start(["/bin/sh", ...args.slice(1)]);
    } catch (second) {
      if (!isMissing(second, "exec")) throw startFailure(second, user);
      throw new AppError("invalid_request", "Cannot run the command: the sandbox has neither bash nor sh", {
        remedy: advice("Use a template with a shell."),
        cause: second,
      });
    }
  }
}

/** The agent's line begins with the step that failed. */
function stepOf(error: unknown): string {
  const { text } = toAppError(error).details;
  return typeof text === "string" ? text : "";
}

function isMissing(error: unknown, step: string): boolean {
  return errnoOf(error) === "ENOENT" && stepOf(error).includes(`${step} `);
}

function startFailure(error: unknown, user: string): unknown {
  const failure = toAppError(error);
  if (failure.code !== "guest_refused") return error;
  if (/(?:^| )user '/.test(stepOf(error)))
    return new AppError("unauthenticated", `invalid username: '${user}'`, { cause: error });
  const isWrong = ["ENOENT", "EACCES", "ENOTDIR", "ENOEXEC", "E2BIG"].includes(errnoOf(error) ?? "");
  return isWrong ? new AppError("invalid_request", failure.message, { cause: error }) : error;
}

type Shown = {
  readonly isPty: boolean;
  /** of a process that this stream follows without having started it */
  readonly pid?: number;
  /** of the process, if it ends this stream */
  readonly deadline?: number | undefined;
};

async function* processEvents(
  events: AsyncIterable<ExecEvent>,
  { isPty, pid, deadline }: Shown,
): AsyncGenerator<ProcessEvent> {
  if (pid !== undefined) yield { event: { start: { pid } } };
  for await (const event of events) {
    if (event.type === "started") yield { event: { start: { pid: event.pid } } };
    else if (event.type === "stdout" || event.type === "stderr") yield dataEvent(event, isPty);
    else if (event.type === "error") throw fromErrorBody(event);
    else if (event.timed_out && deadline !== undefined)
      throw new AppError("deadline_exceeded", `The command has run for its ${deadline} ms and was killed`);
    else yield { event: { end: endEvent(event) } };
  }
}

type OutputOf = Extract<ExecEvent, { type: "stdout" | "stderr" }>;

function dataEvent({ type, data, encoding }: OutputOf, isPty: boolean): ProcessEvent {
  const bytes = encoding === "base64" ? data : Buffer.from(data).toString("base64");
  return { event: { data: { [isPty ? "pty" : type]: bytes } } };
}

/** Follows a process from now on. One that has ended recently still has its end. */
export async function connectProcess(
  call: EnvdCall,
  selector: ProcessSelector,
): Promise<AsyncIterable<ProcessEvent>> {
  const found = await find(call, selector);
  const { exec_id, stdout_bytes: stdout_offset, stderr_bytes: stderr_offset, pid, pty = false } = found;
  const events = await attachExec(
    call.runtime,
    { id: call.id, exec_id, stdout_offset, stderr_offset },
    call.context,
  );
  return processEvents(events, { isPty: pty, pid });
}

/** Processes that run. Their environment is not known. */
export async function listProcesses({ runtime, id, context }: EnvdCall): Promise<{ processes: object[] }> {
  const all = await listExecs(runtime, { id }, context);
  const running = all.filter(({ state }) => state === "running");
  return {
    processes: running.map(({ pid, command, args }) => ({
      pid,
      config: { cmd: command, args: args?.slice(1) ?? [], envs: {} },
    })),
  };
}

export async function sendInput(call: EnvdCall, selector: ProcessSelector, data: Buffer): Promise<void> {
  const { exec_id, stdin_open } = await findRunning(call, selector);
  if (stdin_open === false) throw new AppError("internal", "stdin not enabled or closed");
  await input(call, { exec_id, data: data.toString("base64"), eof: false });
}

export async function closeStdin(call: EnvdCall, selector: ProcessSelector): Promise<void> {
  const { exec_id, stdin_open, pty } = await findRunning(call, selector);
  if (pty)
    throw new AppError("wrong_state", "cannot close stdin of a PTY process, send Ctrl+D (0x04) instead");
  if (stdin_open === false) return;
  await input(call, { exec_id, data: "", eof: true });
}

async function input(
  { runtime, id, context }: EnvdCall,
  what: { exec_id: number; data: string; eof: boolean },
): Promise<void> {
  await execInput(runtime, { id, encoding: "base64", ...what }, context);
}

export async function sendSignal(
  call: EnvdCall,
  selector: ProcessSelector,
  signal: "SIGTERM" | "SIGKILL",
): Promise<void> {
  const { exec_id } = await findRunning(call, selector);
  await execSignal(call.runtime, { id: call.id, exec_id, signal }, call.context);
}

export async function resizeProcess(
  call: EnvdCall,
  selector: ProcessSelector,
  size: { rows: number; cols: number } | undefined,
): Promise<void> {
  const { exec_id, pty } = await findRunning(call, selector);
  if (!size) return;
  if (!pty) throw new AppError("wrong_state", "tty not assigned to process");
  await execResize(call.runtime, { id: call.id, exec_id, rows: size.rows, cols: size.cols }, call.context);
}

async function findRunning(call: EnvdCall, selector: ProcessSelector): Promise<ExecInfo> {
  const found = await find(call, selector);
  if (found.state === "running") return found;
  throw notFound(found.pid);
}

/** A pid can be used again; of processes that ended the last one counts. */
async function find({ runtime, id, context }: EnvdCall, { pid, tag }: ProcessSelector): Promise<ExecInfo> {
  if (tag !== undefined) throw noTags();
  const all = await listExecs(runtime, { id }, context);
  const same = all.filter((each) => each.pid === pid);
  const ended = same.toSorted((one, other) => (one.age_secs ?? 0) - (other.age_secs ?? 0));
  const found = same.find(({ state }) => state === "running") ?? ended[0];
  if (!found) throw notFound(pid);
  return found;
}

function notFound(pid: number | undefined): AppError {
  return new AppError("exec_not_found", `process with pid ${pid} not found`, { details: { pid } });
}

function noTags(): AppError {
  return new AppError("unsupported", "Cannot select a process by its tag: use its pid");
}
