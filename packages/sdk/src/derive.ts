/** A snapshot and a command → the snapshot that the command leaves behind. */
import type { BranchMode, ExecEvent } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";
import { CommandError } from "./errors.ts";
import { forkOne } from "./fork.ts";
import type { Branch, Sandbox } from "./sandbox.ts";

export type OutputEvent = Extract<ExecEvent, { type: "stdout" | "stderr" }>;
export type DiffRequest = CallOptions & {
  /** snapshot to start from */
  from: string;
  /** name of the new snapshot */
  tag: string;
  argv: readonly string[];
  env?: Record<string, string> | undefined;
  /** of the command; default and 0 = no limit */
  timeoutSecs?: number | undefined;
  mode?: BranchMode | undefined;
  /** output as it comes; the next piece is read when this has resolved */
  onOutput?: ((event: OutputEvent) => void | Promise<void>) | undefined;
};

/** The sandbox outlives a client that vanished by no more than this, if the command has a limit. */
const graceSecs = 3600;

export async function snapshotDiff(client: Client, request: DiffRequest): Promise<Branch> {
  const { from, timeoutSecs = 0, signal } = request;
  const ttlSecs = timeoutSecs > 0 ? Math.ceil(timeoutSecs) + graceSecs : undefined;
  const sandbox = await forkOne(client, from, { ttlSecs, signal });
  let branch: Branch;
  try {
    await runCommand(sandbox, request);
    branch = await sandbox.branch({ tag: request.tag, mode: request.mode, signal });
  } catch (error) {
    // Why it failed matters more than whether the cleaning up went well.
    await sandbox[Symbol.asyncDispose]().catch(() => undefined);
    if (signal?.aborted) await removeBranch(client, sandbox.id, request.tag).catch(() => undefined);
    throw error;
  }
  await sandbox[Symbol.asyncDispose]();
  return branch;
}

async function runCommand(sandbox: Sandbox, request: DiffRequest): Promise<void> {
  const { argv, env, timeoutSecs, signal, onOutput } = request;
  const handle = await sandbox.commands.start(argv, { env, timeoutSecs, signal });
  for await (const event of handle)
    if (event.type === "stdout" || event.type === "stderr") await onOutput?.(event);
  const result = await handle.wait();
  if (result.exit_code !== 0 || result.timed_out) throw new CommandError(argv, result);
}

/** A branch may be complete when the request for it is aborted. One of another sandbox with this tag is left alone. */
async function removeBranch(client: Client, sandboxId: string, tag: string): Promise<void> {
  const snapshots = await client.call("listSnapshots", {});
  if (snapshots.some((snapshot) => snapshot.tag === tag && snapshot.branched_from === sandboxId))
    await client.call("removeSnapshot", { tag });
}
