/**
 * Results of checks, one file per snapshot: `verified/<id of the snapshot>.json` of the data directory. The id
 * is the digest of the manifest, so a result cannot be taken for one of another snapshot with the same tag.
 * Inside are the versions and the CPU that it was made with; with others it does not count.
 */
import { createHash } from "node:crypto";
import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { hazardIds, hazardResultSchema, type HazardResult, type Verification } from "@forkd/contract";
import { isErrno, readJson, writeFileAtomic } from "@forkd/base";
import { z } from "zod";
import type { RuntimeConfig } from "../config.ts";
import type { Runtime } from "../runtime.ts";
import { forkdVersion } from "../version.ts";

const fileVersion = 1;

const madeWithSchema = z.strictObject({
  forkd_version: z.string(),
  engine: z.string(),
  engine_version: z.string(),
  accelerator: z.enum(["kvm", "tcg"]),
  cpu: z.string(),
  agent_protocol: z.number(),
});
type MadeWith = z.output<typeof madeWithSchema>;

const resultSchema = z.strictObject({
  snapshot_id: z.string().regex(/^[0-9a-f]{64}$/),
  tag: z.string(),
  verified_at_unix: z.number(),
  made_with: madeWithSchema,
  hazards: z.array(hazardResultSchema).max(hazardIds.length),
});
export type Result = z.output<typeof resultSchema>;

const fileSchema = z.strictObject({
  version: z.literal(fileVersion),
  /** sha256 of the result as JSON without blanks */
  digest: z.string(),
  result: resultSchema,
});

/** What is known about a snapshot. */
export type Stored =
  | { readonly kind: "missing" }
  | { readonly kind: "corrupt"; readonly problem: string }
  /** `changed`: what differs from the daemon that made it */
  | { readonly kind: "found"; readonly result: Result; readonly changed: readonly string[] };

type Parts = Pick<Runtime, "config" | "host">;

export function verifiedDir({ dataDir }: Pick<RuntimeConfig, "dataDir">): string {
  return join(dataDir, "verified");
}

export async function readResult(runtime: Parts, id: string): Promise<Stored> {
  let content: unknown;
  try {
    content = await readJson(pathOf(runtime, id));
  } catch (error) {
    return { kind: "corrupt", problem: String(error) };
  }
  if (content === undefined) return { kind: "missing" };
  const parsed = fileSchema.safeParse(content);
  if (!parsed.success) return { kind: "corrupt", problem: "it does not have the form of a result" };
  const { result, digest } = parsed.data;
  if (digestOf(result) !== digest) return { kind: "corrupt", problem: "it does not match its digest" };
  if (result.snapshot_id !== id) return { kind: "corrupt", problem: "it is of another snapshot" };
  return { kind: "found", result, changed: changesSince(result.made_with, madeWith(runtime)) };
}

/** Hazards that were not checked this time keep their result if it still counts. */
export async function saveResult(
  runtime: Parts & Pick<Runtime, "store">,
  { id, tag }: { id: string; tag: string },
  checked: readonly HazardResult[],
): Promise<Result> {
  const before = await readResult(runtime, id);
  const kept = before.kind === "found" && before.changed.length === 0 ? before.result.hazards : [];
  const hazards = hazardIds.flatMap(
    (each) => checked.find((result) => result.id === each) ?? kept.find((result) => result.id === each) ?? [],
  );
  // Parsed, so that its keys have the order that a reader sees: the digest depends on it.
  const result = resultSchema.parse({
    snapshot_id: id,
    tag,
    verified_at_unix: Date.now() / 1000,
    made_with: madeWith(runtime),
    hazards,
  });
  await mkdir(verifiedDir(runtime.config), { recursive: true, mode: 0o700 });
  const file = { version: fileVersion, digest: digestOf(result), result };
  await writeFileAtomic(pathOf(runtime, id), `${JSON.stringify(file, null, 2)}\n`, 0o600);
  await removeUnused(runtime);
  return result;
}

/** Removes results of snapshots that no longer exist. */
export async function removeUnused(runtime: Pick<Runtime, "config" | "store">): Promise<void> {
  const names = await readdir(verifiedDir(runtime.config)).catch((error: unknown) => {
    if (isErrno(error, "ENOENT")) return [];
    throw error;
  });
  const ids = names.flatMap((name) => /^([0-9a-f]{64})\.json$/.exec(name)?.[1] ?? []);
  if (ids.length === 0) return;
  const stored = (await runtime.store.list()).flatMap((each) => ("problem" in each ? [] : [each]));
  // A branch refers to the result of the build that it came from, which may be removed.
  const used = new Set(stored.flatMap(({ id, manifest }) => [id, manifest.verified_as ?? id]));
  for (const id of ids)
    if (!used.has(id)) await rm(join(verifiedDir(runtime.config), `${id}.json`), { force: true });
}

/** The form of a result in answers. */
export function describeResult(runtime: Parts, result: Result): Verification {
  const outcomes = result.hazards.map(({ outcome }) => outcome);
  return {
    tag: result.tag,
    snapshot_id: result.snapshot_id,
    verified_at_unix: result.verified_at_unix,
    forkd_version: result.made_with.forkd_version,
    engine: `${result.made_with.engine} ${result.made_with.engine_version}`,
    accelerator: result.made_with.accelerator,
    outcome: outcomes.includes("fail") ? "fail" : outcomes.includes("warn") ? "warn" : "pass",
    current: changesSince(result.made_with, madeWith(runtime)).length === 0,
    hazards: result.hazards,
  };
}

function madeWith({ host }: Pick<Runtime, "host">): MadeWith {
  return {
    forkd_version: forkdVersion,
    engine: host.engineName,
    engine_version: host.engineVersion,
    accelerator: host.accelerator,
    cpu: host.cpu,
    agent_protocol: host.agentProtocol,
  };
}

function changesSince(then: MadeWith, now: MadeWith): string[] {
  return Object.entries(now).flatMap(([name, value]) => {
    const earlier = new Map(Object.entries(then)).get(name);
    return earlier === value
      ? []
      : [`${name.replaceAll("_", " ")} was ${String(earlier)}, is ${String(value)}`];
  });
}

function digestOf(result: Result): string {
  return createHash("sha256").update(JSON.stringify(result)).digest("hex");
}

function pathOf({ config }: Pick<Runtime, "config">, id: string): string {
  return join(verifiedDir(config), `${id}.json`);
}
