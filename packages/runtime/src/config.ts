/**
 * The settings of the runtime. A new one needs its entry in this table, and nothing else: the type
 * RuntimeConfig, the daemon's settings and the documentation follow from it.
 */
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import {
  defaultDataDir,
  defaultRuntimeDir,
  limitsSchema,
  type DirectoryFacts,
  type LimitName,
} from "@forkd/contract";
import { guestDeadlinesOf, vmmDeadlinesOf, type GuestDeadlines, type VmmDeadlines } from "@forkd/machine";
import { maxChainDepth } from "@forkd/store";
import { z } from "zod";
import { hubSettings } from "./hub-settings.ts";
import { isolationSettings } from "./isolation-settings.ts";
import {
  count,
  defaultsOf,
  hostFacts,
  path,
  runtimeSetting as setting,
  type RuntimeSetting,
} from "./setting.ts";

const maxMib = 1 << 30;

/**
 * 0 for none, or a limit that a request may ask for: otherwise the sandbox's record could not be read again.
 */
const limitOrNone = (name: LimitName, max: number) =>
  count(0, max).refine((value) => value === 0 || limitsSchema.safeParse({ [name]: value }).success, {
    error: ({ input }) => {
      const issue = limitsSchema.safeParse({ [name]: input }).error?.issues[0];
      return `${issue?.message ?? "is not a limit"}, or 0 for none`;
    },
  });

const defaultLimit =
  <Name extends LimitName>(name: Name) =>
  (value: number) => ({
    // Cast: the type of an object with a computed key has any string as its key.
    quota: { defaultLimits: (value > 0 ? { [name]: value } : {}) as { [N in Name]?: number } },
  });

