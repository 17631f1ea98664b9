/**
 * The facts of a sandbox that outlive the daemon: `sandbox.json` in its home. Only a sandbox that can come back has one: it was
 * paused, or it is a workspace.
 */
import { basename, join } from "node:path";
import { z } from "zod";
import {
  AppError,
  askedLimitsSchema,
  onTimeoutSchema,
  sandboxIdSchema,
  tagSchema,
  workspaceNameSchema,
} from "@forkd/contract";
import { readJson, writeFileAtomic } from "@forkd/base";
import type { SandboxHome } from "../identity.ts";
import type { SavedState, Sandbox, SandboxFacts, SandboxTimeouts } from "./sandbox.ts";

const recordSchema = z.strictObject({
  version: z.literal(1),
  id: sandboxIdSchema,
  hostname: z.string(),
  machine_id: z.string(),
  boot_id: z.string(),
  env: z.record(z.string(), z.string()),
  labels: z.record(z.string(), z.string()),
  index: z.int().min(0),
  ttl_secs: z.int().min(1).optional(),
  created_at_unix: z.number(),
  workspace: workspaceNameSchema.optional(),
  owner: z.string().optional(),
  snapshot_tag: tagSchema,
  /** machines that it has had */
  machines: z.int().min(0),
  /** directory of its saved state below its home */
  limits: askedLimitsSchema.optional(),
  idle_timeout_secs: z.int().min(1).optional(),
  on_timeout: onTimeoutSchema.optional(),
  auto_resume: z.boolean().optional(),
  saved: z.strictObject({ name: z.string().regex(/^state-\d+$/), at_unix: z.number() }).optional(),
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

/** `saved` is what the sandbox is to come back to. */
export async function writeRecord(sandbox: Sandbox, saved: SavedState | undefined): Promise<void> {
  const { facts } = sandbox;
  const record: SandboxRecord = {
    version: 1,
    id: facts.id,
    hostname: facts.identity.hostname,
    machine_id: facts.identity.machineId,
    boot_id: facts.identity.bootId,
    env: { ...facts.env },
    labels: { ...facts.labels },
    index: facts.index,
    ...(sandbox.ttlSecs !== undefined && { ttl_secs: sandbox.ttlSecs }),
    created_at_unix: facts.createdAt,
    ...(facts.workspace !== undefined && { workspace: facts.workspace }),
    ...(facts.owner !== undefined && { owner: facts.owner }),
    ...(facts.limits && { limits: facts.limits }),
    ...(sandbox.timeouts.idleSecs !== undefined && { idle_timeout_secs: sandbox.timeouts.idleSecs }),
    on_timeout: sandbox.timeouts.onTimeout,
    auto_resume: sandbox.timeouts.autoResume,
    snapshot_tag: sandbox.snapshotTag,
    machines: sandbox.machineCount,
    ...(saved && { saved: { name: basename(saved.snapshot.dir), at_unix: saved.savedAt } }),
  };
  await writeFileAtomic(sandbox.home.recordPath, `${JSON.stringify(record, null, 2)}\n`, 0o600);
}

/** undefined if there is none; throws if it cannot be understood. */
export async function readRecord(home: SandboxHome): Promise<SandboxRecord | undefined> {
  const content = await readJson(home.recordPath);
  if (content === undefined) return undefined;
  const parsed = recordSchema.safeParse(content);
  if (parsed.success) return parsed.data;
  throw new AppError("internal", `Cannot read ${home.recordPath}: ${z.prettifyError(parsed.error)}`);
}

export function savedDir(home: SandboxHome, name: string): string {
  return join(home.dir, name);
}
