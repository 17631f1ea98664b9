/**
 * Boots the stock kernel with our initramfs and no disk: the agent reports that there is no root and resets,
 * which proves that kernel and user space run on this accelerator.
 */
import { mkdir, open } from "node:fs/promises";
import { join } from "node:path";
import { errorMessage, toAppError, type Accelerator } from "@forkd/contract";
import { removeTree, withDeadline, type Logger } from "@forkd/base";
import { ensureInitramfs, ensureKernel, ImageLease } from "@forkd/image";
import { createOverlay, kernelCommandLine, shapeOf, type Engine } from "@forkd/machine";
import { agentPath, imagesDir, type RuntimeConfig } from "../config.ts";
import { newSandboxId, sandboxHome, sandboxPaths } from "../sandbox/paths.ts";

const probeMs = 20_000;
const memoryMib = 128;

/**
 * Why the accelerator does not run guests, or undefined if it does. Throws if the probe itself cannot run.
 */
export async function probeBoot(options: {
  config: RuntimeConfig;
  engine: Engine;
  tscKhz: number;
  accelerator: Accelerator;
  log: Logger;
  deadlineMs?: number;
  /** ids in use, if a runtime is open, so that the probe is not taken for a stray */
  places?: Set<string>;
}): Promise<string | undefined> {
  const { config, engine, accelerator, log, deadlineMs = probeMs } = options;
  // Named like a sandbox, so that cleanup finds what a killed daemon left of it.
  const id = newSandboxId();
  options.places?.add(id);
  const home = sandboxHome(config, id);
  const { dir, socketDir, overlay, consolePath, logPath } = sandboxPaths(config, id, 0);
  try {
    const imageDir = imagesDir(config);
    using lease = new ImageLease();
    const kernel = await ensureKernel(imageDir, { lease });
    const initramfs = await ensureInitramfs(
      imageDir,
      { agentPath: agentPath(config), modulesDir: kernel.modulesDir },
      { lease },
    );
    await mkdir(dir, { mode: 0o700, recursive: true });
    await mkdir(socketDir, { mode: 0o700, recursive: true });
    const memoryFile = join(dir, "memory");
    await using memory = await open(memoryFile, "w", 0o600);
    await memory.truncate(memoryMib * 1024 * 1024);
    await createOverlay(overlay, 1 << 20);
    await using machine = await engine.boot(
      {
        shape: shapeOf({ vcpus: 1, memoryMib, accelerator }),
        place: { socketDir, consolePath, logPath },
        memoryFile,
        disk: { overlay, backing: [] },
        kernel: {
          path: kernel.path,
          initramfs: initramfs.path,
          commandLine: kernelCommandLine(accelerator, options.tscKhz),
        },
      },
      {},
    );
    const late = () => new Error(`a guest did not boot within ${deadlineMs} ms`);
    const end = await withDeadline(machine.exited, deadlineMs, late);
    return end.console.includes("forkd: boot failed") ? undefined : `a guest did not boot: ${end.text}`;
  } catch (error) {
    log.warn({ event: "probe", accelerator, error });
    const failure = toAppError(error);
    if (failure.code === "disk_full") throw failure;
    return errorMessage(error);
  } finally {
    await removeTree(home.socketDir);
    await removeTree(home.dir);
    options.places?.delete(id);
  }
}