/** In the order in which the documentation lists them. */
export const runtimeSettings = {
  data_dir: setting({
    schema: path,
    default: defaultDataDir,
    usually: "/var/lib/forkd for root, otherwise forkd in $XDG_DATA_HOME or ~/.local/share",
    meaning:
      "Directory for snapshots, images, sandboxes, the token and config.json; config.json cannot set it.",
    flag: { value: "dir", help: "Keep snapshots, records and the token here" },
    becomes: (dataDir) => ({ dataDir }),
  }),
  runtime_dir: setting({
    schema: path,
    default: defaultRuntimeDir,
    usually: "/run/forkd for root, otherwise forkd in $XDG_RUNTIME_DIR or /tmp/forkd-UID",
    meaning: "Directory for sockets, with a path of at most 60 characters and best on a tmpfs.",
    flag: { value: "dir", help: "Keep sockets here" },
    becomes: (runtimeDir) => ({ runtimeDir }),
  }),
  guest_dir: setting({
    schema: path,
    default: () => fileURLToPath(new URL("../../../../guest", import.meta.url)),
    usually: "guest in the source tree",
    meaning: "Directory with the guest agent and the language kernels.",
    becomes: (guestDir) => ({ guestDir }),
  }),
  recipes_dir: setting({
    schema: path,
    default: () => fileURLToPath(new URL("../../../../recipes", import.meta.url)),
    usually: "recipes in the source tree",
    meaning: "Directory with the bundled recipes, which other recipes can extend by their names.",
    becomes: (recipesDir) => ({ recipesDir }),
  }),
  accelerator: setting({
    schema: z.enum(["auto", "kvm", "tcg"]),
    default: "auto",
    meaning: "How QEMU runs guests; auto uses KVM if a test guest boots with it.",
    flag: { value: "name", help: "Run guests with auto, kvm or tcg" },
    becomes: (accelerator) => ({ accelerator }),
  }),
  qemu_path: setting({
    schema: z.string().min(1),
    default: "qemu-system-x86_64",
    meaning: "QEMU program, as a path or a name in PATH.",
    becomes: (qemuPath) => ({ qemuPath }),
  }),
  pool_memory_percent: setting({
    schema: count(0, 90),
    default: 10,
    unit: "percent",
    meaning:
      "Part of the host's memory that children may use which wait ready to be handed out; 0 for no ready children.",
    flag: { value: "percent", help: "Use this part of the memory for ready children" },
    becomes: (poolMemoryPercent) => ({ poolMemoryPercent }),
  }),
  fork_parallelism: setting({
    schema: count(1, 1000),
    default: ({ cores }) => Math.max(2, cores),
    usually: "number of cores, at least 2",
    meaning: "Maximum number of children that start at the same time.",
    flag: { value: "count", help: "Start at most this many children at once" },
    becomes: (forkParallelism) => ({ forkParallelism }),
  }),
  max_sandboxes: setting({
    schema: count(1, 100_000),
    default: 1000,
    meaning: "Maximum number of live sandboxes.",
    flag: { value: "count", help: "Allow at most this many live sandboxes" },
    becomes: (maxSandboxes) => ({ maxSandboxes }),
  }),
  branch_concurrency: setting({
    schema: count(1, 1000),
    default: 8,
    meaning: "Maximum number of branches in progress; the daemon refuses one more.",
    flag: { value: "count", help: "Allow at most this many branches in progress" },
    becomes: (branchConcurrency) => ({ branchConcurrency }),
  }),
  memory_cache_mib: setting({
    schema: count(1, maxMib),
    default: 16_384,
    unit: "MiB",
    meaning: "Maximum size on disk of all flat images; the least recently used ones are removed first.",
    flag: { value: "mib", help: "Limit the size of all flat images on disk" },
    becomes: (memoryCacheMib) => ({ memoryCacheMib }),
  }),
  blob_cache_mib: setting({
    schema: count(0, maxMib),
    default: 4096,
    unit: "MiB",
    meaning:
      "Maximum size on disk of compressed parts of snapshots, which make the next archive faster; the least recently used ones are removed first.",
    becomes: (blobCacheMib) => ({ blobCacheMib }),
  }),
  compact_depth: setting({
    schema: count(0, maxChainDepth - 1),
    default: 24,
    meaning:
      "Number of snapshots in a chain from which on the daemon keeps the whole memory of the newest one in the background, so that the chain can grow; 0 for never.",
    becomes: (compactDepth) => ({ compactDepth }),
  }),
  boot_timeout_secs: setting({
    schema: count(1, 3600),
    default: 180,
    unit: "seconds",
    meaning: "Maximum time for a guest to boot and answer, including one restart.",
    becomes: (seconds) => ({ bootTimeoutMs: seconds * 1000 }),
  }),
  ready_timeout_secs: setting({
    schema: count(1, 3600),
    default: 60,
    unit: "seconds",
    meaning: "Maximum time for the agent in a new child to answer.",
    becomes: (seconds) => ({ readyTimeoutMs: seconds * 1000 }),
  }),
  vmm_timeout_secs: setting({
    schema: count(1, 3600),
    default: 30,
    unit: "seconds",
    meaning:
      "Maximum time for a VMM to answer a command; one that does not is killed. Its other deadlines follow in proportion.",
    becomes: (seconds): { vmmDeadlines: VmmDeadlines } => ({ vmmDeadlines: vmmDeadlinesOf(seconds * 1000) }),
  }),
  guest_timeout_secs: setting({
    schema: count(1, 3600),
    default: 30,
    unit: "seconds",
    meaning:
      "Maximum time for a guest agent to answer; then the call fails. Its other deadlines follow in proportion.",
    becomes: (seconds): { guestDeadlines: GuestDeadlines } => ({
      guestDeadlines: guestDeadlinesOf(seconds * 1000),
    }),
  }),
  on_stop: setting({
    schema: z.enum(["keep", "stop"]),
    default: "keep",
    meaning:
      "What happens to running sandboxes when the daemon stops: keep leaves them for the next daemon to adopt, stop saves workspaces and stops the other sandboxes.",
    flag: { value: "what", help: "Keep or stop running sandboxes when the daemon stops" },
    becomes: (onStop) => ({ onStop }),
  }),
  machines_cgroup: setting({
    schema: z.string().min(1),
    default: "own",
    allowed: '"own", or a path relative to the daemon\'s own group, such as ../forkd-machines.service',
    meaning:
      "Parent of the control groups (version 2) of machines with limits: the daemon's own group, or one only for machines.",
    becomes: (group): { machinesGroup?: string | undefined } =>
      group === "own" ? {} : { machinesGroup: group },
  }),
  ...isolationSettings,
  ...hubSettings,
  default_memory_limit_mib: setting({
    schema: limitOrNone("memory_mib", 1 << 24),
    default: 0,
    unit: "MiB",
    meaning: "Limit of host memory for each sandbox that is forked without one; 0 for none.",
    becomes: defaultLimit("memory_mib"),
  }),
  default_cpu_percent: setting({
    schema: limitOrNone("cpu_percent", 1_000_000),
    default: 0,
    unit: "percent",
    meaning:
      "Limit of CPU time for each sandbox that is forked without one, where 100 is one core; 0 for none.",
    becomes: defaultLimit("cpu_percent"),
  }),
  default_disk_limit_mib: setting({
    schema: limitOrNone("disk_mib", 1 << 24),
    default: 0,
    unit: "MiB",
    meaning: "Limit of disk space for each sandbox that is forked without one; 0 for none.",
    becomes: defaultLimit("disk_mib"),
  }),
  max_memory_mib: setting({
    schema: count(0, maxMib),
    default: 0,
    unit: "MiB",
    meaning: "Maximum memory of all running sandboxes together; 0 for no limit.",
    becomes: (maxMemoryMib) => ({ quota: { maxMemoryMib } }),
  }),
  max_disk_mib: setting({
    schema: count(0, maxMib),
    default: 0,
    unit: "MiB",
    meaning: "Maximum size to which the disks of all sandboxes together may grow; 0 for no limit.",
    becomes: (maxDiskMib) => ({ quota: { maxDiskMib } }),
  }),
  memory_reserve_mib: setting({
    schema: count(0, maxMib),
    default: 256,
    unit: "MiB",
    meaning: "Host memory that forks leave free.",
    becomes: (memoryReserveMib) => ({ quota: { memoryReserveMib } }),
  }),
  disk_reserve_mib: setting({
    schema: count(0, maxMib),
    default: 64,
    unit: "MiB",
    meaning: "Disk space in the data directory that forks leave free.",
    becomes: (diskReserveMib) => ({ quota: { diskReserveMib } }),
  }),
  memory_overcommit: setting({
    schema: count(1, 1000),
    default: 16,
    meaning:
      "Divisor for the memory that a new child is expected to write: 16 means one sixteenth of its memory.",
    becomes: (memoryOvercommit) => ({ quota: { memoryOvercommit } }),
  }),
  max_pending_forks: setting({
    schema: count(1, 1_000_000),
    default: 2000,
    meaning: "Maximum number of requested children that have not started yet; the daemon refuses more.",
    becomes: (maxPendingForks) => ({ quota: { maxPendingForks } }),
  }),
  max_port_connections: setting({
    schema: count(1, 65_535),
    default: 256,
    meaning: "Maximum number of connections to one port of a sandbox.",
    becomes: (maxPortConnections) => ({ maxPortConnections }),
  }),
  gc_interval_secs: setting({
    schema: count(0, 2_000_000),
    default: 0,
    unit: "seconds",
    meaning:
      "Time between two collections of branches, if retention_max_age_days or retention_keep_last is set; 0 for never.",
    becomes: (gcIntervalSecs) => ({ quota: { gcIntervalSecs } }),
  }),
  retention_max_age_days: setting({
    schema: count(0, 36_500),
    default: 0,
    unit: "days",
    meaning: "Age at which a collection removes an unused branch; 0 to ignore the age.",
    becomes: (maxAgeDays) => ({ quota: { retention: { maxAgeDays } } }),
  }),
  retention_keep_last: setting({
    schema: count(0, 1_000_000),
    default: 0,
    meaning: "Number of newest branches that a collection keeps; 0 to ignore the number.",
    becomes: (keepLast) => ({ quota: { retention: { keepLast } } }),
  }),
};

