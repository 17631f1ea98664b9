/** The host programs that forkd runs, and their Debian packages. */
import { access, constants } from "node:fs/promises";
import { delimiter, join } from "node:path";
import type { RemedyOf } from "@forkd/contract";

type HostProgram = {
  program: string;
  /** Debian package */
  package: string;
  /** why forkd needs it */
  purpose: string;
};

type MissingProgram = HostProgram & { remedy: RemedyOf<"install"> };

const hostPrograms: readonly HostProgram[] = [
  { program: "qemu-system-x86_64", package: "qemu-system-x86", purpose: "run machines" },
  { program: "qemu-img", package: "qemu-utils", purpose: "make disk overlays" },
  { program: "apt-get", package: "apt", purpose: "download the guest kernel" },
  { program: "apt-cache", package: "apt", purpose: "find the guest kernel" },
  { program: "dpkg-deb", package: "dpkg", purpose: "unpack the guest kernel" },
  { program: "mmdebstrap", package: "mmdebstrap", purpose: "build root file systems" },
  { program: "unshare", package: "util-linux", purpose: "isolate builds from the host" },
  { program: "mke2fs", package: "e2fsprogs", purpose: "make root file systems" },
  { program: "e2fsck", package: "e2fsprogs", purpose: "repair imported root file systems" },
  { program: "tar", package: "tar", purpose: "unpack root file systems" },
  { program: "xz", package: "xz-utils", purpose: "unpack kernels and root file systems" },
  { program: "zstd", package: "zstd", purpose: "pack and unpack snapshots" },
];

/** Programs needed only by a user who is not root. */
const unprivilegedPrograms: readonly HostProgram[] = [
  { program: "newuidmap", package: "uidmap", purpose: "build root file systems without being root" },
];

/** Programs needed only for recipes with packages of their registry. */
const registryPrograms: readonly HostProgram[] = [
  { program: "pip3", package: "python3-pip", purpose: "download packages of PyPI" },
  { program: "npm", package: "npm", purpose: "download packages of npm" },
];

/** Not in the PATH of an ordinary Debian user. */
const systemDirectories = ["/usr/local/sbin", "/usr/sbin", "/sbin"];

/** `path` with the directories of system programs added. */
export function searchPath(path: string | undefined): string {
  const parts = (path ?? "/usr/local/bin:/usr/bin:/bin").split(delimiter).filter((part) => part !== "");
  return [...parts, ...systemDirectories.filter((each) => !parts.includes(each))].join(delimiter);
}

/** The full path of a program, or undefined. */
export async function findProgram(program: string, path: string | undefined): Promise<string | undefined> {
  for (const directory of searchPath(path).split(delimiter)) {
    const candidate = join(directory, program);
    const isThere = await access(candidate, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (isThere) return candidate;
  }
  return undefined;
}

/** How to install a program. */
export function remedyFor(program: string): RemedyOf<"install"> {
  const known = [...hostPrograms, ...unprivilegedPrograms, ...registryPrograms].find(
    (each) => each.program === program,
  );
  return { action: "install", packages: [known?.package ?? program] };
}

/** The programs that this host does not have. */
export async function missingPrograms(
  options: { path?: string | undefined; programs?: readonly HostProgram[]; isRoot?: boolean } = {},
): Promise<MissingProgram[]> {
  const isRoot = options.isRoot ?? process.getuid?.() === 0;
  const programs = options.programs ?? (isRoot ? hostPrograms : [...hostPrograms, ...unprivilegedPrograms]);
  const missing: MissingProgram[] = [];
  for (const each of programs) {
    if ((await findProgram(each.program, options.path ?? process.env["PATH"])) === undefined) {
      missing.push({ ...each, remedy: { action: "install", packages: [each.package] } });
    }
  }
  return missing;
}
