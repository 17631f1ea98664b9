/**
 * Downloads Node packages for a guest with the host's npm, which uses the registry and proxy of the host.
 *
 * Install scripts do not run, so no code of a package runs on the host. npm compares every archive with the digest
 * of the registry.
 */
import { copyFile, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { advice, AppError } from "@forkd/contract";
import { throttleLines, type BuildContext } from "../context.ts";
import type { LocalPackage } from "../recipe/step-schema.ts";
import { runTool, ToolFailure } from "../tool.ts";
import { openToolCache } from "./tool-cache.ts";

type NodePackages = { packages: readonly string[]; local: readonly LocalPackage[] };

/** Fills `directory` with `lib/node_modules` and `bin`, as below /usr/local. */
export async function downloadNodePackages(
  imageDir: string,
  { packages, local }: NodePackages,
  { directory, work }: { directory: string; work: string },
  context: BuildContext,
): Promise<void> {
  await mkdir(directory);
  const archives = join(work, "archives");
  await mkdir(archives);
  for (const { source, name } of local) await copyFile(source, join(archives, name));
  const cache = await openToolCache(imageDir, "npm", context);
  const args = [
    ...["install", "--global", "--prefix", directory, "--cache", cache, "--ignore-scripts"],
    ...["--os=linux", "--cpu=x64", "--no-audit", "--no-fund", "--no-update-notifier", "--loglevel=warn"],
    "--",
    ...packages,
    ...local.map(({ name }) => join(archives, name)),
  ];
  const report = throttleLines((line) => context.onProgress?.("npm", line));
  try {
    await runTool("npm", args, { signal: context.signal, onLine: report });
  } catch (error) {
    throw error instanceof ToolFailure ? explain(error) : error;
  }
}

function explain(error: ToolFailure): AppError {
  const log = error.output.slice(-4000);
  const lines = error.output.split("\n").filter((line) => /^npm (ERR!|error) /.test(line));
  const code = /^npm (?:ERR!|error) code (\S+)/m.exec(error.output)?.[1];
  const isUnknown = code === "E404" || code === "ETARGET" || code === "ERESOLVE";
  const why =
    lines.find((line) => !/ code /.test(line))?.replace(/^npm (ERR!|error) (\d+ )?/, "") ?? "npm failed";
  return new AppError(isUnknown ? "invalid_recipe" : "host_not_ready", `npm cannot download: ${why}`, {
    details: { log },
    remedy: advice(isUnknown ? "Check names and versions." : "Check the network and the log in the details."),
    cause: error,
  });
}
