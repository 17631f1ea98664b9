/** Requests about templates and their builds. */
import { AppError, type SnapshotInfo } from "@forkd/contract";
import { findSnapshots } from "@forkd/runtime";
import { z } from "zod";
import { invalid, unsupported, type Answer } from "../control/answer.ts";
import { isForkTag } from "../control/fork-snapshots.ts";
import { isoOf } from "../control/describe.ts";
import { diskMibOf } from "../control/disk-size.ts";
import { parse } from "../control/parse.ts";
import type { Call, Plane } from "../control/plane.ts";
import { envdVersion } from "../types.ts";
import { newTemplateId, uuidOf, type Template } from "./names.ts";
import { stepSchema } from "./steps.ts";

const maxSteps = 500;
const tagList = z.array(z.string().max(128)).max(100);
const requestSchema = z.object({
  name: z.string().max(128).nullish(),
  /** the older name of the field */
  alias: z.string().max(128).nullish(),
  tags: tagList.nullish(),
});
const startSchema = z.object({
  fromImage: z.string().max(512).nullish(),
  fromTemplate: z.string().max(256).nullish(),
  fromImageRegistry: z.unknown().optional(),
  steps: z.array(stepSchema).max(maxSteps).nullish(),
  startCmd: z.string().max(65_536).nullish(),
  readyCmd: z.string().max(65_536).nullish(),
});
const assignSchema = z.object({ target: z.string().max(256), tags: tagList.min(1) });
const unassignSchema = z.object({ name: z.string().max(256), tags: tagList.min(1) });

/** E2B's own images, and the templates that have the same content here */
const images: ReadonlyMap<string, string> = new Map([
  ["e2bdev/base", "base"],
  ["e2bdev/code-interpreter", "code-interpreter-v1"],
]);

/** Reserves the name; the build begins with startBuild(). */
export async function requestBuild({ runtime, names, builds }: Plane, call: Call): Promise<Answer> {
  const { name, alias, tags } = parse(requestSchema, call.body);
  const given = name ?? alias;
  if (given === undefined || given === null) throw invalid("name", "is required");
  const target = names.parse(given, tags ?? []);
  const known = names.find(target.name);
  if (!known && (await findSnapshots(runtime, { tag: target.name })).length > 0)
    throw new AppError("already_exists", `A snapshot has the tag "${target.name}" already`, {
      remedy: { action: "advice", text: "Use another name." },
    });
  const id = known?.id ?? builds.idOf(target.name) ?? newTemplateId();
  const build = builds.begin(id, target);
  return {
    status: 202,
    body: {
      templateID: id,
      buildID: build.id,
      public: false,
      names: [target.name],
      aliases: [target.name],
      tags: target.tags,
    },
  };
}

/** Where the client puts the files of a COPY step. */
export async function uploadLink({ names, builds, uploads }: Plane, call: Call): Promise<Answer> {
  const { template = "", hash = "" } = call.parameters;
  if (!names.find(template) && !builds.isKnown(template)) throw names.unknown(template);
  const isPresent = (await uploads.find(hash)) !== undefined;
  const token = uploads.permit(hash);
  const { incoming } = call;
  const scheme = "encrypted" in incoming.socket ? "https" : "http";
  const path = `/templates/${encodeURIComponent(template)}/files/${hash}?upload=${token}`;
  return {
    status: 201,
    body: { present: isPresent, url: `${scheme}://${incoming.headers.host ?? "localhost"}${path}` },
  };
}

export function startBuild({ names, builds }: Plane, call: Call): Answer {
  const { template = "", build = "" } = call.parameters;
  const state = builds.find(build);
  if (!state || state.templateId !== template) throw noBuild(build);
  const request = parse(startSchema, call.body);
  if (request.fromImageRegistry !== undefined && request.fromImageRegistry !== null)
    throw unsupported("fromImageRegistry", "images of registries cannot be used");
  builds.start(
    state,
    {
      base: baseOf(names, request),
      steps: request.steps ?? [],
      startCmd: request.startCmd || undefined,
      readyCmd: request.readyCmd || undefined,
    },
    call.context.caller,
  );
  return { status: 202 };
}

function baseOf(
  names: Plane["names"],
  { fromImage, fromTemplate }: Pick<z.output<typeof startSchema>, "fromImage" | "fromTemplate">,
): Template {
  if (fromTemplate) return names.resolve(fromTemplate);
  const image = fromImage?.replace(/:latest$/, "");
  const own = image === undefined || image === "" ? "base" : images.get(image);
  if (own !== undefined) return names.resolve(own);
  throw unsupported(
    `fromImage "${fromImage}"`,
    "images of registries cannot be used. Use fromTemplate() with a snapshot, such as one built by `forkd build` or `forkd snapshot`",
  );
}

