/**
 * Reads which packages a guest has. It asks a child of the new snapshot, so that the parent's memory does not
 * carry what was read. Files that are missing or that the guest does not give count as absent.
 */
import { AppError, type FileEntry } from "@forkd/contract";
import { listFiles, readFile, type AgentClient } from "@forkd/machine";
import { PackageList, readRelease, type InstalledPackage } from "./package-list.ts";

const maxFileBytes = 16 << 20;
const maxTotalBytes = 64 << 20;
const maxManifestBytes = 256 << 10;
/** package.json files that are read one by one */
const maxManifests = 500;
const maxDirectories = 64;

const pythonParents = ["/usr/lib", "/usr/local/lib"];
const nodeModules = [
  "/usr/lib/node_modules",
  "/usr/local/lib/node_modules",
  "/app/node_modules",
  "/root/node_modules",
  "/node_modules",
];

export type GuestPackages = {
  readonly packages: readonly InstalledPackage[];
  /** entries that were not plain, or too many */
  readonly skipped: number;
  readonly release: { readonly id?: string; readonly version?: string };
};

/** Rejects if the guest's agent does not answer, or with the reason of the signal. */
export async function collectPackages(agent: AgentClient, signal: AbortSignal): Promise<GuestPackages> {
  const guest = new GuestFiles(agent, signal);
  const found = new PackageList();
  found.addDpkg((await guest.text("/var/lib/dpkg/status", maxFileBytes)) ?? "");
  for (const { path, type } of (await guest.list("/var/lib/dpkg/status.d")).slice(0, maxManifests))
    if (type === "file") found.addDpkg((await guest.text(path, maxManifestBytes)) ?? "");
  found.addApk((await guest.text("/lib/apk/db/installed", maxFileBytes)) ?? "");
  for (const dir of await pythonDirectories(guest))
    for (const { name } of await guest.list(dir)) found.addPython(name);
  for (const dir of nodeModules) await addNodeModules(guest, dir, found);
  const release = (await guest.text("/etc/os-release", maxManifestBytes)) ?? "";
  return { packages: found.sorted, skipped: found.skipped, release: readRelease(release) };
}

async function pythonDirectories(guest: GuestFiles): Promise<string[]> {
  const found: string[] = [];
  for (const parent of pythonParents) {
    const names = (await guest.list(parent)).map(({ name }) => name);
    for (const name of names.filter((each) => /^python3(\.\d+)?$/.test(each)))
      found.push(`${parent}/${name}/dist-packages`, `${parent}/${name}/site-packages`);
  }
  return found.slice(0, maxDirectories);
}

async function addNodeModules(guest: GuestFiles, dir: string, found: PackageList): Promise<void> {
  const lock = await guest.text(`${dir}/.package-lock.json`, maxFileBytes);
  if (lock !== undefined) return found.addNodeLock(lock);
  const names = (await guest.list(dir)).filter(({ name }) => !name.startsWith("."));
  const scoped = names.filter(({ name }) => name.startsWith("@")).slice(0, maxDirectories);
  const inScopes = await Promise.all(scoped.map(({ path }) => guest.list(path)));
  const packages = [...names.filter(({ name }) => !name.startsWith("@")), ...inScopes.flat()];
  for (const { path } of packages.slice(0, maxManifests)) {
    const text = await guest.text(`${path}/package.json`, maxManifestBytes);
    if (text !== undefined) found.addNode(text);
  }
  found.skipped += Math.max(0, packages.length - maxManifests);
}

/** What a guest gives, up to a number of bytes over all files. */
class GuestFiles {
  readonly #agent: AgentClient;
  readonly #signal: AbortSignal;
  #left = maxTotalBytes;

  constructor(agent: AgentClient, signal: AbortSignal) {
    this.#agent = agent;
    this.#signal = signal;
  }

  /** undefined if there is no such file, or a longer one */
  async text(path: string, maxBytes: number): Promise<string | undefined> {
    return this.#ifThere(async () => {
      const limit = Math.min(maxBytes, this.#left) + 1;
      const pieces: Buffer[] = [];
      let bytes = 0;
      for await (const piece of await readFile(this.#agent, path, { limit, signal: this.#signal })) {
        bytes += piece.length;
        if (bytes >= limit) return undefined;
        pieces.push(piece);
      }
      this.#left -= bytes;
      return Buffer.concat(pieces).toString("utf8");
    });
  }

  async list(path: string): Promise<FileEntry[]> {
    const hold = (bytes: number) => {
      this.#left -= bytes;
      if (this.#left < 0)
        throw new AppError("guest_refused", `Cannot list "${path}": it has too many entries`);
    };
    return (await this.#ifThere(() => listFiles(this.#agent, path, { signal: this.#signal, hold }))) ?? [];
  }

  async #ifThere<T>(work: () => Promise<T>): Promise<T | undefined> {
    try {
      return await work();
    } catch (error) {
      if (error instanceof AppError && (error.code === "file_not_found" || error.code === "guest_refused"))
        return undefined;
      throw error;
    }
  }
}
