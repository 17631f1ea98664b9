/** Calls into sandboxes that stream: commands, code, files, consoles and builds. */
import type { EvalDisplay, EvalResult, FileEntry, Language, SnapshotInfo } from "@forkd/contract";
import { outputBytes, wireOf, type Forkd } from "@forkd/sdk";

type OutputStream = "stdout" | "stderr";
type OnOutput = (stream: OutputStream, bytes: Uint8Array) => void;

export type CommandExit = {
  exit_code: number;
  signal?: string | undefined;
  timed_out: boolean;
  duration_ms: number;
};

export type CommandRequest = {
  readonly args: readonly string[];
  readonly env?: Record<string, string> | undefined;
  readonly cwd?: string | undefined;
  readonly user?: string | undefined;
  readonly stdin?: string | undefined;
  readonly timeoutMs?: number | undefined;
};

/** Runs a command to its end. Abort kills it. */
export async function runCommand(
  forkd: Forkd,
  id: string,
  { args, ...options }: CommandRequest,
  on: { output: OnOutput; signal: AbortSignal },
): Promise<CommandExit & { exec_id: number }> {
  const sandbox = await forkd.sandboxes.get(id, { signal: on.signal });
  const command = await sandbox.commands.start(args, { ...options, signal: on.signal });
  let exit: CommandExit | undefined;
  for await (const event of command) {
    if (event.type === "stdout" || event.type === "stderr") on.output(event.type, outputBytes(event));
    else if (event.type === "exit") exit = exitOf(event);
  }
  return { exec_id: command.execId, ...(exit ?? exitOf(await command.wait())) };
}

/** Starts a command that keeps running. */
export async function startCommand(
  forkd: Forkd,
  id: string,
  { args, ...options }: CommandRequest,
  signal: AbortSignal,
): Promise<{ exec_id: number; pid: number }> {
  const sandbox = await forkd.sandboxes.get(id, { signal });
  const { execId, pid } = await sandbox.commands.run(args, { ...options, signal, background: true });
  return { exec_id: execId, pid: pid ?? 0 };
}

type FollowedEvent =
  | { readonly type: OutputStream; readonly bytes: Uint8Array; readonly end: number }
  | ({ readonly type: "exit" } & CommandExit);

/** Follows a running or ended command. Abort only detaches. */
export async function* followCommand(
  forkd: Forkd,
  command: { id: string; execId: number; stdoutOffset: number; stderrOffset: number },
  signal: AbortSignal,
): AsyncGenerator<FollowedEvent> {
  const sandbox = await forkd.sandboxes.get(command.id, { signal });
  const { stdoutOffset, stderrOffset } = command;
  const handle = await sandbox.commands.attach(command.execId, { stdoutOffset, stderrOffset, signal });
  for await (const event of handle) {
    if (event.type === "stdout" || event.type === "stderr") {
      const bytes = outputBytes(event);
      yield { type: event.type, bytes, end: event.offset + bytes.length };
    } else if (event.type === "exit") yield { type: "exit", ...exitOf(event) };
  }
}

function exitOf(exit: {
  exitCode: number;
  signal?: string | undefined;
  timedOut: boolean;
  durationMs: number;
}): CommandExit {
  const { exitCode: exit_code, signal, timedOut: timed_out, durationMs: duration_ms } = exit;
  return { exit_code, ...(signal !== undefined && { signal }), timed_out, duration_ms };
}

type EvalRequest = {
  readonly code: string;
  readonly language?: Language | undefined;
  readonly context?: string | undefined;
  readonly timeoutMs: number;
};

/** Evaluates code. Code that raises is a result. Abort interrupts it. */
export async function evalCode(
  forkd: Forkd,
  id: string,
  { code, ...options }: EvalRequest,
  on: { output: OnOutput; display: (display: EvalDisplay) => void; signal: AbortSignal },
): Promise<EvalResult> {
  const sandbox = await forkd.sandboxes.get(id, { signal: on.signal });
  for await (const event of sandbox.eval(code, { ...options, signal: on.signal })) {
    if (event.type === "stdout" || event.type === "stderr") on.output(event.type, outputBytes(event));
    else if (event.type === "display") on.display(wireOf(event.display) as EvalDisplay);
    else if (event.type === "result") return wireOf(event.result) as EvalResult;
  }
  throw new Error("The daemon ended the eval without a result");
}

/** Reads a part of a file. */
export async function readFile(
  forkd: Forkd,
  id: string,
  file: { path: string; offset?: number | undefined; limit?: number | undefined; user?: string | undefined },
  signal: AbortSignal,
): Promise<Uint8Array> {
  const sandbox = await forkd.sandboxes.get(id, { signal });
  const { path, ...part } = file;
  return sandbox.files.read(path, { ...part, signal });
}

/** Replaces or extends a file. */
export async function writeFile(
  forkd: Forkd,
  id: string,
  file: {
    path: string;
    content: Uint8Array;
    mode?: string | undefined;
    append?: boolean | undefined;
    exclusive?: boolean | undefined;
    user?: string | undefined;
  },
  signal: AbortSignal,
): Promise<FileEntry> {
  const sandbox = await forkd.sandboxes.get(id, { signal });
  const { path, content, ...how } = file;
  return wireOf(await sandbox.files.write(path, content, { ...how, signal })) as FileEntry;
}

/** Reads the last lines of the console of a guest. */
export async function* readConsole(
  forkd: Forkd,
  id: string,
  tail: number,
  signal: AbortSignal,
): AsyncGenerator<Uint8Array> {
  const sandbox = await forkd.sandboxes.get(id, { signal });
  yield* sandbox.logs({ tail, signal });
}

type BuildRequest = {
  readonly tag: string;
  readonly kernel?: string | undefined;
  readonly rootfs?: string | undefined;
  readonly recipe?: string | undefined;
  readonly rw?: boolean | undefined;
  readonly bootWaitMs?: number | undefined;
  readonly memoryMib?: number | undefined;
  readonly vcpus?: number | undefined;
  readonly force?: boolean | undefined;
};

/** Builds a snapshot. Abort stops the build and removes its files. */
export async function buildSnapshot(
  forkd: Forkd,
  request: BuildRequest,
  on: { progress: (step: string, message: string) => void; signal: AbortSignal },
): Promise<SnapshotInfo> {
  const onProgress = (event: { step: string; message: string }) => on.progress(event.step, event.message);
  return wireOf(await forkd.snapshots.build(request, { onProgress, signal: on.signal })) as SnapshotInfo;
}
