/** Commands in a sandbox: run to the end, stream, background, attach, input, signal. */
import { roundMs } from "@forkd/base";
import { constants } from "node:os";
import {
  AppError,
  maxBufferedOutput,
  type ExecEvent,
  type ExecInfo,
  type ExecRequest,
  type ExecResult,
  type ParsedOf,
} from "@forkd/contract";
import { GuestProgress, startFlag, type AgentExit, type AgentProcess, type StartSpec } from "@forkd/machine";
import type { Context } from "../context.ts";
import { commandDefaults } from "../guest/command-defaults.ts";
import { withReplyDeadline, withExitDeadline } from "../guest/deadline.ts";
import type { HeldBytes } from "../guest/guest-bytes.ts";
import { OutputBuffer } from "../guest/output-buffer.ts";
import { outputEvent } from "../guest/output-event.ts";
import type { Runtime } from "../runtime.ts";
import type { OutputFollower } from "../guest/shared-output.ts";
import { followProcess, leave, shareOutput } from "../sandbox/follow-process.ts";
import { collectFromGuest, intoGuest, streamFromGuest } from "../sandbox/into-guest.ts";
import type { FollowedProcess } from "../sandbox/sandbox-machine.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

const defaultTimeoutSecs = 30;
/** output per stream that the guest keeps for a later attach */
const keptBytes = 256 * 1024;
const signalNumbers: Readonly<Record<string, number>> = constants.signals;

type InSandbox = { id: string };
type ExecInput = ExecRequest & InSandbox;

function startSpec(sandbox: Sandbox, request: ExecInput, defaultSecs: number): StartSpec {
  const timeoutMs = (request.timeout_secs ?? defaultSecs) * 1000;
  return {
    ...commandDefaults(sandbox.current.base.manifest),
    argv: request.args,
    env: { ...sandbox.env, ...request.env },
    timeoutMs,
    stdin: request.stdin !== undefined || request.stdin_open,
    ...(request.cwd !== undefined && { cwd: request.cwd }),
    ...(request.user !== undefined && { user: request.user }),
    ...(request.pty !== undefined && { pty: request.pty }),
  };
}

/** Writes the given input; a command that ends without reading it is not an error. */
async function feed(process: AgentProcess, request: ExecInput): Promise<void> {
  if (request.stdin === undefined) return;
  try {
    await process.write(Buffer.from(request.stdin));
    if (!request.stdin_open) await process.end();
  } catch (error) {
    if (!(error instanceof AppError) || error.code === "internal") throw error;
  }
}

function signalName(number: number): string {
  return Object.keys(signalNumbers).find((name) => signalNumbers[name] === number) ?? `signal ${number}`;
}

function exitFields(exit: AgentExit): { exit_code: number; signal?: string; timed_out: boolean } {
  return exit.signal === undefined
    ? { exit_code: exit.code ?? 0, timed_out: exit.timedOut }
    : { exit_code: 128 + exit.signal, signal: signalName(exit.signal), timed_out: exit.timedOut };
}

function killOnAbort(
  runtime: Pick<Runtime, "work">,
  process: AgentProcess,
  signal: AbortSignal | undefined,
): () => void {
  const stop = () => {
    if (!runtime.work.keepsRunningWithoutCaller) process.kill();
  };
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop, { once: true });
  return () => signal?.removeEventListener("abort", stop);
}

export function exec(runtime: Runtime, request: ExecInput, context: Context): Promise<ExecResult> {
  return collectFromGuest(runtime, { ...context, id: request.id }, async (sandbox, held) => {
    const result = await runCommand(runtime, sandbox, { request, signal: context.signal, held });
    runtime.metrics.execSeconds.observe(result.duration_ms / 1000);
    return result;
  });
}

async function runCommand(
  runtime: Pick<Runtime, "work">,
  sandbox: Sandbox,
  { request, signal, held }: { request: ExecInput; signal: AbortSignal | undefined; held: HeldBytes },
): Promise<ExecResult> {
  const startedAt = performance.now();
  const stdout = new OutputBuffer(maxBufferedOutput, held);
  const stderr = new OutputBuffer(maxBufferedOutput, held);
  const spec = startSpec(sandbox, request, defaultTimeoutSecs);
  const process = sandbox.agent.start(spec, {
    onOutput: ({ stream, bytes }) => (stream === 1 ? stdout : stderr).push(bytes),
  });
  const release = killOnAbort(runtime, process, signal);
  try {
    const whole = async () => {
      await process.started;
      const fed = feed(process, request);
      // No deadline: withExitDeadline() below sets it.
      const exit = await process.exit;
      await fed;
      return exit;
    };
    const exit = await withExitDeadline(sandbox.agent, "the command has not ended", whole(), {
      timeoutMs: spec.timeoutMs ?? 0,
      signal,
    });
    if (signal?.aborted) throw new AppError("cancelled", "The command was killed: its caller has gone");
    return {
      exec_id: process.id,
      stdout: await stdout.text(),
      stderr: await stderr.text(),
      ...exitFields(exit),
      truncated: stdout.isCut || stderr.isCut,
      duration_ms: roundMs(performance.now() - startedAt),
    };
  } finally {
    release();
    process.forget();
  }
}

