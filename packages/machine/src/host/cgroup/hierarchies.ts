/**
 * Finds the control group hierarchies of this host and the groups of this process in them.
 *
 * A controller is in the single hierarchy of version 2 or in a version 1 hierarchy, alone or with others; a
 * host may have both. Everything comes from /proc/self/mountinfo and /proc/self/cgroup, so it also works in a
 * container.
 */
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { isErrno } from "@forkd/base";

export type Controller = "memory" | "cpu" | "pids";
export const controllers: readonly Controller[] = ["memory", "cpu", "pids"];

/** The group of this process in the hierarchy that has the controller, as a directory. */
export type Position = {
  version: 1 | 2;
  dir: string;
};
export type Positions = { [controller in Controller]: Position | { reason: string } };

type Mount = { version: 1 | 2; root: string; point: string; options: string[] };

/** Spaces and other special characters are escaped as octal numbers. */
function unescape(field: string): string {
  return field.replaceAll(/\\([0-7]{3})/g, (_, digits: string) =>
    String.fromCharCode(Number.parseInt(digits, 8)),
  );
}

function mountsOf(mountinfo: string): Mount[] {
  return mountinfo.split("\n").flatMap((line): Mount[] => {
    const [left = "", right = ""] = line.split(" - ");
    const fields = left.split(" ");
    const [type, , options = ""] = right.split(" ");
    if (type !== "cgroup" && type !== "cgroup2") return [];
    const mount = { root: unescape(fields[3] ?? "/"), point: unescape(fields[4] ?? "") };
    return [{ ...mount, version: type === "cgroup2" ? 2 : 1, options: options.split(",") }];
  });
}

/** Path of this process in the hierarchy of a controller; the version 2 hierarchy has an empty name. */
function pathOf(ownGroups: string, controller: string): string | undefined {
  for (const line of ownGroups.split("\n")) {
    const [, names = "", path] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    if (path !== undefined && (controller === "" ? names === "" : names.split(",").includes(controller)))
      return path;
  }
  return undefined;
}

function positionIn(mount: Mount, path: string | undefined): Position | { reason: string } {
  if (path === undefined) return { reason: "this process has no group in its hierarchy" };
  const root = mount.root === "/" ? "" : mount.root;
  const isBelow = path === root || path.startsWith(`${root}/`) || root === "";
  if (!isBelow || path.startsWith("/.."))
    return { reason: `the group of this process (${path}) is not visible below ${mount.point}` };
  return { version: mount.version, dir: join(mount.point, path.slice(root.length)) };
}

function offered(mount: Mount): string[] {
  if (mount.version === 1) return mount.options;
  try {
    return readFileSync(join(mount.point, "cgroup.controllers"), "utf8").trim().split(/\s+/);
  } catch (error) {
    if (isErrno(error, "ENOENT", "EACCES")) return [];
    throw error;
  }
}

export function findPositions(
  mountinfo = readFileSync("/proc/self/mountinfo", "utf8"),
  ownGroups = readFileSync("/proc/self/cgroup", "utf8"),
): Positions {
  const mounts = mountsOf(mountinfo).map((mount) => ({ mount, has: offered(mount) }));
  const find = (controller: Controller): Position | { reason: string } => {
    const found = mounts.find(({ has }) => has.includes(controller));
    if (!found) return { reason: `no cgroup hierarchy with the controller "${controller}" is mounted` };
    return positionIn(found.mount, pathOf(ownGroups, found.mount.version === 2 ? "" : controller));
  };
  return { memory: find("memory"), cpu: find("cpu"), pids: find("pids") };
}