type RuntimeTable = typeof runtimeSettings;

type PartOf<Entry> = Entry extends RuntimeSetting<z.ZodType, infer Part> ? Part : never;
type Intersection<Union> = (Union extends unknown ? (each: Union) => void : never) extends (
  all: infer All,
) => void
  ? All
  : never;
type Flat<T> = T extends object ? { [Key in keyof T]: Flat<T[Key]> } : T;

/** Parsed values, by the names of the settings. */
export type RuntimeValues = { readonly [Name in keyof RuntimeTable]: z.output<RuntimeTable[Name]["schema"]> };
/** What all entries of the table become together. */
export type RuntimeConfig = Flat<Intersection<PartOf<RuntimeTable[keyof RuntimeTable]>>>;
export type OnStop = RuntimeConfig["onStop"];
/** What sandboxes may use. */
export type QuotaSettings = RuntimeConfig["quota"];

export function runtimeConfig(values: RuntimeValues, table: RuntimeTable = runtimeSettings): RuntimeConfig {
  const entries: Readonly<Record<string, RuntimeSetting>> = table;
  const given: Readonly<Record<string, unknown>> = values;
  let config: Record<string, unknown> = {};
  for (const [name, entry] of Object.entries(entries)) config = merged(config, entry.becomes(given[name]));
  // Cast: RuntimeConfig is by definition what the entries of the table become.
  return config as RuntimeConfig;
}

function merged(first: object, second: object): Record<string, unknown> {
  const both: Record<string, unknown> = { ...first };
  for (const [key, value] of Object.entries(second) as [string, unknown][]) {
    const before = both[key];
    both[key] = isPlainObject(before) && isPlainObject(value) ? merged(before, value) : value;
  }
  return both;
}

function isPlainObject(value: unknown): value is object {
  return typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;
}

/** The configuration of a runtime for which nothing is set. */
export function defaultRuntimeConfig(env: DirectoryFacts["env"] = {}): RuntimeConfig {
  // Cast: every setting of the runtime has a default, which setting() has checked against the schema.
  return runtimeConfig(defaultsOf(runtimeSettings, hostFacts(env)) as RuntimeValues);
}

export function snapshotsDir(config: RuntimeConfig): string {
  return join(config.dataDir, "snapshots");
}

/** The cache of root file systems, kernels and initramfs. */
export function imagesDir(config: RuntimeConfig): string {
  return join(config.dataDir, "images");
}

/** The agent's binary; it is also the tool that measures the host's TSC. */
export function agentPath(config: RuntimeConfig): string {
  return join(config.guestDir, "build", "forkd-agent");
}
