/** Settings: flags, then FORKD_* variables, then config.json in the data directory, then defaults. Read once. */
import { readFile } from "node:fs/promises";
import { availableParallelism, homedir } from "node:os";
import { join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { isErrno } from "@forkd/base";
import { AppError, defaultDataDir, defaultRuntimeDir, limitsSchema, type LimitName } from "@forkd/contract";
import { quotaDefaults, runtimeDefaults } from "@forkd/runtime";
import { z } from "zod";
import { accessDefaults, accessSettings } from "./access.ts";
import { exposureProblem, listenPattern } from "./exposure.ts";
import { issuesOf } from "../http/body/invalid-request.ts";

const path = z
  .string()
  .min(1)
  .transform((value) => resolve(value));
const count = (min: number, max: number) => z.coerce.number().int().min(min).max(max);

/** 0 for none, or what a caller could ask for too: a sandbox with another limit would have a record that nobody can read. */
const limitOrNone = (name: LimitName, max: number) =>
  count(0, max).refine((value) => value === 0 || limitsSchema.safeParse({ [name]: value }).success, {
    error: ({ input }) => {
      const issue = limitsSchema.safeParse({ [name]: input }).error?.issues[0];
      return `${issue?.message ?? "is not a limit"}, or 0 for none`;
    },
  });

export const settingsSchema = z.strictObject({
  /** snapshots, records, token */
  data_dir: path,
  /** sockets; short, because the length of a socket's path is limited */
  runtime_dir: path,
  /** the daemon's unix socket; default: forkd.sock in the runtime directory */
  socket: path,
  /** address and port, or "off" */
  listen: z
    .string()
    .regex(listenPattern, 'must be "off", or an IP address and a port such as "127.0.0.1:8889"'),
  /** guest agent and kernels */
  guest_dir: path,
  accelerator: z.enum(["auto", "kvm", "tcg"]),
  qemu_path: z.string().min(1),
  /** VMM processes started ahead per snapshot in use */
  pool_size: count(0, 1000),
  /** children made at the same time */
  fork_parallelism: count(1, 1000),
  max_sandboxes: count(1, 100_000),
  /** branches under way at the same time; one more is refused */
  branch_concurrency: count(1, 1000),
  /** what flat memory images of layered snapshots may take on disk */
  memory_cache_mib: count(1, 1 << 30),
  /** how long a guest may take to boot */
  boot_timeout_secs: count(1, 3600),
  /** how long a child may take to answer */
  ready_timeout_secs: count(1, 3600),
  /** what becomes of running sandboxes when the daemon stops: the next one finds them, or they end */
  on_stop: z.enum(["keep", "stop"]),
  /** "own", or the path of a group of version 2 for machines alone, seen from the daemon's own group */
  machines_cgroup: z.string().min(1),
  /** of every sandbox that is not given others; 0 for none */
  default_memory_limit_mib: limitOrNone("memory_mib", 1 << 24),
  default_cpu_percent: limitOrNone("cpu_percent", 1_000_000),
  default_disk_limit_mib: limitOrNone("disk_mib", 1 << 24),
  /** what all running sandboxes may have together; 0 for no limit */
  max_memory_mib: count(0, 1 << 30),
  /** what the disks of all sandboxes may become together; 0 for no limit */
  max_disk_mib: count(0, 1 << 30),
  /** memory and disk space of the host that forks leave alone */
  memory_reserve_mib: count(0, 1 << 30),
  disk_reserve_mib: count(0, 1 << 30),
  /** a new child is expected to write one part in so many of its memory */
  memory_overcommit: count(1, 1000),
  /** children asked for and not yet started; more are refused */
  max_pending_forks: count(1, 1_000_000),
  /** how often what the two below name is collected; 0 for never */
  gc_interval_secs: count(0, 2_000_000),
  retention_max_age_days: count(0, 36_500),
  retention_keep_last: count(0, 1_000_000),
  log_level: z.enum(["debug", "info", "warn", "error", "silent"]),
  /** "stderr" or a path */
  log_file: z.union([z.literal("stderr"), path]),
  /** size at which the log file is rotated; 0: never */
  log_max_mib: count(0, 1 << 20),
  /** rotated log files that are kept */
  log_keep: count(0, 100),
  /** scheduling priority of the daemon itself, not of what it starts; lower goes first */
  nice: count(-20, 19),
  /** longest wait for running requests when the daemon stops, in seconds */
  drain_secs: count(0, 3600),
  ...accessSettings,
});

export type Settings = Readonly<z.output<typeof settingsSchema>>;
export type SettingName = keyof Settings;
export type Source = "flag" | "environment" | "file" | "default";
export type Config = { readonly values: Settings; readonly sources: Readonly<Record<SettingName, Source>> };
export type Flags = { readonly [N in SettingName]?: string | number | undefined };
export type Environment = Readonly<Record<string, string | undefined>>;
export type Given = Readonly<Record<string, unknown>>;

export const settingNames = Object.keys(settingsSchema.shape) as SettingName[];

export type LoadOptions = {
  /** instead of the usual defaults */
  readonly defaults?: Flags;
  /** instead of what config.json holds */
  readonly file?: Given;
};

export async function loadConfig(
  flags: Flags = {},
  env: Environment = process.env,
  options: LoadOptions = {},
): Promise<Config> {
  const fromFlags = onlyGiven(flags);
  const fromEnvironment = onlyGiven(
    Object.fromEntries(settingNames.map((name) => [name, env[`FORKD_${name.toUpperCase()}`] || undefined])),
  );
  const defaults = { ...defaultsOf(env), ...onlyGiven(options.defaults ?? {}) };
  const fromFile = options.file ?? (await readConfigFile(configFileOf(flags, env)));
  return merge([
    ["flag", fromFlags],
    ["environment", fromEnvironment],
    ["file", fromFile],
    ["default", defaults],
  ]);
}

/** The file that a daemon with these flags and this environment reads. */
export function configFileOf(flags: Flags = {}, env: Environment = process.env): string {
  const dataDir = flags.data_dir ?? (env["FORKD_DATA_DIR"] || defaultsOf(env).data_dir);
  return join(resolve(String(dataDir)), "config.json");
}

/** Pure. The first layer that names a setting wins. */
function merge(layers: readonly (readonly [Source, Given])[]): Config {
  const values: Record<string, unknown> = {};
  const sources: Record<string, Source> = {};
  for (const [source, layer] of layers) {
    for (const [name, value] of Object.entries(layer)) {
      if (name in values) continue;
      values[name] = value;
      sources[name] = source;
    }
  }
  if (!("socket" in values)) {
    values["socket"] = join(String(values["runtime_dir"]), "forkd.sock");
    sources["socket"] = "default";
  }
  const settings = settingsSchema.safeParse(values);
  if (!settings.success) {
    const issues = issuesOf(settings.error).map((issue) => ({ ...issue, source: sources[issue.path] }));
    const text = issues.map(
      ({ path: name, message, source }) => `${name} (from ${source ?? "file"}): ${message}`,
    );
    throw new AppError("invalid_request", `Invalid settings: ${text.join("; ")}`, { details: { issues } });
  }
  const exposed = exposureProblem(settings.data);
  if (exposed !== undefined) throw new AppError("invalid_request", `Invalid settings: ${exposed}`);
  // Every setting has a default, so every name has a source.
  return Object.freeze({
    values: Object.freeze(settings.data),
    sources: sources as Record<SettingName, Source>,
  });
}

function onlyGiven(layer: Given): Given {
  return Object.fromEntries(Object.entries(layer).filter(([, value]) => value !== undefined));
}

export function defaultsOf(env: Environment): Omit<Settings, "socket"> {
  const facts = { env, uid: process.getuid?.() ?? 0, home: homedir() };
  return {
    data_dir: defaultDataDir(facts),
    runtime_dir: defaultRuntimeDir(facts),
    listen: "127.0.0.1:8889",
    guest_dir: fileURLToPath(new URL("../../../../../guest", import.meta.url)),
    accelerator: runtimeDefaults.accelerator,
    qemu_path: runtimeDefaults.qemuPath,
    pool_size: runtimeDefaults.poolSize,
    fork_parallelism: Math.max(2, availableParallelism()),
    max_sandboxes: runtimeDefaults.maxSandboxes,
    branch_concurrency: runtimeDefaults.branchConcurrency,
    memory_cache_mib: runtimeDefaults.memoryCacheMib,
    boot_timeout_secs: runtimeDefaults.bootTimeoutMs / 1000,
    ready_timeout_secs: runtimeDefaults.readyTimeoutMs / 1000,
    on_stop: runtimeDefaults.onStop,
    machines_cgroup: "own",
    default_memory_limit_mib: 0,
    default_cpu_percent: 0,
    default_disk_limit_mib: 0,
    max_memory_mib: quotaDefaults.maxMemoryMib,
    max_disk_mib: quotaDefaults.maxDiskMib,
    memory_reserve_mib: quotaDefaults.memoryReserveMib,
    disk_reserve_mib: quotaDefaults.diskReserveMib,
    memory_overcommit: quotaDefaults.memoryOvercommit,
    max_pending_forks: quotaDefaults.maxPendingForks,
    gc_interval_secs: quotaDefaults.gcIntervalSecs,
    retention_max_age_days: quotaDefaults.retention.maxAgeDays,
    retention_keep_last: quotaDefaults.retention.keepLast,
    log_level: "info",
    log_file: "stderr",
    log_max_mib: 64,
    log_keep: 4,
    nice: -5,
    drain_secs: 5,
    ...accessDefaults,
  };
}

export async function readConfigFile(file: string): Promise<Given> {
  let text: string;
  try {
    text = await readFile(file, "utf8");
  } catch (error) {
    if (isErrno(error, "ENOENT")) return {};
    throw error;
  }
  try {
    const { data_dir: _, ...rest } = z.record(z.string(), z.unknown()).parse(JSON.parse(text));
    return rest;
  } catch (error) {
    throw new AppError("invalid_request", `Cannot read ${file}: it must hold one JSON object`, {
      cause: error,
    });
  }
}