/** Starts a command in the background; the guest keeps its output for a later attach. */
export function startExec(
  runtime: Runtime,
  request: ExecInput,
  context: Context,
): Promise<{ exec_id: number; pid: number }> {
  return intoGuest(runtime, { ...context, id: request.id }, async (sandbox) => {
    const process = sandbox.agent.start({
      ...startSpec(sandbox, request, 0),
      detached: true,
      keepBytes: keptBytes,
    });
    await withReplyDeadline(sandbox.agent, "the command has not started", process.started);
    if (request.stdin !== undefined) {
      await withProcess(sandbox, process.id, (attached) => feed(attached, request));
    }
    return { exec_id: process.id, pid: process.pid ?? 0 };
  });
}

export function streamExec(
  runtime: Runtime,
  request: ExecInput,
  context: Context,
): Promise<AsyncIterable<ExecEvent>> {
  return streamFromGuest(runtime, { ...context, id: request.id }, (sandbox) =>
    streamCommand(runtime, sandbox, { request, signal: context.signal }),
  );
}

async function streamCommand(
  runtime: Pick<Runtime, "metrics" | "work">,
  sandbox: Sandbox,
  { request, signal }: { request: ExecInput; signal: AbortSignal | undefined },
): Promise<AsyncIterable<ExecEvent>> {
  const startedAt = performance.now();
  const { current } = sandbox;
  const process = sandbox.agent.start({ ...startSpec(sandbox, request, 0), keepBytes: keptBytes });
  const killed = request.background ? () => undefined : killOnAbort(runtime, process, signal);
  await withReplyDeadline(sandbox.agent, "the command has not started", process.started);
  const fed = feed(process, request);
  fed.catch(() => undefined);
  const followed = shareOutput(sandbox, process);
  const output = followed.output.follow([0, 0]);
  const finish = () => {
    // One in the background can be attached to after its exit.
    if (!request.background) process.forget();
    runtime.metrics.execSeconds.observe((performance.now() - startedAt) / 1000);
  };
  const end = async () => {
    const isKept = request.background || output.hasStalled || runtime.work.keepsRunningWithoutCaller;
    if (isKept) return leave(current, followed, output);
    current.removeFollowed(followed);
    await process[Symbol.asyncDispose]();
  };
  const first: ExecEvent = { type: "started", exec_id: process.id, pid: process.pid ?? 0 };
  const closed = leaveOnAbort(
    () => leave(current, followed, output),
    request.background ? signal : undefined,
  );
  const release = () => {
    killed();
    closed();
  };
  return events({ output, finish, end, release }, first);
}

export function attachExec(
  runtime: Runtime,
  request: ParsedOf<"attachExec">,
  context: Context,
): Promise<AsyncIterable<ExecEvent>> {
  const { signal } = context;
  const { exec_id: id, stdout_offset: stdout, stderr_offset: stderr } = request;
  return streamFromGuest(runtime, { ...context, id: request.id }, async (sandbox) => {
    const attach = async () => {
      // From the first byte that the guest has kept, because others may join with lower offsets.
      const process = sandbox.agent.attach(id, [0, 0, 0]);
      await started(sandbox, process);
      return process;
    };
    const followed = await followProcess(sandbox, attach, { id, offsets: [stdout, stderr] });
    const end = () => followed.leave();
    return events({ output: followed.output, end, release: leaveOnAbort(end, signal) });
  });
}

type ReadOutput = {
  output: OutputFollower;
  /** called when everything up to the exit was read */
  finish?: () => void;
  /** what happens to the process when the reader stops early */
  end: () => Promise<void>;
  release: () => void;
};

/** Ends a waiting read, too. */
function leaveOnAbort(leaveIt: () => Promise<void>, signal: AbortSignal | undefined): () => void {
  const stop = () => void leaveIt().catch(() => undefined);
  if (signal?.aborted) stop();
  signal?.addEventListener("abort", stop, { once: true });
  return () => signal?.removeEventListener("abort", stop);
}

