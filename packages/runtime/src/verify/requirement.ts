/**
 * Refuses to fork a snapshot whose manifest requires checks that have not passed for it.
 *
 * A branch, and a copy of a snapshot, carries the requirement and names the built snapshot that it came from
 * (`verified_as`). The checks of that one count for the branch where they are about a mechanism, because agent,
 * kernels and VMM are the same. `secrets` is about content, which a branch has changed: it needs its own check.
 */
import { AppError, type HazardId, type HazardResult, type Remedy } from "@forkd/contract";
import type { Manifest, StoredSnapshot } from "@forkd/store";
import type { Runtime } from "../runtime.ts";
import { readResult, type Stored } from "./results.ts";

/** Hazards whose check says nothing about a branch of the snapshot. */
const ofContent: readonly HazardId[] = ["secrets"];

type Parts = Pick<Runtime, "config" | "host">;

/** For every fork, workspace and rewind, before anything is started. */
export async function requireVerified(
  runtime: Parts,
  { id, tag, manifest }: Pick<StoredSnapshot, "id" | "tag" | "manifest">,
): Promise<void> {
  const required = manifest.require ?? [];
  if (required.length === 0) return;
  const own = await readResult(runtime, id);
  const base =
    manifest.verified_as === undefined ? undefined : await readResult(runtime, manifest.verified_as);
  const open = required.flatMap((hazard) => {
    const problem = problemOf(own, hazard);
    const counts = base !== undefined && !ofContent.includes(hazard);
    return problem === undefined || (counts && problemOf(base, hazard) === undefined)
      ? []
      : [{ hazard, ...problem }];
  });
  const [first] = open;
  if (!first) return;
  const remedy: Remedy = {
    action: open.some(({ reason }) => reason === "failed") ? "show_verification" : "verify_snapshot",
    tag,
  };
  throw new AppError(
    "unsafe_snapshot",
    `Cannot fork snapshot "${tag}": it requires a check that has not passed: ${open.map(({ hazard, text }) => `${hazard} (${text})`).join(", ")}`,
    {
      details: { tag, require: required, open: open.map(({ hazard, reason }) => ({ hazard, reason })) },
      remedy,
    },
  );
}

/**
 * For a branch that is to have children: refuses before the source is touched what the children would be refused
 * for.
 */
export async function requireVerifiedBranch(
  runtime: Parts,
  base: Pick<StoredSnapshot, "id" | "tag" | "manifest">,
): Promise<void> {
  const content = base.manifest.require?.filter((hazard) => ofContent.includes(hazard)) ?? [];
  if (content.length > 0) {
    throw new AppError(
      "unsafe_snapshot",
      `Cannot fork children of this branch: "${base.tag}" requires the check of ${content.join(", ")}, which each branch needs for itself`,
      { details: { tag: base.tag, require: base.manifest.require }, remedy: { action: "verify_branch" } },
    );
  }
  await requireVerified(runtime, base);
}

/** What the manifest of a branch or a copy says about the checks of what it came from. */
export function inheritedRequirement({
  id,
  manifest,
}: Pick<StoredSnapshot, "id" | "manifest">): Pick<Manifest, "verified_as"> {
  return manifest.require === undefined ? {} : { verified_as: manifest.verified_as ?? id };
}

type Problem = { reason: "missing" | "failed" | "stale" | "corrupt" | "not_checked"; text: string };

/** Why the stored result does not let the snapshot be forked; undefined if it does. */
function problemOf(stored: Stored, id: HazardId): Problem | undefined {
  if (stored.kind === "missing") return { reason: "missing", text: "no result" };
  if (stored.kind === "corrupt")
    return { reason: "corrupt", text: `the result cannot be used: ${stored.problem}` };
  if (stored.changed.length > 0)
    return { reason: "stale", text: `the result is old: ${stored.changed.join(", ")}` };
  const found = stored.result.hazards.find((hazard) => hazard.id === id);
  if (!found) return { reason: "missing", text: "not checked" };
  return hazardProblem(found);
}

/** A warning is not enough, and neither is a check that could not be made. */
export function hazardProblem({ outcome, detail, absent }: HazardResult): Problem | undefined {
  if (outcome === "pass" || (outcome === "not_applicable" && absent)) return undefined;
  return outcome === "not_applicable"
    ? { reason: "not_checked", text: `could not be checked: ${detail}` }
    : { reason: "failed", text: detail };
}
