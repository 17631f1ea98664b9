/**
 * Boots the parent of a snapshot, up to the answer to AFTER_FORK: from then on its agent is known to work.
 *
 * A VMM that does not start, and a guest that does not greet or then falls silent, are started once more, as a
 * last resort: a lost wake-up in an emulated guest must not cost a build. The time for the boot covers both
 * attempts.
 */
import { randomBytes } from "node:crypto";
import { open } from "node:fs/promises";
import { AppError } from "@forkd/contract";
import { deadlineSignal } from "@forkd/contract/wire";
import { maxTimerMs, removeTree, Scope, withDeadline } from "@forkd/base";
import {
  AgentClient,
  createOverlay,
  kernelCommandLine,
  shapeOf,
  type DiskSpec,
  type Machine,
  type MachineShape,
} from "@forkd/machine";
import { wallClock } from "../capture/guest-clock.ts";
import type { Runtime } from "../runtime.ts";
import { guestIdentity, newSandboxId } from "../sandbox/paths.ts";
import { makeHome, makePlace } from "./prepare.ts";

/** What is booted. */
export type BootPlan = {
  kernel: { path: string };
  initramfs: { path: string };
  memoryMib: number;
  vcpus: number;
  bootTimeoutMs: number;
};

/** The files of the parent, which outlive it. */
type BootFiles = {
  /** created, or replaced */
  memory: string;
  disk: DiskSpec & { bytes: number };
};

type BootedParent = AsyncDisposable & {
  readonly machine: Machine;
  readonly agent: AgentClient;
  readonly shape: MachineShape;
  readonly commandLine: string;
};

type BootContext = {
  signal?: AbortSignal | undefined;
  onProgress: (step: string, text: string) => void;
};

const maxAttempts = 2;
/** Part of the boot's time that the first attempt has to greet; a restart needs less, with its files cached. */
const greetShare = 2 / 3;
/** Part of the boot's time after which a guest that has greeted counts as silent, so that a restart fits in. */
const answerShare = 1 / 4;

/** The memory and the overlay belong to the parent. Disposing the result ends it. */
export async function bootParent(
  runtime: Runtime,
  files: BootFiles,
  plan: BootPlan,
  { signal, onProgress }: BootContext,
): Promise<BootedParent> {
  const until = performance.now() + plan.bootTimeoutMs;
  await using scope = new Scope();
  const id = newSandboxId();
  await makeHome(runtime, id, scope);
  const { accelerator } = runtime.accelerator;
  for (let attempt = 1; ; attempt++) {
    onProgress("boot", `booting the parent (${plan.memoryMib} MiB, ${plan.vcpus} vCPU, ${accelerator})`);
    try {
      const greetMs = attempt === 1 ? plan.bootTimeoutMs * greetShare : until - performance.now();
      const place = { id, number: attempt - 1, greetMs: Math.max(1, Math.round(greetMs)) };
      const booted = await bootOnce(runtime, files, plan, { signal, ...place });
      scope.use(booted);
      const kept = scope.keep();
      return { ...booted, [Symbol.asyncDispose]: () => kept[Symbol.asyncDispose]() };
    } catch (error) {
      if (!(error instanceof SilentParent)) throw error;
      if (attempt === maxAttempts || performance.now() > until) throw error.cause;
      runtime.log.warn({ event: "bake.boot_again", attempt, error: error.cause });
    }
  }
}

/** The VMM did not start, or the guest did not answer. The cause is the error for the caller. */
class SilentParent extends Error {
  constructor(text: string) {
    super(text, {
      cause: new AppError("agent_unreachable", text, { remedy: { action: "show_daemon_log" } }),
    });
  }
}

