/** The guest kernel: Debian's cloud kernel, from the archives that the host's apt uses. */
import { copyFile, mkdir, readdir } from "node:fs/promises";
import { join } from "node:path";
import { isErrno, removeTree } from "@forkd/base";
import { advice, AppError } from "@forkd/contract";
import { z } from "zod";
import { ensureEntry, requireSpace } from "../cache.ts";
import { throttleLines, type BuildContext } from "../context.ts";
import { builderVersion, digestOf, sha256File } from "../files/digest.ts";
import { isRoot } from "../namespace.ts";
import { copyModules } from "./copy-modules.ts";
import { wantedModules } from "./modules.ts";
import { runTool, ToolFailure } from "../tool.ts";

export type Kernel = {
  path: string;
  /** SHA-256 of the file */
  digest: string;
  /** release, e.g. `6.1.0-30-cloud-amd64`, or "" if it is unknown */
  version: string;
  /** modules.dep, modules.builtin and the modules that a guest needs; null: all are built in */
  modulesDir: string | null;
};

const metaPackage = "linux-image-cloud-amd64";
const neededBytes = 256 * 2 ** 20;

const infoSchema = z.object({
  digest: z.string(),
  version: z.string(),
  package: z.string(),
  packageVersion: z.string(),
});

type KernelPackage = { name: string; version: string; sha256: string };

/** Debian's cloud kernel, downloaded and unpacked unless this version is in the cache. */
export async function ensureKernel(imageDir: string, context: BuildContext = {}): Promise<Kernel> {
  const found = await findKernelPackage(context.signal);
  const entry = await ensureEntry({
    parent: join(imageDir, "kernel"),
    digest: digestOf({ builderVersion, wantedModules, ...found }),
    info: infoSchema,
    signal: context.signal,
    lease: context.lease,
    build: (directory) => buildKernel(directory, found, context),
  });
  return {
    path: join(entry.directory, "vmlinuz"),
    digest: entry.digest,
    version: entry.version,
    modulesDir: join(entry.directory, "modules"),
  };
}

async function findKernelPackage(signal: AbortSignal | undefined): Promise<KernelPackage> {
  try {
    const depends = await runTool("apt-cache", ["depends", "--important", metaPackage], { signal });
    const name = parseKernelDependency(depends.stdout);
    if (name === undefined)
      throw new ToolFailure("apt-cache", "no kernel among the dependencies", depends.stdout);
    const show = await runTool("apt-cache", ["show", "--no-all-versions", name], { signal });
    return parsePackage(show.stdout);
  } catch (error) {
    if (!(error instanceof ToolFailure)) throw error;
    throw new AppError("host_not_ready", `Cannot find Debian's package ${metaPackage}`, {
      remedy: advice("Run `apt-get update` as root, or use your own kernel."),
      cause: error,
    });
  }
}

/** The package that contains the kernel, from the output of `apt-cache depends`. */
export function parseKernelDependency(text: string): string | undefined {
  return /^\s*Depends:\s+(linux-image-[a-z0-9+.-]+)\s*$/m.exec(text)?.[1];
}

/** Name, version and digest from the output of `apt-cache show`. */
export function parsePackage(text: string): KernelPackage {
  const field = (name: string): string => {
    const value = new RegExp(`^${name}:[ \\t]*(\\S+)`, "m").exec(text)?.[1];
    if (value === undefined) throw new ToolFailure("apt-cache", `no ${name} in its answer`, text);
    return value;
  };
  return { name: field("Package"), version: field("Version"), sha256: field("SHA256") };
}

async function buildKernel(
  directory: string,
  found: KernelPackage,
  context: BuildContext,
): Promise<z.output<typeof infoSchema>> {
  const { signal } = context;
  await requireSpace(directory, neededBytes);
  const work = join(directory, "work");
  await mkdir(work);
  context.onProgress?.("download", `Downloading ${found.name} ${found.version}`);
  await download(work, found, context);
  context.onProgress?.("unpack", `Unpacking ${found.name}`);
  const archive = (await readdir(work)).find((name) => name.endsWith(".deb"));
  if (archive === undefined)
    throw new AppError("host_not_ready", `Cannot unpack ${found.name}: apt-get downloaded no package file`);
  const tree = join(work, "tree");
  await runTool("dpkg-deb", ["-x", join(work, archive), tree], { signal });
  const image = (await readdir(join(tree, "boot"))).find((name) => name.startsWith("vmlinuz-"));
  if (image === undefined)
    throw new AppError("invalid_image", `Cannot find a kernel in the package ${found.name}`);
  const version = image.slice("vmlinuz-".length);
  await copyFile(join(tree, "boot", image), join(directory, "vmlinuz"));
  await copyModules(await findModules(tree, version), join(directory, "modules"), signal);
  await removeTree(work);
  const digest = await sha256File(join(directory, "vmlinuz"), signal);
  return { digest, version, package: found.name, packageVersion: found.version };
}

async function download(directory: string, found: KernelPackage, context: BuildContext): Promise<void> {
  // The user _apt cannot write to our directory; apt would use root anyway, with a warning.
  const sandbox = isRoot() ? ["-o", "APT::Sandbox::User=root"] : [];
  try {
    await runTool("apt-get", [...sandbox, "download", `${found.name}=${found.version}`], {
      cwd: directory,
      signal: context.signal,
      onLine: throttleLines((line) => context.onProgress?.("download", line)),
    });
  } catch (error) {
    if (!(error instanceof ToolFailure)) throw error;
    throw new AppError("host_not_ready", `Cannot download ${found.name}`, {
      details: { log: error.output.slice(-2000) },
      remedy: advice("Check the network and run `apt-get update` as root."),
      cause: error,
    });
  }
}

async function findModules(tree: string, version: string): Promise<string> {
  for (const lib of ["lib", "usr/lib"]) {
    const path = join(tree, lib, "modules", version);
    try {
      await readdir(path);
      return path;
    } catch (error) {
      if (!isErrno(error, "ENOENT")) throw error;
    }
  }
  throw new AppError("invalid_image", `Cannot find the modules of kernel ${version} in its package`);
}
