/** A cold boot on the same engine: kernel to user space, start a program, wait for what it prints. */
import { mkdtempSync } from "node:fs";
import { open, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Scope } from "@forkd/base";
import { ensureInitramfs, ensureKernel } from "@forkd/image";
import { AgentClient, createOverlay, QemuEngine, shapeOf } from "@forkd/machine";
import { readSnapshot, snapshotFile } from "@forkd/store";
import { deadline, ended, limits } from "./deadline.ts";
import { repository } from "./run.ts";
import { answer } from "./turns.ts";

/**
 * Boots the root file system of a snapshot and runs `argv`; returns the time until it has answered, in ms.
 */
export async function coldBoot(
  { snapshotDir, argv }: { snapshotDir: string; argv: readonly string[] },
  images: string,
): Promise<number> {
  const snapshot = await readSnapshot(snapshotDir, "cold");
  const { machine: shape, files, kernel: recorded } = snapshot.manifest;
  const kernel = await deadline("the guest kernel", limits.command, ensureKernel(images));
  const agentPath = join(repository, "guest/build/forkd-agent");
  const packed = ensureInitramfs(images, { agentPath, modulesDir: kernel.modulesDir });
  const initramfs = await deadline("the initramfs", limits.command, packed);
  const engine = await deadline("the version of QEMU", limits.command, QemuEngine.open("qemu-system-x86_64"));
  await using scope = new Scope();
  const dir = mkdtempSync(join(tmpdir(), "forkd-cold-"));
  scope.defer(() => rm(dir, { recursive: true, force: true }));
  const memoryFile = join(dir, "memory");
  const memory = await open(memoryFile, "w");
  await memory.truncate(shape.memory_mib * 1024 * 1024);
  await memory.close();
  const overlay = join(dir, "disk.qcow2");
  await createOverlay(overlay, files.rootfs.bytes);
  const started = performance.now();
  const booting = engine.boot({
    shape: shapeOf({ vcpus: shape.vcpus, memoryMib: shape.memory_mib, accelerator: shape.accelerator }),
    place: { socketDir: dir, consolePath: join(dir, "console"), logPath: join(dir, "log") },
    memoryFile,
    disk: { overlay, backing: [{ path: snapshotFile(snapshot, "rootfs"), format: "raw" }] },
    kernel: { path: kernel.path, initramfs: initramfs.path, commandLine: recorded.command_line },
  });
  const machine = scope.use(await ended("QEMU to start", limits.guest, booting));
  const agent = scope.use(
    AgentClient.open(machine.agentSocket, { atBoundary: true, helloTimeoutMs: limits.guest * 1000 }),
  );
  await deadline("the agent of the cold guest", limits.guest, agent.ready);
  let text = "";
  const program = agent.start({ argv }, { onOutput: ({ bytes }) => void (text += bytes.toString()) });
  await deadline(`${argv[0]} in the cold guest`, limits.guest, program.exit);
  if (!text.includes(answer)) throw new Error(`The cold guest did not answer: ${text}`);
  return performance.now() - started;
}
