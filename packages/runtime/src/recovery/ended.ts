/** Remembers sandboxes that ended, and lists them again after a restart of the daemon. */
import { Scope } from "@forkd/base";
import type { Language } from "@forkd/contract";
import type { Runtime } from "../runtime.ts";
import type { EndedSandbox } from "../sandbox/ended.ts";
import { sandboxHome } from "../sandbox/paths.ts";
import { factsOf, recordOf, timeoutsOf } from "../sandbox/record.ts";
import { Sandbox } from "../sandbox/sandbox.ts";
import { reasonOf } from "../sandbox/states.ts";
import { visitedBy } from "../snapshots/visited.ts";

/** Call it before its record is removed, so that a crash in between loses neither. */
export async function rememberEnded(
  runtime: Pick<Runtime, "ended" | "store">,
  sandbox: Sandbox,
): Promise<void> {
  if (sandbox.status.kind !== "dead") return;
  const { vcpus, memory_mib, accelerator, languages } = sandbox.info();
  const { text, code } = reasonOf(sandbox.status) ?? { text: "unknown" };
  const visited = await visitedBy(runtime, sandbox);
  await runtime.ended.add({
    record: recordOf(sandbox, { ...sandbox.recordState, machine: undefined, saved: undefined, visited }),
    reason: text,
    ...(code !== undefined && { reason_code: code }),
    console: sandbox.lastConsole,
    ended_at_unix: Date.now() / 1000,
    shape: { vcpus, memory_mib, accelerator, languages: languages as Language[] },
  });
}

/** Lists the remembered sandboxes, but for those that have a record again. */
export async function restoreEnded(runtime: Runtime): Promise<void> {
  for (const entry of await runtime.ended.load()) {
    const { id } = entry.record;
    if (runtime.places.has(id)) await runtime.ended.remove(id);
    else runtime.registry.addEnded(endedSandbox(runtime, entry));
  }
}

function endedSandbox(runtime: Pick<Runtime, "config">, entry: EndedSandbox): Sandbox {
  const { record, reason, reason_code: code, console, ended_at_unix: endedAt, shape } = entry;
  const sandbox = new Sandbox({
    // A workspace does not die, so this one would be taken for paused.
    facts: { ...factsOf(record), workspace: undefined, shape },
    home: sandboxHome(runtime.config, record.id),
    // Nothing of it is on the host.
    homeScope: new Scope(),
    snapshotTag: record.snapshot_tag,
    visited: record.visited,
    ttlSecs: record.ttl_secs,
    timeouts: timeoutsOf(record),
    ports: record.ports,
    machines: record.machines,
    lastActive: endedAt,
  });
  sandbox.markWithoutMachine({ reason: { text: reason, ...(code !== undefined && { code }) }, console });
  return sandbox;
}
