/**
 * Kernel modules: dependencies in a module file, modules.dep, and the load order (pure).
 *
 * A Debian kernel package has no modules.dep (depmod creates it on installation). The `depends=` entry in the
 * `.modinfo` section of each module has the same information.
 */

/** Loaded at boot in this order, each after its dependencies. */
export const wantedModules = [
  "virtio_mmio",
  "virtio_blk",
  "virtio_console",
  "virtio_net",
  "virtio-rng",
  "overlay",
  // For aborting connections after a fork.
  "inet_diag",
  "tcp_diag",
];

/** Without these the guest has no root file system or no agent port. */
export const requiredModules: ReadonlySet<string> = new Set(["virtio_mmio", "virtio_blk", "virtio_console"]);

/** `kernel/drivers/char/virtio-rng.ko.xz` → `virtio_rng`: the kernel treats `-` and `_` as equal. */
export function moduleName(path: string): string {
  const file = path.slice(path.lastIndexOf("/") + 1);
  return file.replace(/\.ko(\.(xz|zst|gz))?$/, "").replaceAll("-", "_");
}

/** Names that a module file (64-bit little-endian ELF) depends on. Throws a RangeError for other files. */
export function readModuleDepends(elf: Uint8Array): string[] {
  const text = new TextDecoder("latin1").decode(modinfoSection(elf));
  const entry = text.split("\0").find((each) => each.startsWith("depends="));
  return (entry ?? "depends=")
    .slice("depends=".length)
    .split(",")
    .filter((each) => each !== "");
}

function modinfoSection(elf: Uint8Array): Uint8Array {
  const view = new DataView(elf.buffer, elf.byteOffset, elf.byteLength);
  if (view.getUint32(0) !== 0x7f454c46 || view.getUint8(4) !== 2)
    throw new RangeError("not a 64-bit ELF file");
  const table = Number(view.getBigUint64(0x28, true));
  const entrySize = view.getUint16(0x3a, true);
  const count = view.getUint16(0x3c, true);
  const section = (index: number): { name: number; offset: number; size: number } => {
    const at = table + index * entrySize;
    return {
      name: view.getUint32(at, true),
      offset: Number(view.getBigUint64(at + 0x18, true)),
      size: Number(view.getBigUint64(at + 0x20, true)),
    };
  };
  const names = section(view.getUint16(0x3e, true));
  const wanted = new TextEncoder().encode(".modinfo\0");
  for (let index = 0; index < count; index++) {
    const { name, offset, size } = section(index);
    const at = names.offset + name;
    if (wanted.every((byte, n) => elf[at + n] === byte)) return elf.subarray(offset, offset + size);
  }
  throw new RangeError("no .modinfo section");
}

/** Paths in modules.dep, each with the paths that it needs. */
export function parseModulesDep(text: string): Map<string, string[]> {
  const result = new Map<string, string[]>();
  for (const line of text.split("\n")) {
    const colon = line.indexOf(":");
    if (colon === -1) continue;
    const needs = line.slice(colon + 1).split(/\s+/);
    result.set(
      line.slice(0, colon),
      needs.filter((each) => each !== ""),
    );
  }
  return result;
}

export function formatModulesDep(entries: ReadonlyMap<string, readonly string[]>): string {
  const paths = [...entries.keys()].sort();
  return paths.map((path) => `${[`${path}:`, ...(entries.get(path) ?? [])].join(" ")}\n`).join("");
}

type LoadOrder = {
  /** paths, dependencies first */
  paths: string[];
  /** wanted modules that are neither files nor built in */
  missing: string[];
};

/** The load order of `wanted` and their dependencies. `builtin` is the text of modules.builtin. */
export function loadOrder(
  wanted: readonly string[],
  dependencies: ReadonlyMap<string, readonly string[]>,
  builtin: string,
): LoadOrder {
  const byName = new Map([...dependencies.keys()].map((path) => [moduleName(path), path]));
  const builtinNames = new Set(builtin.split("\n").filter(Boolean).map(moduleName));
  const paths = new Set<string>();
  const visiting = new Set<string>();
  const visit = (path: string): void => {
    if (paths.has(path) || visiting.has(path)) return;
    visiting.add(path);
    for (const need of dependencies.get(path) ?? []) visit(need);
    paths.add(path);
  };
  const missing: string[] = [];
  for (const name of wanted) {
    const path = byName.get(moduleName(name));
    if (path !== undefined) visit(path);
    else if (!builtinNames.has(moduleName(name))) missing.push(name);
  }
  return { paths: [...paths], missing };
}
