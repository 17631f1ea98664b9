/** Rewinds a dead sandbox: the same id and identity, with a new home and a machine from the snapshot. */
import { AppError } from "@forkd/contract";
import { Scope } from "@forkd/base";
import type { Runtime } from "../runtime.ts";
import { Sandbox } from "../sandbox/sandbox.ts";
import { makeHome } from "./prepare.ts";
import { replaceMachine, type Replacement } from "./replace-machine.ts";

/** If it fails, the sandbox is dead as before. */
export async function reviveSandbox(
  runtime: Runtime,
  dead: Sandbox,
  rewind: Replacement & { rewindTo: string },
): Promise<Sandbox> {
  // Its old files are gone when this resolves.
  await dead[Symbol.asyncDispose]();
  if (runtime.places.has(dead.id))
    throw new AppError("wrong_state", `Cannot rewind ${dead.id}: another rewind of it is in progress`, {
      details: { id: dead.id },
      remedy: { action: "retry_later" },
    });
  await using homeScope = new Scope();
  const home = await makeHome(runtime, dead.id, homeScope);
  const sandbox = new Sandbox({
    facts: dead.facts,
    home,
    homeScope: homeScope.keep(),
    snapshotTag: rewind.rewindTo,
    ttlSecs: dead.ttlSecs,
    timeouts: dead.timeouts,
    network: dead.network,
    ports: dead.ports.all,
    machines: dead.machineCount,
  });
  try {
    await replaceMachine(runtime, sandbox, rewind);
    // It may have been killed in the meantime.
    if (runtime.registry.find(dead.id) !== dead) runtime.registry.get(dead.id);
  } catch (error) {
    await sandbox[Symbol.asyncDispose]();
    throw error;
  }
  runtime.registry.add(sandbox);
  await runtime.ended.remove(sandbox.id);
  return sandbox;
}