/** A build that this daemon does not know has failed: the daemon was restarted during it. */
export function buildStatus({ names, builds }: Plane, call: Call): Answer {
  const { template = "", build = "" } = call.parameters;
  const offset = Number(call.query.get("logsOffset") ?? 0);
  if (!Number.isInteger(offset) || offset < 0) throw invalid("logsOffset", "must be 0 or more");
  const facts = { templateID: template, buildID: build };
  const state = builds.find(build);
  if (state?.templateId === template) {
    const logEntries = state.log.from(offset);
    const { status, reason } = state;
    const logs = logEntries.map(({ message }) => message);
    return {
      status: 200,
      body: {
        ...facts,
        status,
        logEntries,
        logs,
        ...(reason && { reason: { ...reason, logEntries: [] } }),
      },
    };
  }
  const isDone = names.find(template)?.builds.some(({ id }) => id === build) ?? false;
  if (!isDone && !z.uuid().safeParse(build).success) throw noBuild(build);
  const lost = { message: "The build is not known: the daemon was restarted during it", logEntries: [] };
  const outcome = isDone ? { status: "ready" } : { status: "error", reason: lost };
  return { status: 200, body: { ...facts, ...outcome, logEntries: [], logs: [] } };
}

function noBuild(id: string): AppError {
  return new AppError("not_found", `Cannot find build "${id.slice(0, 64)}"`);
}

/** Whether a name is in use. */
export async function aliasExists({ runtime, names }: Plane, call: Call): Promise<Answer> {
  const { alias = "" } = call.parameters;
  const { id, tag } = names.resolve(alias);
  if ((await findSnapshots(runtime, { tag })).length === 0) throw names.unknown(alias);
  return { status: 200, body: { templateID: id, public: false } };
}

export async function assignTags({ names }: Plane, call: Call): Promise<Answer> {
  const { target, tags } = parse(assignSchema, call.body);
  const made = await names.assign(target, tags);
  return { status: 201, body: { tags: made.tags, buildID: made.buildId } };
}

export async function removeTags({ names }: Plane, call: Call): Promise<Answer> {
  const { name, tags } = parse(unassignSchema, call.body);
  await names.unassign(name, tags);
  return { status: 204 };
}

export function listTags({ names }: Plane, call: Call): Answer {
  const { template = "" } = call.parameters;
  const found = names.find(template.slice(template.lastIndexOf("/") + 1));
  if (!found) throw names.unknown(template);
  const body = Object.entries(found.tags).flatMap(([tag, id]) => {
    const build = found.builds.find((each) => each.id === id);
    return build ? [{ tag, buildID: id, createdAt: isoOf(build.created_at_unix) }] : [];
  });
  return { status: 200, body };
}

/** Every snapshot that can be forked, with the names that it has. */
export async function listTemplates({ runtime, names }: Plane): Promise<Answer> {
  const snapshots = await findSnapshots(runtime, { state: "ready" });
  const body: unknown[] = [];
  for (const snapshot of snapshots.filter(({ tag }) => !isForkTag(tag))) {
    const named = names.all.find(({ builds }) => builds.some(({ tag }) => tag === snapshot.tag));
    const build = named?.builds.find(({ tag }) => tag === snapshot.tag);
    // Of a template with several builds, the newest stands for it.
    if (named && named.builds.at(-1) !== build) continue;
    const aliases = named
      ? [named.name]
      : [...names.aliases].filter(([, tag]) => tag === snapshot.tag).map(([name]) => name);
    body.push({
      ...describe(snapshot, await diskMibOf(runtime, snapshot.tag)),
      templateID: named?.id ?? snapshot.tag,
      buildID: build?.id ?? uuidOf(snapshot.tag),
      aliases,
      names: aliases,
      buildCount: named?.builds.length ?? 1,
    });
  }
  return { status: 200, body };
}

function describe(snapshot: SnapshotInfo, diskMib: number) {
  const created = isoOf(snapshot.created_at_unix);
  return {
    cpuCount: snapshot.vcpus,
    memoryMB: snapshot.memory_mib,
    diskSizeMB: diskMib,
    public: false,
    createdAt: created,
    updatedAt: created,
    createdBy: null,
    lastSpawnedAt: null,
    spawnCount: 0,
    envdVersion,
    buildStatus: "ready",
  };
}
