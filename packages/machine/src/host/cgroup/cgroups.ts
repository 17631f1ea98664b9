/**
 * The control groups of one daemon, `<own group>/forkd-<digest of the data directory>/<name>`, in version 2 below the group that was
 * given for them, if one was. A daemon that comes later finds them by their names. Nothing outside is ever removed or written to.
 */
import { createHash } from "node:crypto";
import { accessSync, constants, existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { isErrno } from "@forkd/base";
import { errorMessage } from "@forkd/contract";
import { enable, takeDelegation, useGiven, type Delegation } from "./delegation.ts";
import { controllersOf, Group, type GroupLimits, type Places } from "./group.ts";
import { controllers, findPositions, type Controller, type Position, type Positions } from "./hierarchies.ts";

export type Support = { version: 1 | 2; dir: string } | { reason: string };

export type OpenOptions = {
  /** version 2: a group for machines alone, as a path that is seen from the group of this process; undefined: below that group itself */
  machinesGroup?: string | undefined;
  positions?: Positions;
  pid?: number;
};

export class Cgroups {
  /** what can be limited here; `dir` is the group of ours that holds those of the sandboxes */
  readonly support: Readonly<Record<Controller, Support>>;
  /** groups whose memory this process and its machines take from, with all above them */
  readonly #memory: readonly Position[];

  private constructor(support: Record<Controller, Support>, memory: readonly Position[]) {
    this.support = support;
    this.#memory = memory;
  }

  /** Nothing can be limited. */
  static none(reason: string): Cgroups {
    return new Cgroups({ memory: { reason }, cpu: { reason }, pids: { reason } }, []);
  }

  static open(
    dataDir: string,
    { machinesGroup, positions = findPositions(), pid = process.pid }: OpenOptions = {},
  ): Cgroups {
    const name = groupNameOf(dataDir);
    const second = controllers.filter((each) => versionOf(positions[each]) === 2);
    const [first] = second;
    const position = first && positions[first];
    const delegation =
      position && "dir" in position
        ? delegationOf(position, { pid, machinesGroup, wanted: second })
        : undefined;
    const supportOf = (controller: Controller): Support => {
      const at = positions[controller];
      if ("reason" in at) return at;
      if (at.version === 2) {
        if (!delegation?.enabled.includes(controller)) return { reason: delegation?.reason ?? "unknown" };
        return enabledBelow(join(delegation.dir, name), controller);
      }
      try {
        accessSync(at.dir, constants.W_OK);
        return { version: 1, dir: join(at.dir, name) };
      } catch (error) {
        if (!isErrno(error, "EACCES", "EPERM", "EROFS", "ENOENT")) throw error;
        return { reason: `the group ${at.dir} cannot be written to by this user` };
      }
    };
    const support = { memory: supportOf("memory"), cpu: supportOf("cpu"), pids: supportOf("pids") };
    const { memory } = positions;
    if (!("dir" in memory)) return new Cgroups(support, []);
    const machines: Position[] =
      memory.version === 2 && delegation ? [{ version: 2, dir: delegation.dir }] : [];
    return new Cgroups(support, [memory, ...machines].flatMap(withThoseAbove));
  }

  /** A group with these limits; the caller disposes of it when its processes have ended. */
  create(name: string, limits: GroupLimits): Group {
    const places: Places = {};
    for (const controller of controllersOf(limits)) {
      const support = this.support[controller];
      if ("reason" in support) throw new Error(`Cannot limit ${controller}: ${support.reason}`);
      places[controller] = { version: support.version, dir: join(support.dir, name) };
    }
    const group = new Group(name, places);
    try {
      group.make();
      group.limit(limits);
    } catch (error) {
      group[Symbol.asyncDispose]().catch(() => undefined);
      throw error;
    }
    return group;
  }

  /** The group of that name, if there is one: one that an earlier daemon made. */
  adopt(name: string): Group | undefined {
    const places: Places = {};
    for (const controller of controllers) {
      const support = this.support[controller];
      if ("dir" in support && existsSync(join(support.dir, name)))
        places[controller] = { version: support.version, dir: join(support.dir, name) };
    }
    return Object.keys(places).length === 0 ? undefined : new Group(name, places);
  }

  /** Names of all groups of ours. */
  list(): string[] {
    return [...new Set(this.#tops().flatMap((dir) => this.#names(dir)))];
  }

  /** Bytes that this process and its machines may still take by the limits of their groups; undefined if there is none. */
  headroom(): number | undefined {
    const rooms = this.#memory.flatMap((each) => headroomIn(each) ?? []);
    return rooms.length === 0 ? undefined : Math.min(...rooms);
  }

  /** Removes our group where it is empty; the groups of sandboxes that live on keep theirs. */
  close(): void {
    for (const dir of this.#tops()) {
      try {
        rmdirSync(dir);
      } catch (error) {
        if (!isErrno(error, "ENOENT", "EBUSY", "ENOTEMPTY", "EACCES", "EPERM")) throw error;
      }
    }
  }

  #tops(): string[] {
    const dirs = controllers
      .map((each) => this.support[each])
      .flatMap((each) => ("dir" in each ? [each.dir] : []));
    return [...new Set(dirs)];
  }

  #names(dir: string): string[] {
    try {
      return readdirSync(dir, { withFileTypes: true })
        .filter((entry) => entry.isDirectory())
        .map((entry) => entry.name);
    } catch (error) {
      if (isErrno(error, "ENOENT")) return [];
      throw error;
    }
  }
}

/** Name of the group of the daemon that uses a data directory. */
export function groupNameOf(dataDir: string): string {
  return `forkd-${createHash("sha256").update(dataDir).digest("hex").slice(0, 12)}`;
}

function versionOf(position: Positions[Controller]): number | undefined {
  return "version" in position ? position.version : undefined;
}

/** A host that shows its groups in a way that we do not know has no limits, but it has sandboxes. */
function delegationOf(
  position: Position,
  {
    pid,
    machinesGroup,
    wanted,
  }: { pid: number; machinesGroup: string | undefined; wanted: readonly Controller[] },
): Delegation {
  try {
    return machinesGroup === undefined
      ? takeDelegation(position, pid, wanted)
      : useGiven(position, machinesGroup, wanted);
  } catch (error) {
    const why = errorMessage(error);
    return { dir: position.dir, enabled: [], reason: `the group ${position.dir} cannot be used: ${why}` };
  }
}

/** Our group has no processes either; its own groups are to have the controller. */
function enabledBelow(dir: string, controller: Controller): Support {
  mkdirSync(dir, { recursive: true });
  const { enabled, reason } = enable(dir, [controller]);
  return enabled.includes(controller) ? { version: 2, dir } : { reason };
}

/** A group has at most what those above it have. The top of the hierarchy has no limits, and above the mount there is no group. */
function withThoseAbove({ version, dir }: Position): Position[] {
  const isGroup = existsSync(join(dir, "cgroup.procs"));
  return isGroup ? [{ version, dir }, ...withThoseAbove({ version, dir: dirname(dir) })] : [];
}

function headroomIn({ dir, version }: Position): number | undefined {
  const [max, current] =
    version === 2 ? ["memory.max", "memory.current"] : ["memory.limit_in_bytes", "memory.usage_in_bytes"];
  try {
    const limit = Number(readFileSync(join(dir, max), "utf8"));
    // "max", or the largest number that there is.
    if (!Number.isFinite(limit) || limit > 2 ** 60) return undefined;
    // Files that were read can be dropped.
    const stat = readFileSync(join(dir, "memory.stat"), "utf8");
    const names =
      version === 2 ? ["inactive_file", "active_file"] : ["total_inactive_file", "total_active_file"];
    const cached = names.map((name) => Number(new RegExp(`^${name} (\\d+)$`, "m").exec(stat)?.[1] ?? 0));
    const used = Number(readFileSync(join(dir, current), "utf8"));
    return limit - used + cached.reduce((sum, bytes) => sum + bytes, 0);
  } catch (error) {
    if (isErrno(error, "ENOENT", "EACCES")) return undefined;
    throw error;
  }
}
