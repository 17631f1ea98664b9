/**
 * A running machine at one instant: memory, CPU, devices and disk.
 *
 *   arm, pre-copy, hold back input (guest runs) ─► stop ─► devices ─► memory, disk ─► devices again ─► (caller) cont
 *
 * Only input that QEMU still delivers can change a stopped machine. Such input moves the indices in the
 * device state, so two equal device states around the copy of memory prove that everything is from one
 * instant. If they differ, it is taken again.
 *
 * The machine is paused when takeInstant() returns; disposing the result resumes it. If takeInstant() throws,
 * the machine runs.
 */
import { mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import { AppError } from "@forkd/contract";
import { Scope, within } from "@forkd/base";
import { createOverlay, type DiskLayer, type PageCapture, type PausedMachine } from "@forkd/machine";
import type { Draft } from "@forkd/store";
import { startEnded } from "../guest/restart-kernel.ts";
import { recordKernel } from "../launch/warm-kernel.ts";
import type { Runtime } from "../runtime.ts";
import type { SandboxMachine } from "../sandbox/sandbox-machine.ts";
import { correctClock } from "./guest-clock.ts";
import { Instant } from "./instant.ts";
import { Stopwatch } from "./stopwatch.ts";

const maxAttempts = 20;
const quietMs = 3000;
const goneMs = 1000;
/** after this time it is worth to copy again before the stop */
const staleMs = 20;
/** it has a few hundred KiB */
const maxDeviceBytes = 64 << 20;

export async function takeInstant(
  runtime: Pick<Runtime, "config" | "log">,
  source: SandboxMachine,
  draft: Draft,
  options: { direct: boolean; signal?: AbortSignal | undefined },
): Promise<Instant> {
  const { machine } = source;
  // A kernel that has ended or is still starting would be missing in the children.
  startEnded(source);
  await kernelsStarted(runtime, source, options.signal);
  // The device states are written there, and the runtime directory may have been emptied.
  await mkdir(source.paths.socketDir, { mode: 0o700, recursive: true });
  await using armed = new Scope();
  await machine.prepareFreeze(() => newOverlay(source));
  // Linked before the pause: the snapshot keeps them whatever happens to the source, and the pause does not
  // wait for a disk.
  const ahead = qcow2Of(machine.disk);
  const isLinked = await Promise.all(ahead.map((path, index) => draft.link(draft.diskPath(index), path)));
  const capture = armed.use(
    await machine.armCapture({
      layerPath: draft.path("layer"),
      direct: options.direct,
      signal: options.signal,
    }),
  );
  const running = new Stopwatch();
  await capture.precopy();
  running.lap("precopy");
  await using stopped = new Scope();
  const resumed: { instant?: Instant } = {};
  // Runs last, when the machine runs and the connection is free again.
  stopped.defer(() => {
    const stall = correctClock(source.agent);
    if (resumed.instant) resumed.instant.stall = stall;
  });
  const { held, isQuiet } = await quiesce(source);
  stopped.defer(() => held[Symbol.dispose]());
  running.lap("quiesce");
  // A guest that took its time to answer has written meanwhile.
  if ((running.laps["quiesce"] ?? 0) > staleMs) await capture.precopy({ brief: true });
  running.lap("precopy");
  options.signal?.throwIfAborted();
  const clock = new Stopwatch();
  const paused = await machine.pause();
  stopped.defer(() => orGone(source, paused[Symbol.asyncDispose]()));
  clock.lap("stop");
  const taken = await takeUntilStable(runtime, { source, paused, capture, clock });
  const usable = [...source.kernels.values()].filter(({ client }) => !client.dead && !client.isSending);
  armed.keep();
  resumed.instant = new Instant({
    capture,
    pages: taken.pages,
    kernels: usable.map(recordKernel),
    atBoundary: isQuiet,
    devices: taken.devices,
    disks: qcow2Of(taken.disk),
    isLinked,
    timings: { ...running.laps, ...clock.laps },
    paused: stopped.keep(),
    stoppedAt: clock.startedAt,
  });
  return resumed.instant;
}

/** The VMM can write anything to the file, also while it is read. */
async function readDevices(path: string): Promise<Buffer> {
  await using file = await open(path, "r");
  const { size } = await file.stat();
  if (size > maxDeviceBytes)
    throw new AppError("engine_failed", `The device state has ${size} bytes, more than ${maxDeviceBytes}`);
  const { buffer, bytesRead } = await file.read(Buffer.alloc(size), 0, size, 0);
  return buffer.subarray(0, bytesRead);
}

/** Takes memory and disk until the device states before and after are equal. */
async function takeUntilStable(
  { log }: Pick<Runtime, "log">,
  parts: { source: SandboxMachine; paused: PausedMachine; capture: PageCapture; clock: Stopwatch },
): Promise<{ pages: number; disk: readonly DiskLayer[]; devices: Uint8Array }> {
  const { source, paused, capture, clock } = parts;
  const saveDevices = async (name: string) => {
    // The directory of the sockets is in memory on most hosts.
    const path = join(source.paths.socketDir, name);
    await paused.saveDevices(path);
    return path;
  };
  for (let attempt = 1; ; attempt++) {
    const saved = await saveDevices("devices-before");
    clock.lap("devices");
    const memory = bothSettled(capture.take(), readDevices(saved));
    const [[{ pages }, before], disk] = await bothSettled(memory, paused.freezeDisk());
    clock.lap("memory");
    const devices = await readDevices(await saveDevices("devices-after"));
    clock.lap("devices");
    if (before.equals(devices)) return { pages, disk, devices };
    log.debug({ event: "branch.retake", attempt });
    if (attempt === maxAttempts)
      throw new AppError("engine_failed", "The devices of the paused machine kept changing");
  }
}

/**
 * Waits for kernels that are starting, with a time limit: a kernel that never answers must not block a
 * capture.
 */
async function kernelsStarted(
  runtime: Pick<Runtime, "config">,
  { restarts }: SandboxMachine,
  signal: AbortSignal | undefined,
): Promise<void> {
  if (restarts.size === 0) return;
  const late = new AbortController();
  const timer = setTimeout(() => late.abort(), runtime.config.readyTimeoutMs);
  const either = signal ? AbortSignal.any([signal, late.signal]) : late.signal;
  try {
    const gaveUp = new Promise<void>((resolve) => {
      if (either.aborted) resolve();
      else either.addEventListener("abort", () => resolve(), { once: true });
    });
    await Promise.race([Promise.allSettled(restarts.values()), gaveUp]);
  } finally {
    clearTimeout(timer);
  }
  signal?.throwIfAborted();
}

/** Like Promise.all, but leaves nothing running in the background when one fails. */
async function bothSettled<A, B>(first: Promise<A>, second: Promise<B>): Promise<[A, B]> {
  await Promise.allSettled([first, second]);
  return [await first, await second];
}

/**
 * Waits until nothing is in flight to the guest: the agent has read everything, and no kernel has half a
 * message, which its children would wait to complete. A guest that does not answer is captured as it is; only
 * its own children are affected.
 */
async function quiesce({ agent, kernels }: SandboxMachine): Promise<{ held: Disposable; isQuiet: boolean }> {
  const late = new Promise<void>((resolve) => setTimeout(resolve, quietMs).unref());
  let isLate = false;
  void late.then(() => (isLate = true));
  for (;;) {
    const held = agent.hold();
    const isWhole = [...kernels.values()].every(({ client }) => client.dead || !client.isSending);
    const taken = held.taken.then(
      () => true,
      () => false,
    );
    const isQuiet = (await Promise.race([taken, late])) === true;
    if (isWhole || isLate) return { held, isQuiet };
    held[Symbol.dispose]();
  }
}

function qcow2Of(layers: readonly DiskLayer[]): string[] {
  return layers.filter(({ format }) => format === "qcow2").map(({ path }) => path);
}

/** A machine that has exited cannot be resumed, and that is not an error here. */
async function orGone(source: SandboxMachine, resumed: PromiseLike<void>): Promise<void> {
  try {
    await resumed;
  } catch (error) {
    if ((await within(source.machine.exited, goneMs)) === undefined) throw error;
  }
}

async function newOverlay(source: SandboxMachine): Promise<string> {
  const path = source.nextOverlayPath();
  await createOverlay(path, source.base.manifest.files.rootfs.bytes);
  return path;
}
