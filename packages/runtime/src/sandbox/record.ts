/**
 * What a later daemon must know about a sandbox: the content of `sandbox.json` in its home. A sandbox exists
 * for a later daemon from the moment its record has its name until the record is removed. A fork ends with
 * the rename and a kill begins with the removal, so no daemon adopts a sandbox that is half made or half
 * killed.
 */
import { basename, dirname, join } from "node:path";
import { maxLineage, viewNamePattern } from "@forkd/store";
import { z } from "zod";
import { isErrno, readJson, UnsafeFile } from "@forkd/base";
import { hostBootId } from "@forkd/machine";
import {
  advice,
  AppError,
  limitNames,
  networkModeSchema,
  onTimeoutSchema,
  sandboxIdSchema,
  tagSchema,
  workspaceNameSchema,
  type LimitName,
} from "@forkd/contract";
import type { SandboxNetwork } from "../network/sandbox-network.ts";
import type { SandboxHome } from "./paths.ts";
import { openPortSchema, type OpenPort } from "./ports.ts";
import type { SandboxFacts, SandboxTimeouts, SavedState } from "./facts.ts";

const recordVersion = 2;
const stateName = z.string().regex(/^state-\d+$/);

/** Looser than the request, whose bounds may differ between versions. */
const keptLimitsSchema = z.object({
  best_effort: z.boolean(),
  ...(Object.fromEntries(limitNames.map((name) => [name, z.number().optional()])) as Record<
    LimitName,
    z.ZodOptional<z.ZodNumber>
  >),
});

const machineSchema = z.strictObject({
  number: z.int().min(0),
  pid: z.int().min(1),
  /** clock ticks since the boot of the host */
  start_time: z.int().min(0),
  host_boot_id: z.string(),
  socket_dir: z.string(),
  /** what it started from: a tagged snapshot, or with `state` a saved state of this sandbox */
  base: z.strictObject({ tag: z.string(), stamp: z.string(), state: stateName.optional() }),
  /** stamp of the flat image or view that it maps, if it maps one */
  image_stamp: z.string().optional(),
  /** name of the view */
  view: z.string().regex(viewNamePattern).optional(),
});
export type MachineRecord = z.output<typeof machineSchema>;

const policySchema = z.strictObject({ mode: networkModeSchema, rules: z.array(z.string()) });
const networkRecordSchema = policySchema.extend({
  /** rules of the snapshot, which follow its own */
  inherited: z.array(z.string()),
  ceilings: z.array(policySchema),
  /** placeholders by the names of secrets */
  secrets: z.record(z.string(), z.string()),
});

export const recordSchema = z.strictObject({
  version: z.literal(recordVersion),
  id: sandboxIdSchema,
  hostname: z.string(),
  machine_id: z.string(),
  boot_id: z.string(),
  env: z.record(z.string(), z.string()),
  labels: z.record(z.string(), z.string()),
  index: z.int().min(0),
  ttl_secs: z.int().min(1).optional(),
  expires_at_unix: z.number().optional(),
  created_at_unix: z.number(),
  workspace: workspaceNameSchema.optional(),
  owner: z.string().optional(),
  snapshot_tag: tagSchema,
  /** ids of the snapshots that it came from and may be rewound to, beside the chain of the current one */
  visited: z.array(z.string()).max(maxLineage).optional(),
  /** how many machines it has had */
  machines: z.int().min(0),
  /** `name` is the directory of the saved state in its home */
  saved: z.strictObject({ name: stateName, at_unix: z.number() }).optional(),
  /** absent while it is paused */
  machine: machineSchema.optional(),
  limits: keptLimitsSchema.optional(),
  idle_timeout_secs: z.int().min(1).optional(),
  on_timeout: onTimeoutSchema.optional(),
  auto_resume: z.boolean().optional(),
  /** absent in records of daemons without a network */
  network: networkRecordSchema.optional(),
  ports: z.array(openPortSchema).optional(),
});
export type SandboxRecord = z.output<typeof recordSchema>;

export function factsOf(record: SandboxRecord): SandboxFacts {
  return {
    id: record.id,
    identity: { hostname: record.hostname, machineId: record.machine_id, bootId: record.boot_id },
    env: record.env,
    labels: record.labels,
    index: record.index,
    createdAt: record.created_at_unix,
    workspace: record.workspace,
    owner: record.owner,
    limits: record.limits,
  };
}

export function timeoutsOf(record: SandboxRecord): SandboxTimeouts {
  return {
    idleSecs: record.idle_timeout_secs,
    onTimeout: record.on_timeout ?? "kill",
    autoResume: record.auto_resume ?? false,
  };
}

/** What a record says about a machine; known as soon as its process has started. */
export type MachineFacts = {
  number: number;
  process: { pid: number; startTime: number };
  socketDir: string;
  base: { tag: string; stamp: string; dir: string };
  image: MappedImage | undefined;
};

/** What a machine maps if its snapshot does not have its whole memory in one file. */
export type MappedImage = {
  /** of the flat image, or of the view */
  stamp: string;
  /** name of the view in the store; absent for a flat image */
  view: string | undefined;
};

