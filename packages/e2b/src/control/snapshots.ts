/** Snapshots of sandboxes. A snapshot is a tag of forkd, and with a name also a template. */
import { randomBytes } from "node:crypto";
import { AppError, type SnapshotInfo } from "@forkd/contract";
import { branch, removeSnapshot } from "@forkd/runtime";
import { snapshotTag } from "../templates/names.ts";
import type { Answer } from "./answer.ts";
import { parse } from "./parse.ts";
import type { Call, Plane } from "./plane.ts";
import { aliveSandbox, idOf } from "./sandboxes.ts";
import { snapshotSchema } from "./schemas.ts";

export async function createSnapshot(plane: Plane, call: Call): Promise<Answer> {
  const { runtime, names, records } = plane;
  const { name } = parse(snapshotSchema, call.body);
  const { id } = aliveSandbox(runtime, idOf(call));
  const target = name === undefined || name === null ? undefined : names.parse(name);
  const tag = snapshotTag(target?.name ?? "snapshot", randomBytes(4).toString("hex"));
  const request = { id, tag, wait: true, n: 0, vary: [], env: {}, labels: {} };
  const made: SnapshotInfo = await branch(runtime, request, call.context);
  if (target) {
    const { user, workdir } = records.defaultsOf(id) ?? {};
    await names
      .add(target, {
        tag: made.tag,
        user,
        workdir,
        env: {},
        cpuCount: made.vcpus,
        memoryMib: made.memory_mib,
      })
      .catch(async (error: unknown) => {
        await removeSnapshot(runtime, { tag }).catch(() => undefined);
        throw error;
      });
  }
  return { status: 201, body: { snapshotID: made.tag, names: names.namesOfTag(made.tag) } };
}

/** A template or a snapshot: all its builds. A name that forkd itself built is only removed by forkd. */
export async function deleteTemplate({ runtime, names }: Plane, call: Call): Promise<Answer> {
  const given = call.parameters["template"] ?? "";
  const tags = names.tagsOf(given);
  if (tags.length === 0) throw names.unknown(given);
  for (const tag of tags) {
    await removeSnapshot(runtime, { tag }).catch((error: unknown) => {
      // Another client may have removed it.
      const isGone = error instanceof AppError && error.code === "snapshot_not_found";
      if (!isGone) throw error;
      if (!names.isBuilt(given)) throw names.unknown(given, error);
    });
  }
  await names.remove(given);
  return { status: 204 };
}
