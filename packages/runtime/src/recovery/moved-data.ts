/**
 * Refuses a data directory that was moved or copied while machines run. The machines use paths below the old
 * place, so a daemon cannot adopt them from the new one, and it would remove files that they use if it took
 * them for lost. So the daemon does not start, reports where they are, and changes nothing.
 */
import { stat } from "node:fs/promises";
import { advice, AppError, type Remedy } from "@forkd/contract";
import type { RuntimeConfig } from "../config.ts";
import { sandboxIds } from "../sandbox/paths.ts";
import { commandLines, vmmAnywhere } from "./vmm-command-line.ts";

const maxNamed = 5;

/** Throws `host_not_ready` if machines of sandboxes in the data directory run under another path. */
export async function refuseMovedData(config: RuntimeConfig): Promise<void> {
  const ids = new Set(await sandboxIds(config));
  if (ids.size === 0) return;
  const elsewhere = new Map<string, string[]>();
  for (const { argv } of await commandLines()) {
    const place = vmmAnywhere(argv);
    if (place === undefined || !ids.has(place.id) || place.dataDir === config.dataDir) continue;
    elsewhere.set(place.dataDir, [...(elsewhere.get(place.dataDir) ?? []), place.id]);
  }
  for (const [dataDir, found] of elsewhere) throw await moved(config, dataDir, found);
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
