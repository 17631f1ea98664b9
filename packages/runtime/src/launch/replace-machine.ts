/** Gives a sandbox another machine, to resume or to rewind it. */
import { AppError } from "@forkd/contract";
import type { StoredSnapshot } from "@forkd/store";
import { diskShare, memoryShare, type Reservation } from "../admission/admission.ts";
import { ownDiskBytes } from "../admission/disk-usage.ts";
import { requireEnforceable } from "../admission/limits.ts";
import type { Context } from "../context.ts";
import type { Runtime } from "../runtime.ts";
import { childEnv } from "../sandbox/facts.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { requireCompatible } from "../snapshots/compatibility.ts";
import { requireVerified } from "../verify/requirement.ts";
import { prepareMachine } from "./prepare.ts";
import { startMachine } from "./start.ts";

export type Replacement = {
  snapshot: StoredSnapshot;
  signal: AbortSignal;
  caller: Context["caller"];
  /** tag of the snapshot, if the sandbox is rewound, and where it has been */
  rewindTo?: string;
  visited?: readonly string[];
};

/**
 * Starts a machine from the snapshot. The old one ends when the new one answers and the record names it, so a
 * failure leaves the sandbox as it was. After a rewind the saved state is not valid any more: it is from
 * after the snapshot.
 */
export async function replaceMachine(
  runtime: Runtime,
  sandbox: Sandbox,
  { snapshot, signal, caller, rewindTo, visited = sandbox.visited }: Replacement,
): Promise<void> {
  const askedAt = performance.now();
  requireCompatible(snapshot.tag, snapshot.manifest, runtime.host);
  // A resume continues the one machine that was saved. A rewind may duplicate one that has children.
  if (rewindTo !== undefined) await requireVerified(runtime, snapshot);
  await runtime.store.verify(snapshot, { signal });
  const { limits } = sandbox.facts;
  requireEnforceable(runtime, limits);
  const diskUsedBytes = limits?.disk_mib === undefined ? 0 : await ownDiskBytes(runtime, sandbox, snapshot);
  using _place = admitMachine(runtime, sandbox, snapshot, caller);
  using _start = await runtime.starts.take({ caller: caller?.name ?? "", signal });
  const place = { id: sandbox.id, number: sandbox.nextNumber(), snapshot };
  const prepared = await prepareMachine(runtime, place, signal);
  const next = await startMachine(runtime, prepared, {
    identity: sandbox.facts.identity,
    env: childEnv(snapshot.manifest.env, sandbox.facts, sandbox.network),
    network: sandbox.network,
    limits,
    diskUsedBytes,
    askedAt,
  });
  const expiresAt = sandbox.nextExpiry();
  let before: SandboxMachine | undefined;
  try {
    const rewound = rewindTo === undefined ? {} : { tag: rewindTo, saved: undefined, visited };
    await sandbox.persist({ ...rewound, machine: next.facts, expiresAt });
    before = sandbox.attachMachine(next, {
      expiresAt,
      rewound: rewindTo === undefined ? undefined : { to: rewindTo, visited },
    });
  } catch (error) {
    await next[Symbol.asyncDispose]();
    throw error;
  }
  const reason = new AppError("wrong_state", `${sandbox.id} was taken back to "${snapshot.tag}"`, {
    details: { id: sandbox.id, to: snapshot.tag },
  });
  // The sandbox uses the next machine already. If this one cannot be removed now, cleanup finds it as a
  // stray.
  await before
    ?.end(reason)
    .catch((error: unknown) =>
      runtime.log.error({ event: "sandbox.release", sandbox: sandbox.id, number: before.number, error }),
    );
}

/** Reserves capacity for the next machine. A sandbox that has a machine has its capacity already. */
function admitMachine(
  runtime: Pick<Runtime, "admission" | "memoryEstimates">,
  sandbox: Sandbox,
  { id, manifest }: StoredSnapshot,
  caller: Context["caller"],
): Reservation {
  const { limits, owner } = sandbox.facts;
  // The disk of a paused sandbox is counted already; one that was dead has none.
  const isNew = sandbox.status.kind === "new";
  return runtime.admission.admit({
    what: `resume ${sandbox.id}`,
    n: sandbox.state === "running" ? 0 : 1,
    memoryMib: memoryShare(manifest.machine.memory_mib, limits?.memory_mib),
    expectMib: runtime.memoryEstimates.of(id),
    diskMib: isNew ? diskShare(manifest.files.rootfs.bytes, limits?.disk_mib) : 0,
    caller: caller?.name === owner ? caller : undefined,
    isNew,
  });
}
