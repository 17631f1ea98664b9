/** Control groups of daemons, found as the daemon finds them: below the group of this process. */
import { existsSync, readdirSync } from "node:fs";
import { dirname, join } from "node:path";
import { findPositions, groupNameOf } from "@forkd/machine";

/** Directories that may hold the group of a daemon. */
function parents(): string[] {
  const dirs = Object.values(findPositions()).flatMap((each) =>
    "dir" in each ? [each.dir, dirname(each.dir)] : [],
  );
  return [...new Set(dirs)].filter((dir) => existsSync(dir));
}

/** Groups of the machines of the daemon that uses that directory. */
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

/** The groups of that daemon, its own included. */
export function allGroupsOf(dataDir: string): string[] {
  return parents()
    .map((dir) => join(dir, groupNameOf(dataDir)))
    .filter((dir) => existsSync(dir));
}
