/** Takes the state of a child in which a build works, as a layer over the tagged snapshot that it came from. */
import type { Draft, ManifestFacts, StoredSnapshot } from "@forkd/store";
import type { Runtime } from "../runtime.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { pinBase } from "./layer-base.ts";
import { takeInstant } from "./take-instant.ts";
import { writeInstant } from "./write-instant.ts";

type CaptureRequest = {
  /** the child was started from a state of the cache, which cannot be a parent */
  isPrivate: boolean;
  /** what the manifest says, from what that of a branch would say */
  describe: (facts: ManifestFacts) => ManifestFacts;
  signal: AbortSignal;
};

/** Seals the draft. The child runs again. */
export async function captureBuild(
  runtime: Pick<Runtime, "config" | "engine" | "images" | "log" | "store">,
  sandbox: Sandbox,
  draft: Draft,
  { isPrivate, describe, signal }: CaptureRequest,
): Promise<StoredSnapshot> {
  const source = sandbox.current;
  const how = { mode: "diff", isPrivate, inherits: false } as const;
  await using base = await pinBase(runtime, { sandbox, source, draft, ...how });
  await using instant = await takeInstant(runtime, source, draft, { direct: base.mode === "diff", signal });
  await instant.resume();
  await instant.copyDisks(draft);
  const { pauseMs } = instant;
  return await writeInstant(runtime, draft, { sandbox, source, base, instant, pauseMs, signal, describe });
}
