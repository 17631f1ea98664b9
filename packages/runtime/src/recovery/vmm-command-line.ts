/**
 * Which sandbox a process or a control group belongs to.
 *
 * A VMM names its console, `<data dir>/sandboxes/<id>/<number>/console.log`, in its command line. So the
 * process of a sandbox is found from its first moment on, and no other process is taken for one: not because
 * of a reused pid, not because of a similar name.
 */
import { readdir } from "node:fs/promises";
import { commandLine, escapeComma } from "@forkd/machine";
import type { RuntimeConfig } from "../config.ts";
import { sandboxPaths } from "../sandbox/paths.ts";

/** Which machine of which sandbox a VMM runs. */
export type VmmOf = { id: string; number: number };

/** undefined if it is not the command line of a VMM of this data directory. */
export function vmmOf(config: RuntimeConfig, argv: readonly string[]): VmmOf | undefined {
  for (const argument of argv) {
    const [, id, number] = /\/(sb-[0-9a-f]{24})\/(\d+)\/console\.log,/.exec(argument) ?? [];
    if (id === undefined || number === undefined) continue;
    const { consolePath } = sandboxPaths(config, id, Number(number));
    if (argument.includes(`path=${escapeComma(consolePath)},`)) return { id, number: Number(number) };
  }
  return undefined;
}

/** The data directory and the sandbox of a VMM, whichever data directory that is. */
export function vmmAnywhere(argv: readonly string[]): { dataDir: string; id: string } | undefined {
  for (const argument of argv) {
    const [, path, id] =
      /,path=(\/.*)\/sandboxes\/(sb-[0-9a-f]{24})\/\d+\/console\.log,/.exec(argument) ?? [];
    if (path !== undefined && id !== undefined) return { dataDir: path.replaceAll(",,", ","), id };
  }
  return undefined;
}

/** The sandbox that a control group was made for; the inverse of groupName() in admission/limits.ts. */
export function sandboxOfGroup(name: string): string | undefined {
  return /^(sb-[0-9a-f]{24})-\d+$/.exec(name)?.[1];
}

/** The command lines of all processes of the host. */
export async function commandLines(): Promise<{ pid: number; argv: readonly string[] }[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name)).map(Number);
  return pids.map((pid) => ({ pid, argv: commandLine(pid) }));
}
