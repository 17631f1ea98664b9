/** Control groups of daemons, below the group of this process, where the daemon makes them. */
import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { findPositions, groupNameOf } from "@forkd/machine";

/** Directories that may contain the group of a daemon. */
function parents(): string[] {
  const dirs = Object.values(findPositions()).flatMap((each) =>
    "dir" in each ? [each.dir, dirname(each.dir)] : [],
  );
  return [...new Set(dirs)].filter((dir) => existsSync(dir));
}

/** Groups of the machines of the daemon with that data directory. */
export function groupsOf(dataDir: string): string[] {
  return parents()
    .map((dir) => join(dir, groupNameOf(dataDir)))
    .filter((dir) => existsSync(dir))
    .flatMap((dir) =>
      readdirSync(dir, { withFileTypes: true })
        .filter((entry) => entry.isDirectory())
        .map(({ name }) => join(dir, name)),
    );
}

/** The groups that contain the groups of its machines. */
export function allGroupsOf(dataDir: string): string[] {
  return parents()
    .map((dir) => join(dir, groupNameOf(dataDir)))
    .filter((dir) => existsSync(dir));
}
