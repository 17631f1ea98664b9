/**
 * The raw rows of every benchmark. A file has one JSON object per line: first a head with the host and the
 * settings of the run, then one row per measurement. Every row has `bench`, `case`, `n` (how many things were
 * measured) and `wall_ms`; the case says which other fields there are. `Rows` writes nothing that does not
 * match, and tests/src/e2e/bench.test.ts checks what a run has written.
 */
import { z } from "zod";
import { accelerator, amount, count, ms, size, timings, type BenchShape, type Kind } from "./row-fields.ts";
import { spawnShape } from "./spawn-shape.ts";

export const benchNames = [
  "branch",
  "chain",
  "clients",
  "density",
  "hostile",
  "hub",
  "load",
  "network",
  "restart",
  "soak",
  "spawn",
] as const;
export type BenchName = (typeof benchNames)[number];

const mode = z.enum(["live", "diff", "full"]);

/** of the host, in the head of every file */
const host = z.strictObject({ cores: count, cpu: z.string(), memory_bytes: count, kernel: z.string() });

const branched = {
  memory_mib: count,
  diverged_mib: count,
  mode,
  wait: z.boolean(),
  index: count,
  /** stop to cont of the source */
  pause_ms: ms,
  /** request to cont */
  resumed_ms: ms,
  /** the pause by the guest's wall clock */
  stall_ms: ms.nullish(),
  total_ms: ms.nullish(),
  /** precopy and quiesce: before the stop; the others: parts of the pause */
  timings_ms: timings,
  /** cont to answer, by the clock of the caller */
  answered_after_ms: z.number(),
  logical_bytes: count.nullish(),
  physical_bytes: count.nullish(),
};

/** largest gap between two beats of the heartbeat, less the usual gap */
const gaps = {
  /** from request to answer */
  gap_ms: z.number(),
  /** from request to cont */
  gap_at_stop_ms: z.number(),
  /** in as much time before the request */
  gap_calm_ms: z.number(),
  /** by the guest's own clock */
  gap_guest_clock_ms: z.number(),
};

const mix = {
  exec_p99_ms: ms,
  exec_count: count,
  exec_max_ms: ms,
  probe_p50_ms: ms,
  probe_p99_ms: ms,
  calls: count,
  seconds: ms,
  daemon_cpu_seconds: ms,
  /** answers by error code, `ok` among them */
  answers: z.record(z.string(), count),
  /** 5xx that are not about capacity */
  faults: z.array(z.string()),
};

const held = {
  rss_bytes: count,
  anonymous_bytes: count,
  descriptors: count,
  threads: count,
  processes: count,
  files: count,
};

const attacked = {
  version_p50_ms: ms,
  version_p99_ms: ms,
  version_count: count,
  /** peak of the daemon's resident memory, less what it had before */
  grown_mib: amount,
  /** commands in a sandbox beside the attackers */
  sibling_max_ms: ms,
  sibling_count: count,
  seconds: ms,
  /** answers to the attacked calls by error code, `ok` among them; `none`: not answered in time */
  answers: z.record(z.string(), count),
};

/** many measurements in one row: wall_ms is their median, n how many there are */
const many = { p99_ms: ms };

/** answers of /version meanwhile */
const probed = { version_p50_ms: ms, version_p99_ms: ms, version_count: count };

const transferred = {
  ...probed,
  bytes: count,
  /** 10^6 bytes per second */
  mb_per_s: amount,
  /** of proxy, vmm, server and daemon */
  cpu_seconds: z.record(z.string(), z.number()),
};

const mib = (names: readonly string[]) =>
  Object.fromEntries(names.map((name) => [`${name}_mib`, z.number()]));
/** the first six are private: the sum, and its parts */
const childMemory = mib([
  ...["private", "guest", "jit", "rom", "heap", "files"],
  ...["huge", "pss", "rss", "page_tables"],
]);
/** of the whole host, per child */
const hostGrowth = mib(["host", "slab", "kernel_stack", "host_page_tables"]);

const child = { fork_ms: ms, kind: z.enum(["cached", "evicted", "after evicted"]) };