async function bootOnce(
  runtime: Runtime,
  files: BootFiles,
  plan: BootPlan,
  {
    signal,
    id,
    number,
    greetMs,
  }: { signal: AbortSignal | undefined; id: string; number: number; greetMs: number },
): Promise<BootedParent> {
  await using scope = new Scope();
  const paths = await makePlace(runtime, id, number, scope);
  await makeFiles(files, plan);
  const { accelerator } = runtime.accelerator;
  const shape = shapeOf({ vcpus: plan.vcpus, memoryMib: plan.memoryMib, accelerator });
  const commandLine = kernelCommandLine(accelerator, runtime.tscKhz);
  const until = performance.now() + greetMs;
  const late = () => new SilentParent(`The parent did not answer within ${plan.bootTimeoutMs} ms`);
  using starting = deadlineSignal(greetMs, signal);
  const machine = scope.use(
    await runtime.engine
      .boot(
        {
          shape,
          place: { socketDir: paths.socketDir, consolePath: paths.consolePath, logPath: paths.logPath },
          memoryFile: files.memory,
          disk: { overlay: files.disk.overlay, backing: files.disk.backing },
          kernel: { path: plan.kernel.path, initramfs: plan.initramfs.path, commandLine },
        },
        { signal: starting.signal },
      )
      .catch((error: unknown) => {
        throw starting.isLate ? late() : error;
      }),
  );
  const agent = scope.use(
    AgentClient.open(machine.agentSocket, {
      atBoundary: true,
      // No shorter than the wait below, which knows of the restart.
      helloTimeoutMs: maxTimerMs,
      deadlines: runtime.config.guestDeadlines,
      log: runtime.log,
      ...(signal && { signal }),
    }),
  );
  // Ending the machine ends everything that is awaited in it.
  const stop = () => void machine[Symbol.asyncDispose]();
  signal?.addEventListener("abort", stop, { once: true });
  scope.defer(() => signal?.removeEventListener("abort", stop));
  await withDeadline(orDeath(machine, agent.ready), Math.max(1, until - performance.now()), late);
  await takeIdentity(machine, agent, plan);
  const kept = scope.keep();
  return { machine, agent, shape, commandLine, [Symbol.asyncDispose]: () => kept[Symbol.asyncDispose]() };
}

/** Empty, also after a first attempt. */
async function makeFiles({ memory, disk }: BootFiles, plan: BootPlan): Promise<void> {
  await removeTree(disk.overlay);
  await createOverlay(disk.overlay, disk.bytes);
  await removeTree(memory);
  await using file = await open(memory, "wx", 0o600);
  await file.truncate(plan.memoryMib * 1024 * 1024);
}

async function takeIdentity(
  machine: Machine,
  agent: AgentClient,
  { bootTimeoutMs }: BootPlan,
): Promise<void> {
  const ms = Math.min(agent.deadlines.replyMs, bootTimeoutMs * answerShare);
  const identity = { entropy: randomBytes(64), realtimeNs: wallClock, ...guestIdentity("forkd-parent") };
  try {
    await orDeath(machine, agent.afterFork(identity, ms));
  } catch (error) {
    const isSilent = error instanceof AppError && error.code === "agent_unreachable" && !agent.isClosed;
    if (!isSilent) throw error;
    const text = `The parent did not answer within ${Math.round(ms / 1000)} s after it had booted`;
    throw new SilentParent(text);
  }
}

/** Waits for `work`. If the machine exits first, throws why. */
export async function orDeath<T>(machine: Machine, work: Promise<T>): Promise<T> {
  const died = machine.exited.then((reason): never => {
    throw new AppError("engine_failed", `The parent ended: ${reason.text}`, {
      details: { reason: reason.text, log: reason.log, console: reason.console },
    });
  });
  died.catch(() => undefined);
  work.catch(() => undefined);
  try {
    return await Promise.race([work, died]);
  } catch (error) {
    // The agent's connection closes a moment before the process exits, and the exit says why.
    if (error instanceof AppError && error.code === "agent_unreachable") {
      await Promise.race([died, new Promise((resolve) => setTimeout(resolve, 300))]);
    }
    throw error;
  }
}
