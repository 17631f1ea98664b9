/** Saves a sandbox to disk and stops it; resume() starts it again with the same id. */
import type { SandboxInfo } from "@forkd/contract";
import { pauseSandbox } from "../capture/save-sandbox.ts";
import type { Context } from "../context.ts";
import type { Runtime } from "../runtime.ts";

export function pause(runtime: Runtime, { id }: { id: string }, context: Context): Promise<SandboxInfo> {
  return pauseSandbox(runtime, runtime.registry.get(id), context);
}
