/**
 * The facts of a sandbox that outlive the daemon: `sandbox.json` in its home. A sandbox exists for a later daemon from the moment
 * its record is there until the record is gone: being handed out is a rename, being killed begins with a removal, so nothing
 * half made or half killed is ever taken for a sandbox.
 */
import { rename, rm } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { z } from "zod";
import { giveName, isErrno, Mutex, readJson, writeFileBeside } from "@forkd/base";
import { hostBootId } from "@forkd/machine";
import {
  advice,
  AppError,
  limitNames,
  onTimeoutSchema,
  sandboxIdSchema,
  tagSchema,
  workspaceNameSchema,
  type LimitName,
} from "@forkd/contract";
import type { SandboxHome } from "./paths.ts";
import type { SandboxFacts, SandboxTimeouts, SavedState } from "./facts.ts";
import type { Sandbox } from "./sandbox.ts";

export const recordVersion = 2;
const stateName = z.string().regex(/^state-\d+$/);

/** What was allowed when it was asked for: a later version may allow something else. */
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
  /** what it began from: a tagged snapshot, or with `state` a saved one of its own */
  base: z.strictObject({ tag: z.string(), stamp: z.string(), state: stateName.optional() }),
  /** of the flat image that it maps, if it maps one */
  image_stamp: z.string().optional(),
});
export type MachineRecord = z.output<typeof machineSchema>;

const recordSchema = z.strictObject({
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
  /** machines that it has had */
  machines: z.int().min(0),
  /** directory of its saved state below its home */
  saved: z.strictObject({ name: stateName, at_unix: z.number() }).optional(),
  /** the one that it has; absent while it is paused */
  machine: machineSchema.optional(),
  limits: keptLimitsSchema.optional(),
  idle_timeout_secs: z.int().min(1).optional(),
  on_timeout: onTimeoutSchema.optional(),
  auto_resume: z.boolean().optional(),
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

/** What a record says of a machine, known as soon as its process is there. */
export type MachineFacts = {
  number: number;
  process: { pid: number; startTime: number };
  socketDir: string;
  base: { tag: string; stamp: string; dir: string };
  imageStamp: string | undefined;
};

/** Where the sandbox is to be found again. */
export type RecordState = {
  machine: MachineFacts | undefined;
  saved: SavedState | undefined;
  tag: string;
  /** while it has a machine */
  expiresAt: number | undefined;
};

export function recordOf(sandbox: Sandbox, { machine, saved, tag, expiresAt }: RecordState): SandboxRecord {
  const { facts } = sandbox;
  return {
    version: recordVersion,
    id: facts.id,
    hostname: facts.identity.hostname,
    machine_id: facts.identity.machineId,
    boot_id: facts.identity.bootId,
    env: { ...facts.env },
    labels: { ...facts.labels },
    index: facts.index,
    ...(sandbox.ttlSecs !== undefined && { ttl_secs: sandbox.ttlSecs }),
    ...(machine && expiresAt !== undefined && { expires_at_unix: expiresAt }),
    created_at_unix: facts.createdAt,
    ...(facts.workspace !== undefined && { workspace: facts.workspace }),
    ...(facts.owner !== undefined && { owner: facts.owner }),
    snapshot_tag: tag,
    ...(facts.limits && { limits: facts.limits }),
    ...(sandbox.timeouts.idleSecs !== undefined && { idle_timeout_secs: sandbox.timeouts.idleSecs }),
    on_timeout: sandbox.timeouts.onTimeout,
    auto_resume: sandbox.timeouts.autoResume,
    machines: sandbox.machineCount,
    ...(saved && { saved: { name: basename(saved.snapshot.dir), at_unix: saved.savedAt } }),
    ...(machine && { machine: machineRecord(machine, sandbox.home) }),
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
    ...(machine.imageStamp !== undefined && { image_stamp: machine.imageStamp }),
  };
}

/** The one writer of one sandbox's record. */
export class RecordFile {
  readonly #path: string;
  readonly #writes = new Mutex();
  #staged: string | undefined;
  #isGone = false;
  #isLeft = false;

  constructor(home: SandboxHome) {
    this.#path = home.recordPath;
  }

  /** Writes it, synced, under a name that means nothing yet. */
  stage(record: SandboxRecord): Promise<void> {
    return this.#writes.run(async () => {
      this.#staged = await this.#writeBeside(record);
    });
  }

  /** Gives what was staged its name. Does nothing if another record was written since. */
  commit(): Promise<void> {
    return this.#writes.run(async () => {
      const staged = this.#staged;
      if (staged === undefined) return;
      this.#staged = undefined;
      await this.#refuseIfOver(staged);
      // Not synced: the machine does not outlive the host, and without it there is nothing to be known.
      await rename(staged, this.#path);
    });
  }

  write(record: SandboxRecord): Promise<void> {
    return this.#writes.run(async () => {
      const path = await this.#writeBeside(record);
      await this.#refuseIfOver(path);
      await giveName(path, this.#path);
      if (this.#staged !== undefined) await rm(this.#staged, { force: true });
      this.#staged = undefined;
    });
  }

  /** From now on the sandbox is not one any more, and nothing can make it one again. */
  remove(): Promise<void> {
    this.#isGone = true;
    return this.#writes.run(() => rm(this.#path, { force: true }));
  }

  /** Stays as it is: it is the next daemon's to write. Resolves when nothing is being written. */
  leave(): Promise<void> {
    this.#isLeft = true;
    return this.#writes.run(async () => undefined);
  }

  #writeBeside(record: SandboxRecord): Promise<string> {
    return writeFileBeside(this.#path, `${JSON.stringify(record, null, 2)}\n`, 0o600);
  }

  async #refuseIfOver(path: string): Promise<void> {
    if (this.#isGone) {
      await rm(path, { force: true });
      throw new AppError("cancelled", "The sandbox was killed");
    }
    if (this.#isLeft) {
      await rm(path, { force: true });
      throw new AppError("daemon_stopping", "The daemon is stopping", { remedy: { action: "retry_later" } });
    }
  }
}

/**
 * undefined if there is none; throws if it cannot be understood: `host_not_ready` if a daemon of another version or another user
 * could, so that it is not ours to give up.
 */
export async function readRecord(home: SandboxHome): Promise<SandboxRecord | undefined> {
  let content: unknown;
  try {
    content = await readJson(home.recordPath);
  } catch (error) {
    if (isErrno(error, "EACCES", "EPERM")) throw foreign(home.recordPath, String(error));
    if (isErrno(error, "EIO", "EISDIR") || error instanceof SyntaxError) throw damaged(home, String(error));
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

/** What somebody else can read is neither ended nor removed. */
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
