/**
 * The first step of a machine, which can run ahead of need: directories, a private disk, and a VMM process
 * that waits. A Scope owns what was made, so a failure leaves nothing of the machine.
 */
import { copyFile, link, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { AppError } from "@forkd/contract";
import { isErrno, removeTree, Scope, type Trace } from "@forkd/base";
import { createOverlay, shapeOf, type DiskLayer } from "@forkd/machine";
import {
  manifestName,
  snapshotDisks,
  snapshotFile,
  stampOf,
  type MemoryView,
  type StoredSnapshot,
} from "@forkd/store";
import { groupName } from "../admission/limits.ts";
import type { Runtime } from "../runtime.ts";
import { sandboxHome, sandboxPaths, type SandboxHome, type SandboxPaths } from "../sandbox/paths.ts";
import type { MappedImage } from "../sandbox/record.ts";
import type { PreparedLaunch } from "./prepared.ts";

/** Makes the directories that a sandbox keeps for its whole life. The scope removes them. */
export async function makeHome(
  runtime: Pick<Runtime, "config" | "places">,
  id: string,
  scope: Scope,
): Promise<SandboxHome> {
  const home = claimHome(runtime, id, scope);
  await mkdir(home.dir, { mode: 0o700 });
  // The runtime directory may have been removed.
  await mkdir(home.socketDir, { mode: 0o700, recursive: true });
  return home;
}

/** Marks the directories of a sandbox as in use. The scope removes them. */
export function claimHome(
  runtime: Pick<Runtime, "config" | "places">,
  id: string,
  scope: Scope,
): SandboxHome {
  const home = sandboxHome(runtime.config, id);
  runtime.places.add(id);
  scope.defer(() => void runtime.places.delete(id));
  scope.defer(() => removeTree(home.dir));
  scope.defer(() => removeTree(home.socketDir));
  return home;
}

/** Makes the directories of one machine. The scope removes them. */
export async function makePlace(
  runtime: Pick<Runtime, "config">,
  id: string,
  number: number,
  scope: Scope,
): Promise<SandboxPaths> {
  const paths = sandboxPaths(runtime.config, id, number);
  scope.defer(() => removeTree(paths.dir));
  await mkdir(paths.dir, { mode: 0o700 });
  scope.defer(() => removeTree(paths.socketDir));
  // The runtime directory may have been emptied since the home was made.
  await mkdir(paths.socketDir, { mode: 0o700, recursive: true });
  return paths;
}

/** The snapshot's disk as a machine sees it below its own overlay, nearest first. */
function backingOf(snapshot: StoredSnapshot): DiskLayer[] {
  const layers = snapshotDisks(snapshot).map((path): DiskLayer => ({ path, format: "qcow2" }));
  return [...layers.reverse(), { path: snapshotFile(snapshot, "rootfs"), format: "raw" }];
}

/** Keeps the manifest beside the machine: a restarted daemon needs it even if the snapshot was removed. */
async function keepManifest(snapshot: StoredSnapshot, dir: string): Promise<void> {
  const [from, to] = [join(snapshot.dir, manifestName), join(dir, manifestName)];
  try {
    await link(from, to);
  } catch (error) {
    if (!isErrno(error, "EXDEV", "EPERM", "EMLINK")) throw error;
    await copyFile(from, to);
  }
}

export async function prepareMachine(
  runtime: Pick<Runtime, "config" | "engine" | "images" | "network" | "store">,
  {
    id,
    number,
    snapshot,
    isBackground = false,
    trace,
  }: {
    id: string;
    number: number;
    snapshot: StoredSnapshot;
    isBackground?: boolean;
    trace?: Trace | undefined;
  },
  signal?: AbortSignal,
): Promise<PreparedLaunch> {
  await using scope = new Scope();
  const { manifest } = snapshot;
  scope.defer(runtime.images.hold(snapshot.id));
  const views = runtime.engine.capabilities.memoryViews;
  const memory = await runtime.store.childMemory(snapshot, { views, signal });
  const paths = await makePlace(runtime, id, number, scope);
  await createOverlay(paths.overlay, manifest.files.rootfs.bytes);
  await keepManifest(snapshot, paths.dir);
  trace?.mark("files");
  const image = manifest.files.layer ? await mappedImage(memory) : undefined;
  const machine = scope.use(
    await runtime.engine.prepare(
      {
        shape: shapeOf({
          vcpus: manifest.machine.vcpus,
          memoryMib: manifest.machine.memory_mib,
          accelerator: manifest.machine.accelerator,
        }),
        place: { socketDir: paths.socketDir, consolePath: paths.consolePath, logPath: paths.logPath },
        memoryFile: memory.path,
        viewedFiles: memory.view?.files,
        disk: { overlay: paths.overlay, backing: backingOf(snapshot) },
        deviceState: snapshotFile(snapshot, "devices"),
        spareSlirp: manifest.machine.slirp === true,
        isBackground,
      },
      { signal, trace },
    ),
  );
  const slot = runtime.network.slot(groupName(id, number), machine);
  scope.defer(() => slot[Symbol.dispose]());
  // The VMM has opened every file. If the tag was replaced in between, the files may belong to two snapshots.
  if (!(await runtime.store.isCurrent(snapshot))) {
    throw new AppError("wrong_state", `Cannot fork snapshot "${snapshot.tag}": it was replaced meanwhile`, {
      remedy: { action: "fork_another", tag: snapshot.tag },
    });
  }
  trace?.mark("prepared");
  return { id, number, snapshot, paths, machine, slot, image, scope: scope.keep() };
}

async function mappedImage(memory: { path: string; view?: MemoryView }): Promise<MappedImage | undefined> {
  const stamp = memory.view?.stamp ?? (await stampOf(memory.path));
  return stamp === undefined ? undefined : { stamp, view: memory.view?.name };
}
