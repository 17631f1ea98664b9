/** Sandboxes that outlived the daemon, as paused ones: each from its record and its saved state. */
import { readdir } from "node:fs/promises";
import { join } from "node:path";
import { toAppError } from "@forkd/contract";
import { removeTree, Scope } from "@forkd/base";
import { readSnapshot } from "@forkd/store";
import { sandboxHome } from "../identity.ts";
import type { Runtime } from "../open-runtime.ts";
import { sandboxIds } from "../reap.ts";
import { factsOf, readRecord, savedDir, timeoutsOf, type SandboxRecord } from "./record.ts";
import { Sandbox } from "./sandbox.ts";

/** Strays have been removed before. One that cannot be read costs itself only: it stays on disk, and the log tells. */
export async function restoreSandboxes(runtime: Runtime): Promise<void> {
  for (const id of await sandboxIds(runtime.config)) {
    if (runtime.owns(id)) continue;
    runtime.places.add(id);
    try {
      const record = await readRecord(sandboxHome(runtime.config, id));
      if (record) runtime.registry.add(await restore(runtime, record));
    } catch (error) {
      runtime.log.error({ event: "sandbox.restore", outcome: "failed", sandbox: id, error });
    }
  }
}

async function restore(runtime: Runtime, record: SandboxRecord): Promise<Sandbox> {
  const home = sandboxHome(runtime.config, record.id);
  const homeScope = new Scope();
  homeScope.defer(() => void runtime.places.delete(record.id));
  homeScope.defer(() => removeTree(home.dir));
  homeScope.defer(() => removeTree(home.socketDir));
  const sandbox = new Sandbox({
    facts: factsOf(record),
    home,
    homeScope,
    snapshotTag: record.snapshot_tag,
    ttlSecs: record.ttl_secs,
    timeouts: timeoutsOf(record),
    machines: record.machines,
  });
  if (record.saved) {
    sandbox.lastActive = record.saved.at_unix;
    try {
      const snapshot = await readSnapshot(savedDir(home, record.saved.name), record.id);
      sandbox.saved = { snapshot, savedAt: record.saved.at_unix };
    } catch (error) {
      sandbox.unusable = toAppError(error);
      sandbox.note = `its saved state cannot be used: ${sandbox.unusable.message}`;
    }
  } else {
    sandbox.note = "its machine was lost before it was suspended; resume starts it anew from its snapshot";
    sandbox.lastActive = record.created_at_unix;
  }
  if (sandbox.unusable) return sandbox;
  // States and drafts that the record does not name were never finished, or are older.
  for (const name of await readdir(home.dir)) {
    if (name !== record.saved?.name && name !== "sandbox.json") await removeTree(join(home.dir, name));
  }
  return sandbox;
}