async function* events(read: ReadOutput, first?: ExecEvent): AsyncGenerator<ExecEvent> {
  const { output } = read;
  const startedAt = performance.now();
  let finished = false;
  try {
    if (first) yield first;
    for await (const { stream, offset, bytes } of output) yield outputEvent(stream, offset, bytes);
    const { exit } = output;
    // Closed by its reader.
    if (!exit) return;
    finished = true;
    read.finish?.();
    yield { type: "exit", ...exitFields(exit), duration_ms: roundMs(performance.now() - startedAt) };
  } finally {
    read.release();
    // After an error, too: a guest that answers again still has the command, and the next attach finds it.
    if (!finished) await read.end();
  }
}

async function started({ id, agent }: Sandbox, process: AgentProcess): Promise<void> {
  const execId = process.id;
  try {
    await withReplyDeadline(agent, "the command cannot be attached to", process.started);
  } catch (error) {
    if (error instanceof AppError && error.details["errno"] === "ESRCH") throw noSuchExec(id, execId, error);
    throw error;
  }
}

function noSuchExec(id: string, execId: number, cause?: unknown): AppError {
  return new AppError("exec_not_found", `Cannot find command ${execId}: it never ran or was forgotten`, {
    details: { exec_id: execId },
    remedy: { action: "list_commands", id },
    cause,
  });
}

export async function listExecs(runtime: Runtime, { id }: InSandbox, context: Context): Promise<ExecInfo[]> {
  const listings = await collectFromGuest(runtime, { ...context, id }, ({ agent }, { hold }) =>
    withReplyDeadline(agent, "its commands cannot be listed", agent.list(hold)),
  );
  return listings
    .filter((each) => each.kind === "command" && !each.label.startsWith("kernel:"))
    .map((each) => ({
      exec_id: each.id,
      pid: each.pid,
      state: each.finished ? ("finished" as const) : ("running" as const),
      command: each.command,
      ...(each.args && { args: [...each.args] }),
      ...(each.ageMs !== undefined && { age_secs: each.ageMs / 1000 }),
      stdin_open: (each.flags & startFlag.stdin) !== 0,
      pty: (each.flags & startFlag.pty) !== 0,
      stdout_bytes: each.offsets[0],
      stderr_bytes: each.offsets[1],
      ...(each.finished && { exit_code: each.signal === undefined ? (each.code ?? 0) : 128 + each.signal }),
    }));
}

/**
 * Uses the connection of the call that follows the command, or attaches to it for the moment, one call at a
 * time.
 */
async function withProcess<T>(
  sandbox: Sandbox,
  execId: number,
  work: (process: AgentProcess) => Promise<T> | T,
): Promise<T> {
  const { current } = sandbox;
  // A command that does not read its input delays it; only a silent guest is given up.
  const use = ({ process }: FollowedProcess) =>
    new GuestProgress(sandbox.agent, "reach the command").next(Promise.resolve(work(process)));
  const followed = current.followed(execId);
  if (followed) return use(followed);
  return current.attachBriefly(async () => {
    const joined = current.followed(execId);
    if (joined) return use(joined);
    const listings = await withReplyDeadline(
      sandbox.agent,
      "its commands cannot be listed",
      sandbox.agent.list(),
    );
    const listing = listings.find((each) => each.id === execId);
    if (!listing || listing.finished) throw noSuchExec(sandbox.id, execId);
    const process = sandbox.agent.attach(execId, listing.offsets, { onOutput: () => undefined });
    try {
      await started(sandbox, process);
      return await withReplyDeadline(
        sandbox.agent,
        "the command takes no input",
        Promise.resolve(work(process)),
      );
    } finally {
      await process.detach();
    }
  });
}

export function execInput(runtime: Runtime, request: ParsedOf<"execInput">, context: Context): Promise<void> {
  return intoGuest(runtime, { ...context, id: request.id }, (sandbox) =>
    withProcess(sandbox, request.exec_id, async (process) => {
      if (request.data !== "") await process.write(Buffer.from(request.data, request.encoding));
      if (!request.eof) return;
      await process.end();
      // The answer comes after the report that stdin is closed, so that later input is refused.
      await withReplyDeadline(sandbox.agent, "stdin cannot be closed", sandbox.agent.ping());
    }),
  );
}

export function execSignal(
  runtime: Runtime,
  request: ParsedOf<"execSignal">,
  context: Context,
): Promise<void> {
  return intoGuest(runtime, { ...context, id: request.id }, async (sandbox) => {
    const number = signalNumbers[request.signal];
    if (number === undefined)
      throw new AppError("invalid_request", `Cannot send ${request.signal}: no such signal`);
    await withProcess(sandbox, request.exec_id, (process) => process.signal(number));
  });
}

export function execResize(
  runtime: Runtime,
  request: ParsedOf<"execResize">,
  context: Context,
): Promise<void> {
  return intoGuest(runtime, { ...context, id: request.id }, (sandbox) =>
    withProcess(sandbox, request.exec_id, (process) => process.resize(request.rows, request.cols)),
  );
}
