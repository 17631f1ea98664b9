/** A cold boot on the same engine: kernel to user space, start Python, import numpy, print. */
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { ensureInitramfs, ensureKernel } from "@forkd/image";
import { AgentClient, createOverlay, QemuEngine, shapeOf } from "@forkd/machine";
import { manifestSchema } from "@forkd/store";
import { dataDir, repository } from "./daemon.ts";

export async function coldBoot(snapshotDir: string, answer: string): Promise<number> {
  const manifest = manifestSchema.parse(JSON.parse(readFileSync(join(snapshotDir, "manifest.json"), "utf8")));
  const images = join(dataDir, "images");
  const kernel = await ensureKernel(images);
  const initramfs = await ensureInitramfs(images, {
    agentPath: join(repository, "guest/build/forkd-agent"),
    modulesDir: kernel.modulesDir,
  });
  const engine = await QemuEngine.open("qemu-system-x86_64");
  const dir = mkdtempSync("/tmp/forkd-cold-");
  try {
    const { machine: shape, files } = manifest;
    const memory = await open(join(dir, "memory"), "w");
    await memory.truncate(shape.memory_mib * 1024 * 1024);
    await memory.close();
    await createOverlay(join(dir, "disk.qcow2"), files.rootfs.bytes);
    const started = performance.now();
    await using machine = await engine.boot({
      shape: shapeOf({ vcpus: shape.vcpus, memoryMib: shape.memory_mib, accelerator: shape.accelerator }),
      place: { socketDir: dir, consolePath: join(dir, "console"), logPath: join(dir, "log") },
      memoryFile: join(dir, "memory"),
      disk: {
        overlay: join(dir, "disk.qcow2"),
        backing: [{ path: join(snapshotDir, "rootfs.ext4"), format: "raw" }],
      },
      kernel: { path: kernel.path, initramfs: initramfs.path, commandLine: manifest.kernel.command_line },
    });
    await using agent = AgentClient.open(machine.agentSocket, { atBoundary: true, helloTimeoutMs: 120_000 });
    await agent.ready;
    let text = "";
    const python = agent.start(
      { argv: ["python3", "-c", "import numpy; print(numpy.zeros(5).tolist())"] },
      { onOutput: ({ bytes }) => void (text += bytes.toString()) },
    );
    await python.exit;
    if (!text.includes(answer)) throw new Error(`The cold guest did not answer: ${text}`);
    return performance.now() - started;
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}
