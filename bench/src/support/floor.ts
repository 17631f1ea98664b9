/**
 * The floor: the same QEMU steps for a child as the daemon takes, by a bare script. No HTTP, no records, no registry, no
 * checks; one prepared device state, one write to the agent, one answer awaited.
 */
import { spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { closeSync, mkdirSync, mkdtempSync, openSync, readFileSync, rmSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import { mapPool } from "@forkd/base";
import { createOverlay, restoreArgs, shapeOf } from "@forkd/machine";
import { manifestSchema, type Manifest } from "@forkd/store";

type Wire = { agent: Buffer; answered: (data: Buffer) => boolean };

function field(key: number, value: Buffer): Buffer {
  const head = Buffer.alloc(5);
  head[0] = key;
  head.writeUInt32LE(value.length, 1);
  return Buffer.concat([head, value]);
}

function frame(type: number, id: number, ...parts: Buffer[]): Buffer {
  const payload = Buffer.concat(parts);
  const head = Buffer.alloc(16);
  head.writeUInt16BE(0xf04b, 0);
  head[2] = 1;
  head[3] = type;
  head.writeUInt32LE(id, 4);
  head.writeUInt32LE(payload.length, 8);
  head.writeUInt32LE(
    (head.readUInt32LE(0) ^ head.readUInt32LE(4) ^ head.readUInt32LE(8) ^ 0x464b4431) >>> 0,
    12,
  );
  return Buffer.concat([head, payload]);
}

function kernelMessage(type: string, id: number, ...parts: Buffer[]): Buffer {
  const payload = Buffer.concat([u32(id), ...parts]);
  return Buffer.concat([Buffer.from(type), u32(payload.length), payload]);
}

function u16(value: number): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16LE(value);
  return bytes;
}
function u32(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}
function u64(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

/** HELLO, AFTER_FORK, ATTACH, re-seed and eval in one write; the answer is recognised by its text. */
function wire(manifest: Manifest, code: string, answer: string): Wire {
  const kernel = manifest.kernels[0];
  if (!kernel) throw new Error("The snapshot has no kernel");
  const entropy = randomBytes(64);
  const now = u64(Date.now() * 1e6);
  const credit = u32(262144);
  const offsets = kernel.offsets.flatMap((offset) => [u64(offset), credit]);
  const seed = kernelMessage(
    "R",
    kernel.next_id,
    u16(entropy.length),
    entropy,
    Buffer.from("FORKD_INDEX=0\0"),
  );
  const context = Buffer.from("default");
  const evaluate = kernelMessage("E", kernel.next_id + 1, u16(context.length), context, Buffer.from(code));
  const agent = Buffer.concat([
    frame(0x01, 0, field(1, randomBytes(16))),
    frame(0x20, 0x7fff0001, field(1, entropy), field(2, now), field(3, Buffer.from("floor"))),
    frame(0x16, kernel.process_id, ...offsets),
    frame(0x11, kernel.process_id, Buffer.from([3]), seed),
    frame(0x11, kernel.process_id, Buffer.from([3]), evaluate),
  ]);
  return { agent, answered: (data) => data.includes(answer) };
}

async function child(
  snapshotDir: string,
  manifest: Manifest,
  place: string,
  code: string,
  answer: string,
): Promise<() => void> {
  mkdirSync(place);
  const overlay = join(place, "disk.qcow2");
  await createOverlay(overlay, manifest.files.rootfs.bytes);
  const args = restoreArgs({
    shape: shapeOf({
      vcpus: manifest.machine.vcpus,
      memoryMib: manifest.machine.memory_mib,
      accelerator: manifest.machine.accelerator,
    }),
    place: { socketDir: place, consolePath: join(place, "console"), logPath: join(place, "log") },
    memoryFile: join(snapshotDir, "memory"),
    disk: {
      overlay,
      backing: [
        { path: join(snapshotDir, "disk-0.qcow2"), format: "qcow2" },
        { path: join(snapshotDir, "rootfs.ext4"), format: "raw" },
      ],
    },
    deviceState: join(snapshotDir, "devices"),
  });
  const devices = openSync(join(snapshotDir, "devices"), "r");
  const qemu = spawn("qemu-system-x86_64", args, { stdio: ["ignore", "ignore", "ignore", "pipe", devices] });
  closeSync(devices);
  const qmp = qemu.stdio[3] as import("node:net").Socket;
  qmp.on("error", () => undefined);
  await new Promise<void>((resolve) => qmp.once("data", () => resolve()));
  const { agent, answered } = wire(manifest, code, answer);
  const socket = connect(join(place, "agent.sock"));
  socket.on("error", () => undefined);
  socket.write(agent);
  qmp.resume();
  qmp.write('{"execute":"qmp_capabilities"}\n{"execute":"migrate-incoming","arguments":{"uri":"fd:4"}}\n');
  await new Promise<void>((resolve) => {
    let seen = Buffer.alloc(0);
    socket.on("data", (data: Buffer) => {
      seen = Buffer.concat([seen, data]);
      if (answered(seen)) resolve();
    });
  });
  return () => {
    socket.destroy();
    qemu.kill("SIGKILL");
  };
}

/** Wall time until all n have answered, in ms. */
export async function floor(
  snapshotDir: string,
  options: { n: number; parallel: number; code: string; answer: string },
): Promise<number> {
  const manifest = manifestSchema.parse(JSON.parse(readFileSync(join(snapshotDir, "manifest.json"), "utf8")));
  const dir = mkdtempSync("/tmp/forkd-floor-");
  const started = performance.now();
  const stops = await mapPool(Array.from({ length: options.n }), options.parallel, (_, index) =>
    child(snapshotDir, manifest, join(dir, String(index)), options.code, options.answer),
  );
  const wall = performance.now() - started;
  for (const stop of stops) stop();
  rmSync(dir, { recursive: true, force: true });
  return wall;
}
