/** Composition root: settings → Runtime, after what an earlier daemon left has been adopted or removed. */
import { mkdir, realpath } from "node:fs/promises";
import { join } from "node:path";
import { AppError } from "@forkd/contract";
import type { Logger } from "@forkd/base";
import { Cgroups, chooseAccelerator, measureTscKhz, QemuEngine } from "@forkd/machine";
import { Store } from "@forkd/store";
import { agentPath, snapshotsDir, type RuntimeConfig } from "./config.ts";
import { probeBoot } from "./doctor/probe.ts";
import { restoreSandboxes } from "./recovery/adopt.ts";
import { refuseMovedData } from "./recovery/moved-data.ts";
import { removeStrayGroups } from "./recovery/stray-groups.ts";
import { reapStrays } from "./recovery/strays.ts";
import { Survivors } from "./recovery/survivors.ts";
import { Runtime } from "./runtime.ts";
import { ImageRefs } from "./snapshots/image-refs.ts";

/** Unix socket addresses have 108 bytes; the longest name below the runtime directory takes the rest. */
const maxRuntimeDirLength = 60;

export function openStore(
  config: RuntimeConfig,
  images: ImageRefs,
  log: Logger,
  mappedImages: ReadonlyMap<string, string> = new Map(),
): Promise<Store> {
  return Store.open(snapshotsDir(config), {
    mappedImages,
    cacheDir: join(config.dataDir, "cache", "memory"),
    cacheLimits: {
      maxBytes: config.memoryCacheMib * 1024 * 1024,
      isUsed: (id) => images.isHeld(id),
    },
    log,
  });
}

/** The caller owns the data directory: no other daemon uses it. */
export async function openRuntime(given: RuntimeConfig, log: Logger): Promise<Runtime> {
  const config = { ...given };
  if (config.runtimeDir.length > maxRuntimeDirLength) {
    throw new AppError(
      "invalid_request",
      `Cannot use runtime directory "${config.runtimeDir}": sockets need a path of at most ${maxRuntimeDirLength} characters`,
      { remedy: { action: "change_setting", setting: "runtime_dir", to: "a shorter path" } },
    );
  }
  for (const dir of [config.dataDir, join(config.dataDir, "sandboxes"), config.runtimeDir]) {
    await mkdir(dir, { recursive: true, mode: 0o700 });
  }
  // Machines are found by the paths that they were given, so those must be the same whichever way we came.
  config.dataDir = await realpath(config.dataDir);
  await refuseMovedData(config);
  const survivors = await Survivors.find(config);
  await reapStrays(config, log, (id) => survivors.claim(id));
  const cgroups = Cgroups.open(config.dataDir, { machinesGroup: config.machinesGroup });
  const images = new ImageRefs();
  const [engine, store, tscKhz] = await Promise.all([
    QemuEngine.open(config.qemuPath),
    openStore(config, images, log, survivors.mappedImages),
    measureTscKhz(agentPath(config)),
  ]);
  const accelerator = await chooseAccelerator(config.accelerator, (candidate) =>
    probeBoot({ config, engine, tscKhz, accelerator: candidate, log }),
  );
  log.info({ event: "runtime.open", accelerator, engine: engine.version, tscKhz });
  const runtime = new Runtime({ config, log, engine, store, accelerator, tscKhz, images, cgroups });
  await restoreSandboxes(runtime, survivors);
  await removeStrayGroups(cgroups, log, (id) => runtime.owns(id));
  return runtime;
}
