/**
 * The floor: the QEMU steps that the daemon takes for a child, by a bare script. The guest does what it does
 * for the daemon: identity, clock, entropy, network, re-seed with the variables of a child, then one eval. There
 * is no HTTP, no record, no registry, no check and no pool; and no jail, so that the back end of the network
 * device is connected to nothing and QEMU opens its files as its user. The bytes for the agent and the kernel
 * come from the clients of `@forkd/machine`, so the script speaks the protocol that the guest speaks.
 */
import { spawn } from "node:child_process";
import { randomBytes, randomUUID } from "node:crypto";
import { once } from "node:events";
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Scope } from "@forkd/base";
import { AgentClient, createOverlay, KernelClient, restoreArgs, shapeOf } from "@forkd/machine";
import { readSnapshot, snapshotDisks, snapshotFile, type StoredSnapshot } from "@forkd/store";
import { deadline, limits, stop } from "./deadline.ts";
import { answer, code, inParallel } from "./turns.ts";

function argsOf(snapshot: StoredSnapshot, place: string, overlay: string): string[] {
  const { manifest } = snapshot;
  const { vcpus, memory_mib: memoryMib, accelerator } = manifest.machine;
  const disks = snapshotDisks(snapshot).map((path) => ({ path, format: "qcow2" as const }));
  const args = restoreArgs(
    {
      shape: shapeOf({ vcpus, memoryMib, accelerator }),
      place: { socketDir: place, consolePath: join(place, "console"), logPath: join(place, "log") },
      memoryFile: snapshotFile(snapshot, "memory"),
      disk: {
        overlay,
        backing: [...disks.reverse(), { path: snapshotFile(snapshot, "rootfs"), format: "raw" }],
      },
      deviceState: snapshotFile(snapshot, "devices"),
    },
    manifest.engine.version,
  );
  // Without the launcher, QEMU makes its sockets itself.
  return args.map((arg) =>
    arg
      .replace(/^(socket,id=agent),fd=\d+/, `$1,path=${place}/agent.sock`)
      .replace(/^(socket,id=qmp-again),fd=\d+/, `$1,path=${place}/qmp.sock`),
  );
}

/**
 * HELLO, AFTER_FORK, ATTACH and re-seed leave in one write, and the eval when they are answered: only then a
 * child is handed out.
 */
async function askGuest(socket: Socket, { manifest }: StoredSnapshot): Promise<void> {
  const [record] = manifest.kernels;
  if (!record) throw new Error("The snapshot has no kernel");
  await using agent = AgentClient.open(socket, { atBoundary: true, helloTimeoutMs: limits.guest * 1000 });
  const entropy = randomBytes(64);
  const realtimeNs = BigInt(Date.now()) * 1_000_000n;
  const id = `sb-${randomBytes(6).toString("hex")}`;
  const prepared = agent.afterFork({
    entropy,
    realtimeNs,
    hostname: id,
    machineId: randomBytes(16).toString("hex"),
    bootId: randomUUID(),
    network: "up",
    skipConnections: manifest.origin.kind === "build",
  });
  const kernel = KernelClient.attach(agent, {
    processId: record.process_id,
    offsets: record.offsets,
    nextEvalId: record.next_id,
    unanswered: record.unanswered,
  });
  const seeded = kernel.afterFork(randomBytes(64), {
    ...manifest.env,
    FORKD_INDEX: "0",
    FORKD_SANDBOX_ID: id,
  });
  await Promise.all([agent.ready, prepared, seeded]);
  agent.setClock(() => BigInt(Date.now()) * 1_000_000n).catch(() => undefined);
  const { text } = await kernel.evaluate({ code, context: "default" });
  if (text !== answer) throw new Error(`The guest answered "${text}" instead of "${answer}"`);
}

type StartedQemu = {
  /** of the agent; the guest finds what was written before it runs */
  socket: Socket;
  /** rejects when QEMU exits */
  ended: Promise<never>;
  /** loads the state; the guest runs */
  go: () => void;
};

async function startQemu(snapshot: StoredSnapshot, place: string, scope: Scope): Promise<StartedQemu> {
  mkdirSync(place);
  const overlay = join(place, "disk.qcow2");
  await createOverlay(overlay, snapshot.manifest.files.rootfs.bytes);
  const devices = openSync(snapshotFile(snapshot, "devices"), "r");
  const log = openSync(join(place, "log"), "a");
  const qemu = spawn("qemu-system-x86_64", argsOf(snapshot, place, overlay), {
    stdio: ["ignore", "ignore", log, "pipe", devices],
  });
  scope.defer(() => stop("a killed QEMU", qemu, { signal: "SIGKILL", secs: limits.guest }));
  for (const descriptor of [devices, log]) closeSync(descriptor);
  const ended = once(qemu, "exit").then(() => {
    throw new Error(`QEMU exited: ${readFileSync(join(place, "log"), "utf8").slice(-1000)}`);
  });
  ended.catch(() => undefined);
  const qmp = qemu.stdio[3] as Socket;
  qmp.on("error", () => undefined);
  await deadline("the greeting of QEMU", limits.guest, Promise.race([once(qmp, "data"), ended]));
  return {
    socket: connect(join(place, "agent.sock")),
    ended,
    go: () => {
      qmp.resume();
      qmp.write(
        '{"execute":"qmp_capabilities"}\n{"execute":"migrate-incoming","arguments":{"uri":"fd:4"}}\n',
      );
    },
  };
}

async function startChild(snapshot: StoredSnapshot, place: string, scope: Scope): Promise<void> {
  const { socket, ended, go } = await startQemu(snapshot, place, scope);
  const answered = askGuest(socket, snapshot);
  go();
  await deadline("a guest of the floor to answer an eval", limits.guest, Promise.race([answered, ended]));
}

/** A guest without a daemon: only the agent's protocol is between it and the work. */
export async function withBareGuest(
  snapshotDir: string,
  work: (agent: AgentClient) => Promise<void>,
): Promise<void> {
  const snapshot = await readSnapshot(snapshotDir, "bare");
  await using scope = new Scope();
  const dir = mkdtempSync(join(tmpdir(), "forkd-bare-"));
  scope.defer(() => rmSync(dir, { recursive: true, force: true }));
  const { socket, ended, go } = await startQemu(snapshot, join(dir, "0"), scope);
  await using agent = AgentClient.open(socket, { atBoundary: true, helloTimeoutMs: limits.guest * 1000 });
  const identity = {
    entropy: randomBytes(64),
    realtimeNs: BigInt(Date.now()) * 1_000_000n,
    hostname: "bare",
  };
  const prepared = agent.afterFork(identity);
  go();
  await deadline("a guest without a daemon to answer", limits.guest, Promise.race([prepared, ended]));
  await deadline("the work in a guest without a daemon", limits.build, Promise.race([work(agent), ended]));
}

/** Wall time until all `n` have answered, in ms. */
export async function floor(snapshotDir: string, counts: { n: number; parallel: number }): Promise<number> {
  const snapshot = await readSnapshot(snapshotDir, "floor");
  await using scope = new Scope();
  const dir = mkdtempSync(join(tmpdir(), "forkd-floor-"));
  scope.defer(() => rmSync(dir, { recursive: true, force: true }));
  const started = performance.now();
  await inParallel(counts, (index) => startChild(snapshot, join(dir, String(index)), scope));
  return performance.now() - started;
}
