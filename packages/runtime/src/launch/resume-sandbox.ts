/** Starts a paused sandbox again: from its saved state, or from its snapshot if it has none. */
import type { SandboxInfo } from "@forkd/contract";
import { collapseIfLong } from "../capture/disk-chain.ts";
import type { Context } from "../context.ts";
import type { Runtime } from "../runtime.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { usableSnapshot } from "../snapshots/usable-snapshot.ts";
import { replaceMachine } from "./replace-machine.ts";

/** Does nothing if the sandbox runs. */
export function resumeSandbox(
  runtime: Runtime,
  sandbox: Sandbox,
  { signal, log, caller }: Context,
): Promise<SandboxInfo> {
  return runtime.work.whileOpen(signal, (open) =>
    sandbox.exclusively(open, async (either) => {
      if (sandbox.state === "running") return sandbox.info();
      sandbox.requireResumable();
      const snapshot = sandbox.saved?.snapshot ?? (await usableSnapshot(runtime, sandbox.snapshotTag));
      await replaceMachine(runtime, sandbox, { snapshot, signal: either, caller });
      void collapseIfLong(runtime, sandbox, sandbox.current);
      runtime.registry.schedule(sandbox);
      runtime.events.sandbox("sandbox.resumed", sandbox.info());
      log.info({ event: "sandbox.resume", outcome: "ok", sandbox: sandbox.id });
      return sandbox.info();
    }),
  );
}
