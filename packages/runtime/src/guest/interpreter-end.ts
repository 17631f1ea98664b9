/** Why an interpreter ended during an eval, and what the caller can expect of the next one. */
import { advice, AppError } from "@forkd/contract";
import { readFile } from "@forkd/machine";
import type { WarmKernel } from "../launch/warm-kernel.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";

const sigkill = 9;
const maxVmstatBytes = 64 * 1024;

/** Errors of other kinds stay as they are. */
export async function explainInterpreterEnd(
  machine: SandboxMachine,
  { client, language }: WarmKernel,
  error: unknown,
): Promise<unknown> {
  if (!(error instanceof AppError) || error.code !== "kernel_failed" || !client.dead) return error;
  const isOutOfMemory = await ranOutOfMemory(machine, error.details);
  const what = error.message.replace("The interpreter", `The ${language} interpreter`);
  return new AppError("kernel_failed", isOutOfMemory ? `${what}: out of memory` : what, {
    details: { ...error.details, ...(isOutOfMemory && { out_of_memory: true }) },
    remedy: advice("The next eval starts another interpreter and runs the warm-up of the snapshot in it."),
    cause: error,
  });
}

/** Node reports its own limit and aborts. For others, Linux in the guest kills the process and counts that. */
async function ranOutOfMemory(
  machine: SandboxMachine,
  { signal, log }: Readonly<Record<string, unknown>>,
): Promise<boolean> {
  if (Array.isArray(log) && log.some((line) => String(line).includes("heap out of memory"))) return true;
  if (signal !== sigkill) return false;
  const before = machine.oomKills;
  machine.oomKills = await countOomKills(machine).catch(() => before);
  return machine.oomKills > before;
}

async function countOomKills({ agent }: SandboxMachine): Promise<number> {
  let text = "";
  const limit = maxVmstatBytes;
  for await (const bytes of await readFile(agent, "/proc/vmstat", { limit }))
    text += bytes.toString("latin1");
  return Number(/^oom_kill (\d+)$/m.exec(text)?.[1] ?? 0);
}