/** The parts of a record that change during the life of a sandbox. */
export type RecordState = {
  machine: MachineFacts | undefined;
  saved: SavedState | undefined;
  tag: string;
  visited: readonly string[];
  /** ignored without a machine */
  expiresAt: number | undefined;
  ttlSecs: number | undefined;
  timeouts: SandboxTimeouts;
  network: SandboxNetwork;
  ports: readonly OpenPort[];
};

/** The parts that do not change, but for the number of machines. */
type RecordedSandbox = {
  readonly facts: SandboxFacts;
  readonly home: SandboxHome;
  readonly machineCount: number;
};

export function recordOf({ facts, home, machineCount }: RecordedSandbox, state: RecordState): SandboxRecord {
  const { machine, saved, tag, visited, expiresAt, ttlSecs, timeouts, network, ports } = state;
  return {
    version: recordVersion,
    id: facts.id,
    hostname: facts.identity.hostname,
    machine_id: facts.identity.machineId,
    boot_id: facts.identity.bootId,
    env: { ...facts.env },
    labels: { ...facts.labels },
    index: facts.index,
    ...(ttlSecs !== undefined && { ttl_secs: ttlSecs }),
    ...(machine && expiresAt !== undefined && { expires_at_unix: expiresAt }),
    created_at_unix: facts.createdAt,
    ...(facts.workspace !== undefined && { workspace: facts.workspace }),
    ...(facts.owner !== undefined && { owner: facts.owner }),
    snapshot_tag: tag,
    ...(visited.length > 0 && { visited: [...visited] }),
    ...(facts.limits && { limits: facts.limits }),
    ...(timeouts.idleSecs !== undefined && { idle_timeout_secs: timeouts.idleSecs }),
    on_timeout: timeouts.onTimeout,
    auto_resume: timeouts.autoResume,
    network: networkRecord(network),
    ...(ports.length > 0 && { ports: [...ports] }),
    machines: machineCount,
    ...(saved && { saved: { name: basename(saved.snapshot.dir), at_unix: saved.savedAt } }),
    ...(machine && { machine: machineRecord(machine, home) }),
  };
}

function networkRecord(network: SandboxNetwork): z.output<typeof networkRecordSchema> {
  const { mode, rules, inherited, ceilings, secrets } = network;
  return {
    mode,
    rules: [...rules],
    inherited: [...inherited],
    ceilings: ceilings.map((each) => ({ mode: each.mode, rules: [...each.rules] })),
    secrets: { ...secrets },
  };
}

function machineRecord(machine: MachineFacts, home: SandboxHome): MachineRecord {
  const { base } = machine;
  return {
    number: machine.number,
    pid: machine.process.pid,
    start_time: machine.process.startTime,
    host_boot_id: hostBootId(),
    socket_dir: machine.socketDir,
    base: {
      tag: base.tag,
      stamp: base.stamp,
      ...(dirname(base.dir) === home.dir && { state: basename(base.dir) }),
    },
    ...(machine.image && { image_stamp: machine.image.stamp }),
    ...(machine.image?.view !== undefined && { view: machine.image.view }),
  };
}

/**
 * undefined if there is no record. Throws if it cannot be read: `host_not_ready` if a daemon of another
 * version or another user could read it, `internal` if it is damaged.
 */
export async function readRecord(home: SandboxHome): Promise<SandboxRecord | undefined> {
  let content: unknown;
  try {
    content = await readJson(home.recordPath);
  } catch (error) {
    if (isErrno(error, "EACCES", "EPERM")) throw foreign(home.recordPath, String(error));
    if (isErrno(error, "EIO") || error instanceof UnsafeFile || error instanceof SyntaxError)
      throw damaged(home, String(error));
    throw error;
  }
  if (content === undefined) return undefined;
  const parsed = recordSchema.safeParse(content);
  if (parsed.success && parsed.data.id === basename(home.dir)) return parsed.data;
  const version = versionSchema.safeParse(content).data?.version;
  if (version !== undefined && version !== recordVersion)
    throw foreign(
      home.recordPath,
      `it has version ${version}, and this forkd reads version ${recordVersion}`,
    );
  const why = parsed.success ? "it is of another sandbox" : z.prettifyError(parsed.error);
  const isNewer = parsed.error?.issues.every(({ code }) => code === "unrecognized_keys") ?? false;
  throw isNewer ? foreign(home.recordPath, why) : damaged(home, why);
}

const versionSchema = z.object({ version: z.int() });

function damaged(home: SandboxHome, why: string): AppError {
  return new AppError("internal", `Cannot read ${home.recordPath}: ${why}`);
}

/** For files that another daemon can read: this one must neither end nor remove what they name. */
export function foreign(path: string, why: string): AppError {
  return new AppError(
    "host_not_ready",
    `Cannot adopt the sandboxes: cannot read ${path}: ${why}. Nothing was changed`,
    {
      details: { file: path },
      remedy: advice("Start the version of the daemon that wrote it, as the user who owns it."),
    },
  );
}

export function savedDir(home: SandboxHome, name: string): string {
  return join(home.dir, name);
}
