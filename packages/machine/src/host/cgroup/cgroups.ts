/**
 * The control groups of one daemon, `<own group>/forkd-<digest of the data directory>/<name>`; in version 2
 * below the machines group, if one is set. A later daemon finds them by name. Groups outside are never
 * written or removed.
 */
import { createHash } from "node:crypto";
import { accessSync, constants, existsSync, mkdirSync, readdirSync, readFileSync, rmdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { isErrno } from "@forkd/base";
import { errorMessage } from "@forkd/contract";
import { enable, takeDelegation, useGiven, type Delegation } from "./delegation.ts";
import { controllersOf, Group, type GroupLimits, type Places } from "./group.ts";
import { controllers, findPositions, type Controller, type Position, type Positions } from "./hierarchies.ts";

type Support = { version: 1 | 2; dir: string } | { reason: string };

type OpenOptions = {
  /** version 2: a group only for machines, relative to this process's group; default: that group itself */
  machinesGroup?: string | undefined;
  positions?: Positions;
  pid?: number;
};

export class Cgroups {
  /** which limits work here; `dir` is our group, the parent of the sandboxes' groups */
  readonly support: Readonly<Record<Controller, Support>>;
  /** groups whose memory limits apply to this process and its machines, with their ancestors */
  readonly #memory: readonly Position[];

  private constructor(support: Record<Controller, Support>, memory: readonly Position[]) {
    this.support = support;
    this.#memory = memory;
  }

  /** Supports no limits. */
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
        return { reason: `this user cannot write to the group ${at.dir}` };
      }
    };
    const support = { memory: supportOf("memory"), cpu: supportOf("cpu"), pids: supportOf("pids") };
    const { memory } = positions;
    if (!("dir" in memory)) return new Cgroups(support, []);
    const machines: Position[] =
      memory.version === 2 && delegation ? [{ version: 2, dir: delegation.dir }] : [];
    return new Cgroups(support, [memory, ...machines].flatMap(withThoseAbove));
  }

  /** Creates a group with these limits; the caller disposes it when its processes have exited. */
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

  /** Returns the group with that name if an earlier daemon created it. */
  adopt(name: string): Group | undefined {
    const places: Places = {};
    for (const controller of controllers) {
      const support = this.support[controller];
      if ("dir" in support && existsSync(join(support.dir, name)))
        places[controller] = { version: support.version, dir: join(support.dir, name) };
    }
    return Object.keys(places).length === 0 ? undefined : new Group(name, places);
  }

  /** Names of all our groups. */
  list(): string[] {
    return [...new Set(this.#tops().flatMap((dir) => this.#names(dir)))];
  }

  /** Bytes that this process and its machines may still use under their groups' limits, if there are any. */
  headroom(): number | undefined {
    const rooms = this.#memory.flatMap((each) => headroomIn(each) ?? []);
    return rooms.length === 0 ? undefined : Math.min(...rooms);
  }

  /** Removes our groups if they are empty; those with groups of running sandboxes stay. */
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

/** Name of the group of a daemon with this data directory. */
export function groupNameOf(dataDir: string): string {
  return `forkd-${createHash("sha256").update(dataDir).digest("hex").slice(0, 12)}`;
}

function versionOf(position: Positions[Controller]): number | undefined {
  return "version" in position ? position.version : undefined;
}

/** On a host with an unknown group layout, sandboxes run without limits. */
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

/** Creates our group, which has no processes, and enables the controller for the groups below it. */
function enabledBelow(dir: string, controller: Controller): Support {
  mkdirSync(dir, { recursive: true });
  const { enabled, reason } = enable(dir, [controller]);
  return enabled.includes(controller) ? { version: 2, dir } : { reason };
}

/** A group and its ancestors, whose limits apply too. Above the mount there are no groups. */
function withThoseAbove({ version, dir }: Position): Position[] {
  const isGroup = existsSync(join(dir, "cgroup.procs"));
  return isGroup ? [{ version, dir }, ...withThoseAbove({ version, dir: dirname(dir) })] : [];
}

function headroomIn({ dir, version }: Position): number | undefined {
  const [max, current] =
    version === 2 ? ["memory.max", "memory.current"] : ["memory.limit_in_bytes", "memory.usage_in_bytes"];
  try {
    const limit = Number(readFileSync(join(dir, max), "utf8"));
    // "max" in version 2, a huge number in version 1.
    if (!Number.isFinite(limit) || limit > 2 ** 60) return undefined;
    // The kernel can drop cached file pages.
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
