/** Builds Debian trees with mmdebstrap, from the archives that the host's apt uses. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { advice, AppError } from "@forkd/contract";
import { throttleLines, type BuildContext } from "../context.ts";
import { AptProgress } from "./apt-progress.ts";
import { imageTime } from "./ext4.ts";
import { limitPackageCache, openPackageCache, packageCacheOptions } from "./package-cache.ts";
import { runAsRoot } from "../namespace.ts";
import { runTool, ToolFailure } from "../tool.ts";

/** Files that are omitted from every package; licences and the C.UTF-8 locale stay. */
const pathRules = [
  "path-exclude=/usr/share/man/*",
  "path-exclude=/usr/share/info/*",
  "path-exclude=/usr/share/lintian/*",
  "path-exclude=/usr/share/doc/*",
  "path-include=/usr/share/doc/*/copyright",
  "path-exclude=/usr/share/locale/*",
  "path-include=/usr/share/locale/locale.alias",
];

type TreeInput = { imageDir: string; suite: string; packages: readonly string[]; work: string };

/** Builds the tree `<work>/tree`. Throws `invalid_recipe` (unknown package or suite) or `host_not_ready`. */
export async function makeDebianTree(
  { imageDir, suite, packages, work }: TreeInput,
  context: BuildContext,
): Promise<string> {
  const tree = join(work, "tree");
  const settings = join(work, "apt.conf");
  const mirrors = await hostMirrors(suite, context.signal);
  const cache = await openPackageCache(imageDir, { suite, mirrors });
  context.lease?.hold(cache);
  const caching = packageCacheOptions(cache, tree);
  await writeFile(settings, (await hostAptSettings(context.signal)) + caching.settings, { mode: 0o600 });
  const args = mmdebstrapArguments({ suite, packages, tree, settings, mirrors, more: caching.args });
  const report = lineReporter(context);
  try {
    await runAsRoot("mmdebstrap", args, {
      signal: context.signal,
      env: { SOURCE_DATE_EPOCH: imageTime, TMPDIR: work },
      onLine: report,
    });
  } catch (error) {
    throw error instanceof ToolFailure ? explainArchiveFailure(error, { suite, field: "base" }) : error;
  }
  await limitPackageCache(imageDir);
  return tree;
}

export function mmdebstrapArguments(input: {
  suite: string;
  packages: readonly string[];
  tree: string;
  settings: string;
  mirrors: readonly string[];
  more?: readonly string[];
}): string[] {
  const include = input.packages.length > 0 ? [`--include=${input.packages.join(",")}`] : [];
  return [
    // Already root on the host or in a namespace.
    "--mode=root",
    "--variant=minbase",
    "--format=directory",
    "--verbose",
    `--aptopt=${input.settings}`,
    ...pathRules.map((rule) => `--dpkgopt=${rule}`),
    // Packages such as openjdk-17-jre-headless link pages of other directories into these, and fail without them.
    '--essential-hook=mkdir -p "$1"/usr/share/man/man1 "$1"/usr/share/man/man5 "$1"/usr/share/man/man7 "$1"/usr/share/man/man8',
    // The host's settings, such as proxies, are only for the build.
    '--customize-hook=rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap"',
    ...(input.more ?? []),
    ...include,
    input.suite,
    input.tree,
    ...input.mirrors,
  ];
}

/** Lines of sources.list for `suite` from `apt-get indextargets`; if empty, mmdebstrap uses its default. */
export function parseMirrors(targets: string, suite: string): string[] {
  const lines = new Map<string, Set<string>>();
  for (const line of targets.split("\n")) {
    const [origin, codename, component, uri] = line.split(" ");
    if (origin !== "Debian" || !uri || !codename || !component) continue;
    if (![suite, `${suite}-updates`, `${suite}-security`].includes(codename)) continue;
    const key = `deb ${uri} ${codename}`;
    lines.set(key, (lines.get(key) ?? new Set()).add(component));
  }
  if (![...lines.keys()].some((key) => key.endsWith(` ${suite}`))) return [];
  return [...lines].map(([key, components]) => `${key} ${[...components].join(" ")}`);
}

/** The archives of `suite` that the host's apt uses. */
export async function hostMirrors(suite: string, signal: AbortSignal | undefined): Promise<string[]> {
  return parseMirrors(await hostIndexTargets(signal), suite);
}

async function hostIndexTargets(signal: AbortSignal | undefined): Promise<string> {
  const format = "$(ORIGIN) $(CODENAME) $(COMPONENT) $(REPO_URI)";
  return (await runTool("apt-get", ["indextargets", "--format", format, "Created-By: Packages"], { signal }))
    .stdout;
}

/** The settings with which the host's apt reaches its archives. */
export async function hostAptSettings(signal: AbortSignal | undefined): Promise<string> {
  const { stdout } = await runTool("apt-config", ["dump", "Acquire"], { signal });
  return stdout
    .split("\n")
    .filter((line) => /^Acquire::(https?::|Retries|ForceIPv|Check-Valid-Until|Check-Date)/i.test(line))
    .map((line) => `${line}\n`)
    .join("");
}

/** Reports every step of mmdebstrap, and counts about once a second and at the end of a step. */
function lineReporter(context: BuildContext): (line: string) => void {
  const progress = new AptProgress();
  let step = "";
  let pending: string | undefined;
  const report = (message: string): void => {
    pending = undefined;
    context.onProgress?.(step, message);
  };
  const often = throttleLines(report);
  return (line) => {
    const next = progress.read(line);
    if (next === undefined) return;
    if (next.step === step && !line.startsWith("I: ")) {
      pending = next.message;
      often(next.message);
      return;
    }
    if (pending !== undefined) report(pending);
    step = next.step;
    report(next.message);
  };
}

/** `field` is the part of the recipe with the packages. */
export function explainArchiveFailure(
  error: ToolFailure,
  { suite, field }: { suite: string; field: "apt" | "base" },
): AppError {
  const log = error.output.slice(-4000);
  const patterns = [
    /E: Unable to locate package (\S+)/g,
    /E: Package '(\S+)' has no installation candidate/g,
    /E: Version '\S+' for '(\S+)' was not found/g,
  ];
  const names = [
    ...new Set(patterns.flatMap((pattern) => [...error.output.matchAll(pattern)].map((match) => match[1]))),
  ];
  if (names.length > 0) {
    const where = field === "base" ? "base.packages" : field;
    const message = `Cannot build the recipe: ${where}: Debian "${suite}" has no package ${names.map((name) => `"${name}"`).join(", ")}`;
    return new AppError("invalid_recipe", message, { details: { log }, cause: error });
  }
  if (/does not have a Release file|404\s+Not Found/.test(error.output)) {
    const where = field === "base" ? "base.suite" : field;
    const message = `Cannot build the recipe: ${where}: the archive has no suite "${suite}", or the network is down`;
    return new AppError("invalid_recipe", message, { details: { log }, cause: error });
  }
  const lines = error.output.split("\n").filter((line) => line.startsWith("E: "));
  const why = lines[0]?.slice(3) ?? (field === "base" ? "mmdebstrap failed" : "apt-get failed");
  const what = field === "base" ? "build the root file system" : "download the packages";
  return new AppError("host_not_ready", `Cannot ${what}: ${why}`, {
    details: { log },
    remedy: advice("Check the network and the log in the details."),
    cause: error,
  });
}
