/** One file operation in the guest: a process of the agent, its output and its result. */
import { AppError } from "@forkd/contract";
import type { AgentClient } from "./client.ts";
import { fileRefusal } from "./errors.ts";
import { OutputTail } from "./process/output-tail.ts";
import type { AgentProcess } from "./process/process.ts";
import { GuestProgress } from "./progress.ts";
import { BadRecord } from "./wire/records.ts";
import type { AgentExit } from "./wire/replies.ts";
import type { ProcessKind, StartSpec } from "./wire/requests.ts";

export interface FileOptions {
  readonly user?: string | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Runs one operation and yields its output. Throws if it fails. Ending the iteration early kills it. */
export async function* operate(
  client: AgentClient,
  kind: ProcessKind,
  spec: StartSpec,
  options: FileOptions & {
    /** The operation may rightly be silent as long as the agent answers. */
    readonly mayIdle?: boolean;
  },
  feed?: (process: AgentProcess, progress: GuestProgress) => Promise<void>,
): AsyncGenerator<Buffer> {
  const { user, signal, mayIdle = false } = options;
  signal?.throwIfAborted();
  const action = `${kind} "${spec.path}"`;
  await using process = client.start({ ...spec, kind, ...(user !== undefined && { user }) });
  const progress = new GuestProgress(client, action, { mayIdle });
  const stop = new AbortController();
  let failure: Error | undefined;
  const fail = (error: unknown): void => {
    if (stop.signal.aborted) return;
    failure ??= error instanceof Error ? error : new Error(String(error));
    progress.guestsTurn();
    process.kill();
  };
  const onAbort = (): void =>
    fail(new AppError("cancelled", `Cannot ${action}: cancelled`, { cause: signal?.reason }));
  signal?.addEventListener("abort", onAbort, { signal: stop.signal });
  const stderr = new OutputTail();
  try {
    feed?.(process, progress).catch(fail);
    const { output } = process;
    for (;;) {
      const { done, value } = await progress.next(output.next());
      if (done) break;
      if (value.stream === 1) yield value.bytes;
      else stderr.push(value.bytes);
    }
    const exit = await progress.next(process.exit);
    if (failure) throw failure;
    check(action, exit, stderr.text().trim());
  } finally {
    stop.abort();
  }
}

/** False if the operation has ended; its exit says why. */
export async function accepts(write: Promise<void>): Promise<boolean> {
  return write.then(
    () => true,
    () => false,
  );
}

function check(action: string, exit: AgentExit, text: string): void {
  if (exit.code === 0) return;
  if (exit.code !== undefined) throw fileRefusal(action, exit.code, text);
  throw new AppError("guest_refused", `Cannot ${action}: killed by signal ${exit.signal}`, {
    details: { signal: exit.signal },
  });
}

export async function finish(operation: AsyncGenerator<Buffer>): Promise<void> {
  for await (const bytes of operation) void bytes;
}

/** Reads records of a file. A malformed one is an error of the guest. */
export async function records(path: string, read: () => Promise<void>): Promise<void> {
  try {
    await read();
  } catch (error) {
    throw error instanceof BadRecord ? malformed(path, error) : error;
  }
}

export function malformed(path: string, cause: BadRecord): AppError {
  const message = `Cannot read "${path}": the guest sent a malformed record (${cause.message})`;
  return new AppError("guest_refused", message, { details: { errno: "EPROTO" }, cause });
}
