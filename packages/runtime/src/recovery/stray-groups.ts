/** Control groups that a daemon which died left behind: those of machines that nobody claims. */
import type { Logger } from "@forkd/base";
import { endProcess, type Cgroups } from "@forkd/machine";

/**
 * Names of the groups of machines that `isOurs` does not claim, and of those that nothing is in any more. (A machine enters its group
 * in the same step in which that is made.)
 */
export function strayGroups(cgroups: Cgroups, isOurs: (id: string) => boolean): string[] {
  return cgroups.list().filter((name) => {
    const id = /^(sb-[0-9a-f]{24})-\d+$/.exec(name)?.[1];
    return id === undefined || !isOurs(id) || (cgroups.adopt(name)?.pids.length ?? 0) === 0;
  });
}

/** Ends what is in them: they are below our own group, so nobody but us put it there. */
export async function removeGroups(cgroups: Cgroups, names: readonly string[]): Promise<void> {
  for (const name of names) {
    const group = cgroups.adopt(name);
    for (const pid of group?.pids ?? []) endProcess(pid);
    await group?.[Symbol.asyncDispose]();
  }
}

/** At the start of a daemon, when it knows its sandboxes. A group that cannot be removed now costs nothing. */
export async function removeStrayGroups(
  cgroups: Cgroups,
  log: Logger,
  isOurs: (id: string) => boolean,
): Promise<void> {
  const names = strayGroups(cgroups, isOurs);
  if (names.length === 0) return;
  try {
    await removeGroups(cgroups, names);
    log.warn({ event: "runtime.reap", groups: names });
  } catch (error) {
    log.error({ event: "runtime.reap", groups: names, error });
  }
}
