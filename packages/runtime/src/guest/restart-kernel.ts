/** Starts interpreters of a machine again that have ended. */
import { startKernelAgain, type WarmKernel } from "../launch/warm-kernel.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";

/** Callers of the same interpreter share one start. */
export function startAgain(machine: SandboxMachine, kernel: WarmKernel): Promise<WarmKernel> {
  return (
    machine.restarts.get(kernel.language) ??
    machine.addRestart(kernel.language, startKernelAgain(machine.agent, kernel))
  );
}

/** The children of a capture have the interpreters that run in it. */
export function startEnded(machine: SandboxMachine): void {
  for (const kernel of machine.kernels.values()) {
    // The next eval tries once more.
    if (kernel.client.dead) startAgain(machine, kernel).catch(() => undefined);
  }
}
