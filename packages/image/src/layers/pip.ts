/**
 * Downloads Python packages for a guest with the host's pip, which uses the index and proxy of the host.
 *
 * Only wheels are taken: they are unpacked, so no code of a package runs on the host. The guest installs them
 * without a network.
 */
import { copyFile, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { advice, AppError } from "@forkd/contract";
import { z } from "zod";
import { throttleLines, type BuildContext } from "../context.ts";
import { runTool, ToolFailure } from "../tool.ts";
import type { LocalPackage } from "../recipe/step-schema.ts";
import { openToolCache } from "./tool-cache.ts";

/** Prints the facts that decide which wheels the guest can use. */
export const pythonFactsScript = `
import json, os, platform, sys
libc, version = platform.libc_ver()
if not libc:
    names = [n for d in ("/lib", "/usr/lib") if os.path.isdir(d) for n in os.listdir(d)]
    libc = "musl" if any(n.startswith("ld-musl") for n in names) else ""
print(json.dumps({"python": list(sys.version_info[:2]), "implementation": sys.implementation.name,
    "libc": libc, "libc_version": version, "machine": platform.machine()}))
`;

export const pythonFactsSchema = z.object({
  python: z.tuple([z.int().min(3).max(3), z.int().min(6).max(99)]),
  implementation: z.literal("cpython"),
  libc: z.enum(["glibc", "musl"]),
  libc_version: z.string().regex(/^(\d{1,3}\.\d{1,3}(\.\d{1,3})?)?$/),
  machine: z.string().regex(/^[a-z0-9_]{1,20}$/),
});
export type PythonFacts = z.output<typeof pythonFactsSchema>;

type Wheels = { packages: readonly string[]; local: readonly LocalPackage[]; python: PythonFacts };

/** Fills `directory` with the wheels of the packages and of all that they need. */
export async function downloadWheels(
  imageDir: string,
  { packages, local, python }: Wheels,
  directory: string,
  context: BuildContext,
): Promise<void> {
  await mkdir(directory);
  for (const { source, name } of local) await copyFile(source, join(directory, name));
  const cache = await openToolCache(imageDir, "pip", context);
  const args = [
    ...["download", "--dest", directory, "--cache-dir", cache, "--find-links", directory],
    ...["--no-input", "--disable-pip-version-check", "--progress-bar", "off"],
    ...targetArguments(python),
    ...packages,
    ...local.map(({ name }) => join(directory, name)),
  ];
  const report = throttleLines((line) => context.onProgress?.("pip", line));
  try {
    await runTool("pip3", args, {
      signal: context.signal,
      onLine: (line) =>
        /^(Collecting|Downloading|Obtaining|Using cached)/.test(line.trim()) && report(line.trim()),
    });
  } catch (error) {
    throw error instanceof ToolFailure ? explain(error) : error;
  }
}

/** The target that the guest's own pip would have. */
export function targetArguments({
  python: [major, minor],
  libc,
  libc_version,
  machine,
}: PythonFacts): string[] {
  const tag = `cp${major}${minor}`;
  const platforms = [...platformTags(libc, libc_version, machine), `linux_${machine}`];
  return [
    "--only-binary=:all:",
    ...["--python-version", `${major}.${minor}`, "--implementation", "cp"],
    ...[tag, "abi3", "none"].flatMap((abi) => ["--abi", abi]),
    ...platforms.flatMap((platform) => ["--platform", platform]),
  ];
}

const oldestGlibcMinor = 5;
const legacyNames: Readonly<Record<number, string>> = {
  17: "manylinux2014",
  12: "manylinux2010",
  5: "manylinux1",
};

/** Newest first, as pip prefers them. A wheel for an older C library can be used with a newer one. */
function platformTags(libc: PythonFacts["libc"], version: string, machine: string): string[] {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  if (libc === "musl") {
    // Python does not report the version of musl; 1.2 is from 2020.
    const newest = major === 1 ? minor : 2;
    return Array.from({ length: newest }, (_, nth) => `musllinux_1_${newest - nth}_${machine}`);
  }
  const tags: string[] = [];
  for (let each = major === 2 ? minor : oldestGlibcMinor; each >= oldestGlibcMinor; each--) {
    tags.push(`manylinux_2_${each}_${machine}`);
    const legacy = legacyNames[each];
    if (legacy !== undefined) tags.push(`${legacy}_${machine}`);
  }
  return tags;
}

function explain(error: ToolFailure): AppError {
  const lines = error.output.split("\n").filter((line) => line.startsWith("ERROR: "));
  const missing = /No matching distribution found for (\S+)/.exec(error.output)?.[1];
  const log = error.output.slice(-4000);
  if (missing !== undefined) {
    const message = `pip found no wheel of "${missing}" for the Python of the image`;
    return new AppError("invalid_recipe", message, {
      details: { log },
      remedy: advice(
        "Check name and version. Packages without a wheel cannot be used: build the wheel and add it to the recipe.",
      ),
      cause: error,
    });
  }
  const isConflict = /ResolutionImpossible|conflicting dependencies/.test(error.output);
  const why = lines[0]?.slice("ERROR: ".length) ?? "pip failed";
  return new AppError(isConflict ? "invalid_recipe" : "host_not_ready", `pip cannot download: ${why}`, {
    details: { log },
    remedy: advice(isConflict ? "Change the versions." : "Check the network and the log in the details."),
    cause: error,
  });
}
