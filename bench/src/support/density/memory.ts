/** Where the memory of a VMM process is, from /proc, and what the kernel has beside it. */
import { readFileSync } from "node:fs";
import { median } from "../rows.ts";

const kib = 1024;

/** MiB of one process. The parts from `guest` to `files` are private; together they are `private`. */
export type ProcessMemory = {
  private_mib: number;
  /** memory of the guest that diverged from its snapshot */
  guest_mib: number;
  /** code that QEMU translated; none with KVM */
  jit_mib: number;
  /** other memory of the machine, such as its firmware */
  rom_mib: number;
  /** heap, arenas and stacks of QEMU */
  heap_mib: number;
  /** data and relocations of QEMU and its libraries */
  files_mib: number;
  /** of the private memory, in huge pages */
  huge_mib: number;
  pss_mib: number;
  rss_mib: number;
  page_tables_mib: number;
};

type Mapping = { perms: string; name: string; flags: string; of: (field: string) => number };

function mappingsOf(pid: number): Mapping[] {
  const text = readFileSync(`/proc/${pid}/smaps`, "latin1");
  return text
    .split(/^(?=[0-9a-f]+-[0-9a-f]+ )/m)
    .filter((part) => part !== "")
    .map((part) => {
      const [head = ""] = part.split("\n", 1);
      const [, perms = "", name = ""] = /^\S+ (\S+) \S+ \S+ \S+ *(.*)$/.exec(head) ?? [];
      const fields = new Map(
        [...part.matchAll(/^(\w+): +(\d+) kB$/gm)].map(([, field = "", value]) => [field, Number(value)]),
      );
      const flags = /^VmFlags: (.*)$/m.exec(part)?.[1] ?? "";
      return { perms, name, flags, of: (field) => fields.get(field) ?? 0 };
    });
}

type Part = "guest_mib" | "jit_mib" | "rom_mib" | "heap_mib" | "files_mib";

function partOf({ perms, name, flags }: Mapping): Part {
  if (name.endsWith("/memory")) return "guest_mib";
  if (name.startsWith("/")) return "files_mib";
  if (name === "" && perms.startsWith("rwx")) return "jit_mib";
  // QEMU offers the memory of its machine, and nothing else, for merging.
  return /\bmg\b/.test(flags) ? "rom_mib" : "heap_mib";
}

export function memoryOf(pid: number): ProcessMemory {
  const found = { guest_mib: 0, jit_mib: 0, rom_mib: 0, heap_mib: 0, files_mib: 0 };
  const all = { private_mib: 0, huge_mib: 0, pss_mib: 0, rss_mib: 0 };
  for (const mapping of mappingsOf(pid)) {
    // Pages that the process has written. The kernel can drop clean pages of a file at any time.
    const own = mapping.of("Anonymous") / kib;
    found[partOf(mapping)] += own;
    all.private_mib += own;
    all.huge_mib += mapping.of("AnonHugePages") / kib;
    all.pss_mib += mapping.of("Pss") / kib;
    all.rss_mib += mapping.of("Rss") / kib;
  }
  const status = readFileSync(`/proc/${pid}/status`, "latin1");
  const pageTables = Number(/^VmPTE:\s+(\d+)/m.exec(status)?.[1] ?? 0) / kib;
  return { ...all, ...found, page_tables_mib: pageTables };
}

/** The median child, figure by figure. */
export function medianMemory(pids: readonly number[]): ProcessMemory {
  const all = pids.map(memoryOf);
  const middle = (field: keyof ProcessMemory) => median(all.map((each) => each[field]));
  return {
    private_mib: middle("private_mib"),
    guest_mib: middle("guest_mib"),
    jit_mib: middle("jit_mib"),
    rom_mib: middle("rom_mib"),
    heap_mib: middle("heap_mib"),
    files_mib: middle("files_mib"),
    huge_mib: middle("huge_mib"),
    pss_mib: middle("pss_mib"),
    rss_mib: middle("rss_mib"),
    page_tables_mib: middle("page_tables_mib"),
  };
}

/** MiB of the whole host. */
export type HostMemory = { available: number; slab: number; kernelStack: number; pageTables: number };

export function hostMemory(): HostMemory {
  const text = readFileSync("/proc/meminfo", "latin1");
  const of = (field: string) => Number(new RegExp(`^${field}:\\s+(\\d+)`, "m").exec(text)?.[1] ?? 0) / kib;
  return {
    available: of("MemAvailable"),
    slab: of("Slab"),
    kernelStack: of("KernelStack"),
    pageTables: of("PageTables"),
  };
}

/** What the host has less, and its kernel more, for each of n children. Other programs of the host disturb it. */
export function hostCosts(before: HostMemory, n: number): Record<string, number> {
  const now = hostMemory();
  const grown = (field: keyof HostMemory) => (now[field] - before[field]) / n;
  return {
    host_mib: -grown("available"),
    slab_mib: grown("slab"),
    kernel_stack_mib: grown("kernelStack"),
    host_page_tables_mib: grown("pageTables"),
  };
}
