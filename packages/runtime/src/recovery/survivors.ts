/**
 * The sandboxes that an earlier daemon left on purpose: their records, and which of their machines run.
 * Changes nothing.
 */
import { join } from "node:path";
import { AppError, toAppError } from "@forkd/contract";
import { isErrno } from "@forkd/base";
import { commandLine, hostBootId, isAlive, lastWords, tailOf, type ProcessId } from "@forkd/machine";
import { manifestName, readSnapshot, type StoredSnapshot } from "@forkd/store";
import { snapshotsDir, type RuntimeConfig } from "../config.ts";
import type { Loss } from "../sandbox/exit-reason.ts";
import { sandboxHome, sandboxIds, sandboxPaths, type SandboxPaths } from "../sandbox/paths.ts";
import type { Claim } from "./strays.ts";
import { vmmOf } from "./vmm-command-line.ts";
import { foreign, readRecord, savedDir, type MachineRecord, type SandboxRecord } from "../sandbox/record.ts";

export type LiveMachine = {
  record: MachineRecord;
  process: ProcessId;
  paths: SandboxPaths;
  /** what it started from; its files may have been removed */
  base: StoredSnapshot;
};

export type Survivor = { id: string } & (
  | { kind: "live"; record: SandboxRecord; machine: LiveMachine }
  /** no machine runs; `loss` is why, if the record names one */
  | { kind: "resting"; record: SandboxRecord; loss: Loss | undefined }
  | { kind: "damaged"; problem: AppError }
);
/** Whether the machine that a record names runs. */
type IsThere = (config: RuntimeConfig, id: string, machine: MachineRecord) => boolean;

/** Compares pid, start time and command line, so that a reused pid is not taken for the machine. */
export const isVmm: IsThere = (config, id, { number, pid, start_time: startTime }) => {
  const vmm = vmmOf(config, commandLine(pid));
  return isAlive({ pid, startTime }) && vmm?.id === id && vmm.number === number;
};

export class Survivors {
  readonly all: ReadonlyMap<string, Survivor>;

  constructor(all: readonly Survivor[]) {
    this.all = new Map(all.map((each) => [each.id, each]));
  }

  /** Throws `host_not_ready` if another daemon can read one of them and this one cannot. */
  static async find(config: RuntimeConfig, isThere: IsThere = isVmm): Promise<Survivors> {
    const found: Survivor[] = [];
    for (const id of await sandboxIds(config)) {
      const survivor = await look(config, id, isThere);
      if (survivor) found.push(survivor);
    }
    return new Survivors(found);
  }

  claim(id: string): Claim {
    const survivor = this.all.get(id);
    if (!survivor) return { hasRecord: false };
    if (survivor.kind !== "live") return { hasRecord: true };
    const { number, pid } = survivor.machine.record;
    return { hasRecord: true, machine: { number, pid } };
  }

  /** Stamps of what running machines map: of flat images by snapshot id, of views by name. */
  get mapped(): { images: Map<string, string>; views: Map<string, string> } {
    const [images, views] = [new Map<string, string>(), new Map<string, string>()];
    for (const survivor of this.all.values()) {
      if (survivor.kind !== "live") continue;
      const { record, base } = survivor.machine;
      if (record.image_stamp === undefined) continue;
      if (record.view === undefined) images.set(base.id, record.image_stamp);
      else views.set(record.view, record.image_stamp);
    }
    return { images, views };
  }
}

async function look(config: RuntimeConfig, id: string, isThere: IsThere): Promise<Survivor | undefined> {
  try {
    const record = await readRecord(sandboxHome(config, id));
    if (!record) return undefined;
    const { machine } = record;
    if (!machine) return { id, kind: "resting", record, loss: undefined };
    const process = { pid: machine.pid, startTime: machine.start_time };
    const paths = { ...sandboxPaths(config, id, machine.number), socketDir: machine.socket_dir };
    if (machine.host_boot_id !== hostBootId() || !isThere(config, id, machine))
      return { id, kind: "resting", record, loss: await lossOf(machine, paths) };
    return {
      id,
      kind: "live",
      record,
      machine: { record: machine, process, paths, base: await baseOf(config, id, machine, paths) },
    };
  } catch (error) {
    const problem = toAppError(error);
    if (problem.code === "host_not_ready") throw problem;
    return { id, kind: "damaged", problem };
  }
}

function manifestVersionIn(error: unknown): unknown {
  return error instanceof AppError ? error.details["manifest_version"] : undefined;
}

/** From the manifest that is kept in the machine's directory. */
async function baseOf(
  config: RuntimeConfig,
  id: string,
  { base }: MachineRecord,
  paths: SandboxPaths,
): Promise<StoredSnapshot> {
  const kept = await readSnapshot(paths.dir, base.tag).catch((error: unknown) => {
    const isForeign = isErrno(error, "EACCES", "EPERM") || manifestVersionIn(error) !== undefined;
    throw isForeign ? foreign(join(paths.dir, manifestName), toAppError(error).message) : error;
  });
  const dir =
    base.state === undefined
      ? join(snapshotsDir(config), base.tag)
      : savedDir(sandboxHome(config, id), base.state);
  return { ...kept, dir, stamp: base.stamp };
}

/** Why a machine that a record names does not run. */
async function lossOf(machine: MachineRecord, paths: SandboxPaths): Promise<Loss> {
  const [console, log] = await Promise.all([tailOf(paths.consolePath), tailOf(paths.logPath)]);
  if (machine.host_boot_id !== hostBootId()) return { reason: { text: "the host was restarted" }, console };
  const said = lastWords(console) ?? log.split("\n").at(-1);
  return { reason: { text: `VMM ended while no daemon ran${said ? `: ${said}` : ""}` }, console };
}