const shapes: Readonly<Record<BenchName, BenchShape>> = {
  branch: {
    head: { accelerator, rounds: count },
    kinds: {
      idle: { case: "idle", fields: branched },
      "no wait": { case: "no wait", fields: branched },
      heartbeat: { case: "heartbeat", fields: { ...branched, ...gaps } },
      /** with a heartbeat and a program that keeps writing to 50 MiB of its own */
      writing: { case: "writing", fields: { ...branched, ...gaps, written_mib_per_s: amount } },
      "in a row": { case: "in a row", fields: branched },
      "fork of base": { case: "fork of base", fields: {} },
      "fork right after a branch": { case: "fork right after a branch", fields: {} },
      "branch with children": { case: "branch with children", fields: {} },
    },
  },
  chain: {
    head: { accelerator, rounds: count },
    kinds: {
      branch: {
        case: "branch",
        fields: {
          depth: count,
          pause_ms: ms,
          resumed_ms: ms,
          total_ms: ms,
          timings_ms: timings,
          logical_bytes: count,
          physical_bytes: count,
          snapshot_bytes: count,
        },
      },
      compact: { case: "compact", fields: {} },
      depth: { case: /^\d+$/, fields: child },
      compacted: { case: "compacted", fields: child },
    },
  },
  clients: {
    head: { accelerator, rounds: count, qemu: z.string(), memory_mib: count },
    kinds: {
      /** the same request by hand and through an SDK, one connection each */
      calls: { case: /^call (version|stat|exec), (raw|typescript)$/, fields: many },
      "calls from Python": { case: /^call (version|stat|exec), (python raw|python)$/, fields: many },
      /** one file into a guest (up) and out of it (down) */
      files: {
        case: /^(up|down), (agent channel|raw|typescript)$/,
        fields: { bytes: count, mb_per_s: amount },
      },
      /** n commands that print at the same time */
      streams: {
        case: /^streams, (raw|typescript)$/,
        fields: { lines: count, lost: z.int(), disordered: count },
      },
      /** from the call that makes a sandbox to the result of the first code */
      "first code": { case: /^first code, forkd$/, fields: {} },
      "first code of E2B": { case: /^first code, e2b$/, fields: {} },
      /** until a program has ended */
      starts: { case: /^start, (node|forkd ls)$/, fields: many },
      /** until the MCP server has listed its tools */
      "MCP server": { case: /^start, mcp tools$/, fields: many },
    },
  },
  density: {
    head: {
      accelerator,
      qemu: z.string(),
      memory_mib: count,
      step: count,
      swap_mib: count,
      zswap: z.string(),
      huge_pages: z.string(),
    },
    // n is the number of live children unless a comment says otherwise
    kinds: {
      /** n: children of this step */
      children: { case: /^children \d+ to \d+$/, fields: { fork_ms: ms } },
      /** of one child, MiB; wall_ms: reading it took */
      memory: { case: "memory", fields: { ...childMemory, ...hostGrowth } },
      /** n: requests */
      list: { case: "list", fields: { ...many, children: count, bytes: count } },
      daemon: {
        case: "daemon",
        fields: { rss_bytes: count, anonymous_bytes: count, descriptors: count, threads: count },
      },
      evals: { case: "one eval in each", fields: {} },
      /** CPU time of user and system, n: starts */
      starts: { case: /^start, (node|forkd ls)$/, fields: many },
      idle: {
        case: "idle",
        fields: { percent_of_core: amount, percent_of_core_mean: amount, percent_of_core_all: amount },
      },
      ksm: {
        case: "ksm",
        fields: { seconds: amount, saved_mib: z.number(), ksmd_cpu_seconds: amount, full_scans: count },
      },
      absent: {
        case: "absent",
        fields: { contender: z.literal("ksm"), reason: z.string() },
        optional: true,
      },
    },
  },
  hostile: {
    head: { guests: count },
    // wall_ms is the longest answer to /version, n the number of guests
    kinds: {
      calm: { case: "calm", fields: attacked },
      way: { case: /^(oversized|deep|endless|silent|slow|lying|order)$/, fields: attacked },
      kernel: { case: "kernel", fields: attacked },
    },
  },
  load: {
    head: { clients: count, seconds: amount, guests: count },
    // wall_ms is the median of exec, n the number of clients
    kinds: {
      "one client": { case: "one client", fields: mix },
      "exec only": { case: "exec only", fields: mix },
      calls: { case: "calls", fields: mix },
      everything: { case: "everything", fields: mix },
    },
  },
  network: {
    head: { accelerator, rounds: count, qemu: z.string(), memory_mib: count },
    kinds: {
      forks: { case: /^fork, (jail and network|neither)$/, fields: { fork_ms: ms } },
      execs: { case: /^exec, (jail and network|neither)$/, fields: many },
      /** until a program runs that stands for the VMM; cpu_ms: its own CPU time until then */
      starts: { case: /^start, (no jail|jail|jail and network)$/, fields: { ...many, cpu_ms: ms } },
      /** of n slots that exist at once, per slot, less n programs without a jail; wall_ms: the proxy's add() */
      slots: {
        case: "slots",
        fields: {
          slab_kib: z.number(),
          unreclaimable_kib: z.number(),
          percpu_kib: z.number(),
          /** kernel stacks and page tables */
          other_kib: z.number(),
          /** resident memory of the proxy */
          proxy_kib: z.number(),
        },
      },
      idle: { case: "idle", fields: probed },
      transfers: { case: /^(raw|http) (down|up)$/, fields: transferred },
      "agent channel": { case: /^agent channel (down|up)$/, fields: transferred },
      /** requests to a server in the guest */
      ports: { case: /^port, (within the namespace|direct|agent channel)$/, fields: many },
      /** one decision; times are means of 1000 */
      decide: { case: "decide", fields: { ...many, rules: count, compile_ms: ms } },
      "set rules": { case: "set rules", fields: {} },
      exchanges: {
        case: /^exchange, (host to server|within the guest|refused|(raw|http)(, many rules)?)$/,
        fields: many,
      },
      "look-ups": { case: /^look-up, (by the host|new name|known name|refused)$/, fields: many },
      /** kinds of rows that this host cannot measure */
      absent: {
        case: "absent",
        fields: { contender: z.string(), reason: z.string() },
        optional: true,
      },
    },
  },
  hub: {
    head: { accelerator, rounds: count, memory_mib: count },
    kinds: {
      pack: { case: "pack", fields: { bytes: count } },
      /** of the pages that are not zero, with all cores */
      zstd: { case: /^zstd -(3|19 --long)$/, fields: { bytes: count, input_bytes: count } },
      /** daemon: "used" if it has unpacked before */
      unpack: { case: "unpack", fields: { bytes: count, daemon: z.enum(["new", "used"]) } },
      copy: { case: "tar, copy", fields: { bytes: count } },
      /** moved_bytes: both ways, with all headers; layer_bytes: what only the branch has on disk */
      push: {
        case: /^push, (first|again|other repository|branch)$/,
        fields: { moved_bytes: count, layer_bytes: count.optional() },
      },
      /** daemon: "used" if it has forked before */
      pull: { case: "pull", fields: { moved_bytes: count, daemon: z.enum(["new", "used"]) } },
      download: { case: "download, tar", fields: { bytes: count } },
      /** until the first eval is answered; nth: 0 is the first one after the pull */
      fork: { case: /^fork, (pulled|local)$/, fields: { nth: count, daemon: z.enum(["new", "used"]) } },
    },
  },
  restart: {
    head: { rounds: count, counts: z.array(count), kills: count },
    kinds: {
      restart: { case: "restart", fields: { listens_ms: ms, fork_ms: ms } },
      kills: { case: "kills at random moments, all held", fields: {} },
    },
  },
  soak: {
    head: { cycles: count, branches: count, at_once: count },
    // wall_ms is the mean of the calls since the row before, n what was done so far
    kinds: {
      forks: { case: "forks", fields: held },
      branches: { case: "branches", fields: held },
    },
  },
  spawn: spawnShape,
};

