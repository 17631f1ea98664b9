/**
 * Downloads Debian packages for a guest: the host's apt resolves them against what the guest has installed, in a
 * directory with its own state. apt verifies index and packages by Debian's signature. The guest installs them.
 */
import { access, mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { AppError } from "@forkd/contract";
import { z } from "zod";
import { throttleLines, type BuildContext } from "../context.ts";
import { explainArchiveFailure, hostAptSettings, hostMirrors } from "../rootfs/debian.ts";
import { keepArchives, limitPackageCache, openPackageCache } from "../rootfs/package-cache.ts";
import { offerArchives } from "../rootfs/offer-archives.ts";
import { runTool, ToolFailure } from "../tool.ts";

const keyring = "/usr/share/keyrings/debian-archive-keyring.gpg";

export const debianFactsSchema = z.object({
  suite: z.string().regex(/^[a-z][a-z0-9-]{0,31}$/),
  architecture: z.string().regex(/^[a-z0-9-]{1,20}$/),
});
/** `status` is the guest's /var/lib/dpkg/status. */
type DebianPackages = z.output<typeof debianFactsSchema> & {
  packages: readonly string[];
  status: Uint8Array;
};

/** Writes the packages that the guest lacks to the result, a directory below `work`. */
export async function downloadDebianPackages(
  imageDir: string,
  { packages, suite, architecture, status }: DebianPackages,
  work: string,
  context: BuildContext,
): Promise<string> {
  const root = join(work, "apt");
  const archives = join(root, "var/cache/apt/archives");
  const directories = [
    "etc/apt",
    "var/lib/apt/lists/partial",
    "var/lib/dpkg",
    "var/cache/apt/archives/partial",
  ];
  for (const name of directories) await mkdir(join(root, name), { recursive: true });
  await writeFile(join(root, "var/lib/dpkg/status"), relationsOf(status));
  const mirrors = await hostMirrors(suite, context.signal);
  await writeFile(join(root, "etc/apt/sources.list"), await sourcesList(mirrors, suite));
  await writeFile(join(root, "etc/apt/apt.conf"), await hostAptSettings(context.signal));
  const cache = await openPackageCache(imageDir, { suite, mirrors });
  context.lease?.hold(cache);
  const report = throttleLines((line) => context.onProgress?.("apt", line));
  const apt = (...args: string[]) =>
    runTool("apt-get", [...aptOptions(root, architecture), ...args], {
      signal: context.signal,
      env: { APT_CONFIG: join(root, "etc/apt/apt.conf") },
      onLine: (line) => /^(Get|Hit):\d+ /.test(line) && report(line),
    });
  try {
    await apt("update");
    // Compares their digests with the index, which apt does not.
    await offerArchives(cache, root);
    await apt("install", "--yes", "--download-only", "--no-install-recommends", "--", ...packages);
  } catch (error) {
    if (!(error instanceof ToolFailure)) throw error;
    throw explainArchiveFailure(error, { suite, field: "apt" });
  }
  await keepArchives(archives, cache);
  await limitPackageCache(imageDir);
  for (const name of await readdir(archives))
    if (!name.endsWith(".deb")) await rm(join(archives, name), { recursive: true, force: true });
  return archives;
}

const relations =
  /^(Package|Status|Version|Architecture|Multi-Arch|Essential|Protected|Important|Depends|Pre-Depends|Provides|Conflicts|Breaks|Replaces|Priority|Section): [\x20-\x7e]{1,65536}$/;

/** What apt needs of the guest's list. The guest can write anything there, and the host's apt parses it. */
export function relationsOf(status: Uint8Array): string {
  const lines = Buffer.from(status).toString("latin1").split("\n");
  return lines.filter((line) => line === "" || relations.test(line)).join("\n");
}

function aptOptions(root: string, architecture: string): string[] {
  const settings = {
    Dir: `${root}/`,
    "Dir::State::status": join(root, "var/lib/dpkg/status"),
    "Dir::Etc::trusted": "/etc/apt/trusted.gpg",
    "Dir::Etc::trustedparts": "/etc/apt/trusted.gpg.d/",
    "Dir::Bin::methods": "/usr/lib/apt/methods",
    "APT::Architecture": architecture,
    "APT::Architectures": architecture,
    // The directories belong to the user of the daemon.
    "APT::Sandbox::User": "",
    "Debug::NoLocking": "true",
  };
  return Object.entries(settings).flatMap(([name, value]) => ["-o", `${name}=${value}`]);
}

async function sourcesList(mirrors: readonly string[], suite: string): Promise<string> {
  const lines =
    mirrors.length > 0
      ? mirrors
      : [
          `deb http://deb.debian.org/debian ${suite} main`,
          `deb http://deb.debian.org/debian ${suite}-updates main`,
          `deb http://deb.debian.org/debian-security ${suite}-security main`,
        ];
  const isSigned = await access(keyring).then(
    () => true,
    () => false,
  );
  return lines
    .map((line) => (isSigned ? line.replace(/^deb /, `deb [signed-by=${keyring}] `) : line) + "\n")
    .join("");
}

/** The facts of a guest from its /etc/os-release; throws `invalid_recipe` if it is not Debian. */
export function debianSuite(osRelease: string): string {
  const field = (name: string): string =>
    new RegExp(`^${name}="?([^"\n]*)"?$`, "m").exec(osRelease)?.[1] ?? "";
  if (field("ID") === "debian" && debianFactsSchema.shape.suite.safeParse(field("VERSION_CODENAME")).success)
    return field("VERSION_CODENAME");
  throw new AppError("invalid_recipe", `apt: the image is not Debian but "${field("ID").slice(0, 40)}"`);
}
