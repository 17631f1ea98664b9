/** Runs a command on a snapshot and saves the result as another snapshot. */
import type { BranchMode } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";
import { programOf } from "./commands.ts";
import { refuseUnknown } from "./convert/request.ts";
import { within } from "./deadline.ts";
import { CommandError } from "./errors.ts";
import { forkOne } from "./fork.ts";
import type { NetworkOptions } from "./sandbox-options.ts";
import type { Branch, Sandbox } from "./sandbox.ts";
import type { OutputEvent } from "./types.ts";

/** Input of `snapshots.derive()`. */
export type DeriveRequest = CallOptions &
  NetworkOptions & {
    /** Tag of the snapshot to start from. */
    from: string;
    /** Tag of the new snapshot. */
    tag: string;
    /** The command: text for `/bin/sh`, or program and arguments. */
    command: string | readonly string[];
    /** Environment of the command; default: that of the snapshot. */
    env?: Record<string, string> | undefined;
    /** Kills the command after this many ms and fails; default and 0: no limit. */
    commandTimeoutMs?: number | undefined;
    /** Mode of the branch; default: "live". */
    mode?: BranchMode | undefined;
    /** Receives the output as it arrives, one piece after the other; default: the output is dropped. */
    onOutput?: ((event: OutputEvent) => void | Promise<void>) | undefined;
  };

const names = [
  ...["from", "tag", "command", "env", "commandTimeoutMs"],
  ...["mode", "onOutput", "network", "secrets"],
];
/** If the command has a limit and the client vanishes, the sandbox lives at most this much longer. */
const graceMs = 3_600_000;

export async function deriveSnapshot(client: Client, request: DeriveRequest): Promise<Branch> {
  refuseUnknown("derive", request, names);
  return within("derive", request, (timed) => derive(client, timed));
}

async function derive(client: Client, request: DeriveRequest): Promise<Branch> {
  const { from, commandTimeoutMs = 0, network, secrets, signal } = request;
  const ttlMs = commandTimeoutMs > 0 ? commandTimeoutMs + graceMs : undefined;
  const sandbox = await forkOne(client, from, { ttlMs, network, secrets, signal });
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
  const { command, env, commandTimeoutMs: timeoutMs, signal, onOutput } = request;
  const handle = await sandbox.commands.start(command, { env, timeoutMs, signal });
  for await (const event of handle)
    if (event.type === "stdout" || event.type === "stderr") await onOutput?.(event);
  const result = await handle.wait();
  if (result.exitCode !== 0 || result.timedOut) throw new CommandError(programOf(command), result);
}

/** An aborted branch may be complete. Keeps a snapshot with this tag that came from another sandbox. */
async function removeBranch(client: Client, sandboxId: string, tag: string): Promise<void> {
  const snapshots = await client.call("listSnapshots", {});
  if (snapshots.some((snapshot) => snapshot.tag === tag && snapshot.branched_from === sandboxId))
    await client.call("removeSnapshot", { tag });
}