export type Row = { bench: string; case: string; n: number; wall_ms: number } & Record<string, unknown>;

function fits(kind: Kind, name: string): boolean {
  return typeof kind.case === "string" ? kind.case === name : kind.case.test(name);
}

function problem(what: string, error: z.ZodError): Error {
  return new Error(`${what} does not match its documented shape: ${z.prettifyError(error)}`);
}

export function checkHead(bench: BenchName, head: unknown): void {
  const shape = z.strictObject({ bench: z.literal(bench), host, load: amount, size, ...shapes[bench].head });
  const { error } = shape.safeParse(head);
  if (error) throw problem(`The head of ${bench}`, error);
}

/** Returns the name of the row's kind. */
export function checkRow(bench: BenchName, row: unknown): string {
  const basis = { bench: z.literal(bench), case: z.string(), n: count, wall_ms: ms };
  const { data, error } = z.looseObject(basis).safeParse(row);
  if (error) throw problem(`A row of ${bench}`, error);
  const found = Object.entries(shapes[bench].kinds).find(([, kind]) => fits(kind, data.case));
  if (!found) throw new Error(`A row of ${bench} has the case "${data.case}", which is not documented`);
  const [name, { fields }] = found;
  const checked = z.strictObject({ ...basis, ...fields }).safeParse(row);
  if (checked.error) throw problem(`A row "${data.case}" of ${bench}`, checked.error);
  return name;
}

/** Checks a whole file. Returns the kinds that are neither there nor recorded as absent. */
export function checkRowsFile(bench: BenchName, text: string): string[] {
  const [head, ...rows] = text
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  checkHead(bench, head);
  const seen = new Set(rows.map((row) => checkRow(bench, row)));
  const absent = new Set(rows.map((row) => row["contender"]));
  return Object.entries(shapes[bench].kinds)
    .filter(([name, { optional }]) => optional !== true && !seen.has(name) && !absent.has(name))
    .map(([name]) => name);
}
