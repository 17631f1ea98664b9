/** Installed packages, from the databases of package managers in a guest. Pure: the texts come from the guest. */

export type InstalledPackage = {
  readonly type: "deb" | "apk" | "pypi" | "npm";
  readonly name: string;
  readonly version: string;
  readonly architecture?: string;
};

const namePattern = /^[A-Za-z0-9@_][A-Za-z0-9@._+/-]{0,213}$/;
const versionPattern = /^[A-Za-z0-9][A-Za-z0-9.+~:_!^-]{0,127}$/;
const architecturePattern = /^[a-z0-9_-]{1,32}$/;
const maxPackages = 20_000;

/** Collects packages, each once. A guest may write anything: an entry that no package manager writes is counted. */
export class PackageList {
  readonly #found = new Map<string, InstalledPackage>();
  /** entries that were left out */
  skipped = 0;

  add(given: InstalledPackage): void {
    const { type, name, version, architecture } = given;
    const isPlain =
      namePattern.test(name) &&
      versionPattern.test(version) &&
      (architecture === undefined || architecturePattern.test(architecture));
    const key = `${type}\0${name}\0${version}\0${architecture ?? ""}`;
    if (!isPlain || (this.#found.size >= maxPackages && !this.#found.has(key))) this.skipped++;
    else this.#found.set(key, given);
  }

  /** In an order that does not depend on the guest. */
  get sorted(): InstalledPackage[] {
    return [...this.#found].sort(([a], [b]) => (a < b ? -1 : 1)).map(([, each]) => each);
  }

  /** `/var/lib/dpkg/status`: paragraphs of `Field: value`. */
  addDpkg(text: string): void {
    for (const paragraph of text.split(/\n\n+/)) {
      const fields = fieldsOf(paragraph, /^([A-Za-z-]+): *(.*)$/);
      const { Package: name, Version: version, Architecture: architecture, Status: status } = fields;
      // Distroless images have no status.
      const isInstalled = status === undefined || status.endsWith(" installed");
      if (name === undefined || version === undefined || !isInstalled) continue;
      this.add({ type: "deb", name, version, ...(architecture !== undefined && { architecture }) });
    }
  }

  /** `/lib/apk/db/installed`: paragraphs of `X:value`. */
  addApk(text: string): void {
    for (const paragraph of text.split(/\n\n+/)) {
      const { P: name, V: version, A: architecture } = fieldsOf(paragraph, /^([A-Z]):(.*)$/);
      if (name === undefined || version === undefined) continue;
      this.add({ type: "apk", name, version, ...(architecture !== undefined && { architecture }) });
    }
  }

  /** The name of an entry of `site-packages`: `numpy-1.26.4.dist-info`. */
  addPython(entry: string): void {
    const found = /^(.+?)-(\d[^-]*)(-py[\d.]+)?\.(dist|egg)-info$/.exec(entry);
    const [, name, version] = found ?? [];
    if (name !== undefined && version !== undefined)
      this.add({ type: "pypi", name: name.toLowerCase().replace(/[-_.]+/g, "-"), version });
  }

  /** `package.json` of an installed package. */
  addNode(text: string): void {
    const { name, version } = recordIn(text);
    if (typeof name === "string" && typeof version === "string") this.add({ type: "npm", name, version });
    else this.skipped++;
  }

  /** `node_modules/.package-lock.json`, which lists everything that npm installed there. */
  addNodeLock(text: string): void {
    const { packages } = recordIn(text);
    if (typeof packages !== "object" || packages === null) return void this.skipped++;
    for (const [path, entry] of Object.entries(packages as Record<string, unknown>)) {
      const name = path.slice(path.lastIndexOf("node_modules/") + "node_modules/".length);
      const version =
        typeof entry === "object" && entry !== null && "version" in entry ? entry.version : undefined;
      if (typeof version === "string") this.add({ type: "npm", name, version });
    }
  }
}

function fieldsOf(paragraph: string, pattern: RegExp): Partial<Record<string, string>> {
  const fields: Record<string, string> = {};
  for (const line of paragraph.split("\n")) {
    const [, name, value] = pattern.exec(line) ?? [];
    if (name !== undefined && value !== undefined) fields[name] ??= value.trim();
  }
  return fields;
}

function recordIn(text: string): Record<string, unknown> {
  try {
    const value: unknown = JSON.parse(text);
    return typeof value === "object" && value !== null ? (value as Record<string, unknown>) : {};
  } catch {
    return {};
  }
}

/** `ID` and `VERSION_ID` of /etc/os-release, if they are plain. */
export function readRelease(text: string): { id?: string; version?: string } {
  const found = fieldsOf(text, /^([A-Z_]+)="?([^"]*)"?$/);
  const plain = (value: string | undefined) =>
    value !== undefined && /^[a-z0-9][a-z0-9._-]{0,31}$/.test(value) ? value : undefined;
  const [id, version] = [plain(found["ID"]), plain(found["VERSION_ID"])];
  return { ...(id !== undefined && { id }), ...(version !== undefined && { version }) };
}
