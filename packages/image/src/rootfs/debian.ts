/** Builds Debian trees with mmdebstrap, from the archives that the host's apt uses. */
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { advice, AppError } from "@forkd/contract";
import { throttleLines, type BuildContext } from "../context.ts";
import { imageTime } from "./ext4.ts";
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

type TreeInput = { suite: string; packages: readonly string[]; work: string };

/** Builds the tree `<work>/tree`. Throws `invalid_recipe` (unknown package or suite) or `host_not_ready`. */
export async function makeDebianTree(
  { suite, packages, work }: TreeInput,
  context: BuildContext,
): Promise<string> {
  const tree = join(work, "tree");
  const settings = join(work, "apt.conf");
  await writeFile(settings, await hostAptSettings(context.signal), { mode: 0o600 });
  const mirrors = parseMirrors(await hostIndexTargets(context.signal), suite);
  const args = mmdebstrapArguments({ suite, packages, tree, settings, mirrors });
  const report = lineReporter(context);
  try {
    await runAsRoot("mmdebstrap", args, {
      signal: context.signal,
      env: { SOURCE_DATE_EPOCH: imageTime, TMPDIR: work },
      onLine: report,
    });
  } catch (error) {
    throw error instanceof ToolFailure ? explain(error, suite) : error;
  }
  return tree;
}

export function mmdebstrapArguments(input: {
  suite: string;
  packages: readonly string[];
  tree: string;
  settings: string;
  mirrors: readonly string[];
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
    // The host's settings, such as proxies, are only for the build.
    '--customize-hook=rm -f "$1/etc/apt/apt.conf.d/99mmdebstrap"',
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

async function hostIndexTargets(signal: AbortSignal | undefined): Promise<string> {
  const format = "$(ORIGIN) $(CODENAME) $(COMPONENT) $(REPO_URI)";
  return (await runTool("apt-get", ["indextargets", "--format", format, "Created-By: Packages"], { signal }))
    .stdout;
}

/** The settings with which the host's apt reaches its archives. */
async function hostAptSettings(signal: AbortSignal | undefined): Promise<string> {
  const { stdout } = await runTool("apt-config", ["dump", "Acquire"], { signal });
  return stdout
    .split("\n")
    .filter((line) => /^Acquire::(https?::|Retries|ForceIPv|Check-Valid-Until|Check-Date)/i.test(line))
    .map((line) => `${line}\n`)
    .join("");
}

/** Reports every step of mmdebstrap, and lines of apt and dpkg about once a second. */
function lineReporter(context: BuildContext): (line: string) => void {
  let step = "prepare";
  const often = throttleLines((line) => context.onProgress?.(step, line.slice(0, 200)));
  return (line) => {
    const message = /^I: (.*)$/.exec(line)?.[1];
    if (message === undefined) {
      if (/^(Get|Unpacking|Setting up|Selecting|Preparing)/.test(line)) often(line);
      return;
    }
    if (message.includes("download")) step = "download";
    else if (message.includes("extracting")) step = "unpack";
    else if (message.includes("installing")) step = "install";
    else if (message.includes("clean")) step = "trim";
    context.onProgress?.(step, message);
  };
}

function explain(error: ToolFailure, suite: string): AppError {
  const log = error.output.slice(-4000);
  const lacking = [...error.output.matchAll(/E: Unable to locate package (\S+)/g)].map((match) => match[1]);
  const virtual = [...error.output.matchAll(/E: Package '(\S+)' has no installation candidate/g)].map(
    (match) => match[1],
  );
  const names = [...new Set([...lacking, ...virtual])];
  if (names.length > 0) {
    const message = `Cannot build the recipe: base.packages: Debian "${suite}" has no package ${names.map((name) => `"${name}"`).join(", ")}`;
    return new AppError("invalid_recipe", message, { details: { log }, cause: error });
  }
  if (/does not have a Release file|404\s+Not Found/.test(error.output)) {
    const message = `Cannot build the recipe: base.suite: the archive has no suite "${suite}", or the network is down`;
    return new AppError("invalid_recipe", message, { details: { log }, cause: error });
  }
  const lines = error.output.split("\n").filter((line) => line.startsWith("E: "));
  const why = lines[0]?.slice(3) ?? "mmdebstrap failed";
  return new AppError("host_not_ready", `Cannot build the root file system: ${why}`, {
    details: { log },
    remedy: advice("Check the network and the log in the details."),
    cause: error,
  });
}
