/**
 * A data directory that was moved or copied while machines run. They were given paths below the old place, for their disks and for all
 * that is still to be opened, so no daemon can go on with them from the new one; and whoever takes them for dead would remove what they
 * use. So the daemon does not start, says where they are, and leaves everything as it is.
 */
import { readdir, stat } from "node:fs/promises";
import { advice, AppError, type Remedy } from "@forkd/contract";
import { commandLine } from "@forkd/machine";
import type { RuntimeConfig } from "../config.ts";
import { sandboxIds } from "./strays.ts";

const maxNamed = 5;

/** Throws `host_not_ready` if machines of sandboxes in the data directory run under another path. */
export async function refuseMovedData(config: RuntimeConfig): Promise<void> {
  const ids = new Set(await sandboxIds(config));
  if (ids.size === 0) return;
  const elsewhere = new Map<string, string[]>();
  for (const pid of (await readdir("/proc")).filter((name) => /^\d+$/.test(name)).map(Number)) {
    const place = placeOf(commandLine(pid));
    if (place === undefined || !ids.has(place.id) || place.dataDir === config.dataDir) continue;
    elsewhere.set(place.dataDir, [...(elsewhere.get(place.dataDir) ?? []), place.id]);
  }
  for (const [dataDir, found] of elsewhere) throw await moved(config, dataDir, found);
}

/** The data directory and the sandbox in the command line of a VMM. */
function placeOf(argv: readonly string[]): { dataDir: string; id: string } | undefined {
  for (const argument of argv) {
    const [, path, id] =
      /,path=(\/.*)\/sandboxes\/(sb-[0-9a-f]{24})\/\d+\/console\.log,/.exec(argument) ?? [];
    if (path !== undefined && id !== undefined) return { dataDir: path.replaceAll(",,", ","), id };
  }
  return undefined;
}

async function moved({ dataDir }: RuntimeConfig, was: string, ids: readonly string[]): Promise<AppError> {
  const more = ids.length > maxNamed ? ` and ${ids.length - maxNamed} more` : "";
  return new AppError(
    "host_not_ready",
    `Cannot use ${dataDir}: machines of its sandboxes are running and belong to ${was} (${ids.slice(0, maxNamed).join(", ")}${more}). Nothing was changed`,
    { details: { data_dir: dataDir, was, sandboxes: [...ids] }, remedy: await remedyFor(dataDir, was) },
  );
}

async function remedyFor(dataDir: string, was: string): Promise<Remedy> {
  const [here, there] = await Promise.all([identityOf(dataDir), identityOf(was)]);
  if (there === undefined) return { action: "move_data_back", from: dataDir, to: was };
  // Two paths of the same directory.
  if (here === there) return { action: "change_setting", setting: "data_dir", to: was };
  return advice(`If ${dataDir} is a copy of ${was}, remove ${dataDir}/sandboxes.`);
}

async function identityOf(path: string): Promise<string | undefined> {
  const facts = await stat(path, { bigint: true }).catch(() => undefined);
  return facts && `${facts.dev}:${facts.ino}`;
}
