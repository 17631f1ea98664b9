/** Runs a command on a snapshot and saves the result as another snapshot. */
import type { BranchMode, ExecEvent } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";
import { CommandError } from "./errors.ts";
import { forkOne } from "./fork.ts";
import type { NetworkOptions } from "./sandbox-options.ts";
import type { Branch, Sandbox } from "./sandbox.ts";

/** A piece of output of a command. */
export type OutputEvent = Extract<ExecEvent, { type: "stdout" | "stderr" }>;
/** Input of `snapshots.derive()`. */
export type DeriveRequest = CallOptions &
  NetworkOptions & {
    /** Tag of the snapshot to start from. */
    from: string;
    /** Tag of the new snapshot. */
    tag: string;
    /** Program and arguments of the command. */
    argv: readonly string[];
    /** Environment of the command; default: that of the snapshot. */
    env?: Record<string, string> | undefined;
    /** Kills the command after this time and fails; default and 0: no limit. */
    timeoutSecs?: number | undefined;
    /** Mode of the branch; default: "live". */
    mode?: BranchMode | undefined;
    /** Receives the output as it arrives, one piece after the other; default: the output is dropped. */
    onOutput?: ((event: OutputEvent) => void | Promise<void>) | undefined;
  };
/** @deprecated Use `DeriveRequest`. */
export type DiffRequest = DeriveRequest;

/** If the command has a limit and the client vanishes, the sandbox lives at most this much longer. */
const graceSecs = 3600;

export async function deriveSnapshot(client: Client, request: DeriveRequest): Promise<Branch> {
  const { from, timeoutSecs = 0, network, secrets, signal } = request;
  const ttlSecs = timeoutSecs > 0 ? Math.ceil(timeoutSecs) + graceSecs : undefined;
  const sandbox = await forkOne(client, from, { ttlSecs, network, secrets, signal });
  let branch: Branch;
  try {
    await runCommand(sandbox, request);
    branch = await sandbox.branch({ tag: request.tag, mode: request.mode, signal });
  } catch (error) {
    // A failure of the cleanup must not hide the first failure.
    await sandbox[Symbol.asyncDispose]().catch(() => undefined);
    if (signal?.aborted) await removeBranch(client, sandbox.id, request.tag).catch(() => undefined);
    throw error;
  }
  await sandbox[Symbol.asyncDispose]();
  return branch;
}

async function runCommand(sandbox: Sandbox, request: DeriveRequest): Promise<void> {
  const { argv, env, timeoutSecs, signal, onOutput } = request;
  const handle = await sandbox.commands.start(argv, { env, timeoutSecs, signal });
  for await (const event of handle)
    if (event.type === "stdout" || event.type === "stderr") await onOutput?.(event);
  const result = await handle.wait();
  if (result.exit_code !== 0 || result.timed_out) throw new CommandError(argv, result);
}

/** An aborted branch may be complete. Keeps a snapshot with this tag that came from another sandbox. */
async function removeBranch(client: Client, sandboxId: string, tag: string): Promise<void> {
  const snapshots = await client.call("listSnapshots", {});
  if (snapshots.some((snapshot) => snapshot.tag === tag && snapshot.branched_from === sandboxId))
    await client.call("removeSnapshot", { tag });
}
