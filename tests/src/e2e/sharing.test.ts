/** The script that docs/guide/sharing.md describes, with the images that the tests have built. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { sharedData, smallRecipe } from "../support/places.ts";

const script = fileURLToPath(new URL("../../../tools/try-sharing", import.meta.url));
const maxMs = 15 * 60_000;

test("tools/try-sharing builds, pushes, pulls, verifies and forks 10, and shows what is refused", async () => {
  const { stdout } = await promisify(execFile)(script, [smallRecipe], {
    env: { ...process.env, TRY_SHARING_IMAGES: join(sharedData, "images") },
    timeout: maxMs,
  });
  assert.match(stdout, /^\d+ passed, 0 warnings, 0 failures/m);
  assert.match(stdout, /wrong key is refused\n {4}.*signature/);
  assert.match(stdout, /changed blob is refused\n {4}.*chunk 0 of blob sha256:\w+ differs from its digest/);
  assert.match(stdout, /missing blob is refused\n {4}.*sha256:\w+/);
  assert.match(stdout, /shared small: 10 children on the other host, each with its own name\n$/);
});
