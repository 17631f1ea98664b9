import assert from "node:assert/strict";
import { test } from "node:test";
import { createSnapshot } from "../../src/operations/create-snapshot.ts";
import { context, openTestRuntime, rejectsWith } from "../support.ts";

test("createSnapshot() refuses a second build of a tag when it begins, not when it ends", async (t) => {
  const { runtime } = await openTestRuntime(t);
  const steps: string[] = [];
  const build = (recipe: string) =>
    createSnapshot(
      runtime,
      { tag: "py", recipe, force: true },
      { ...context, onProgress: (step) => steps.push(step) },
    );
  const first = build("/nonexistent/first");
  const second = build("/nonexistent/second");
  await rejectsWith(second, "snapshot_writing", /a build of it/);
  await rejectsWith(first, "recipe_not_found", /first/);
  assert.deepEqual(steps, []);
  await rejectsWith(build("/nonexistent/third"), "recipe_not_found", /third/);
});
