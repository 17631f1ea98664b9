import assert from "node:assert/strict";
import { link, stat, utimes, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { nullLogger } from "@forkd/base";
import { temporaryDirectory } from "@forkd/test-support";
import { stampOf, VerifiedFiles } from "../src/stamp.ts";
import { VerifiedRecord } from "../src/verified-record.ts";

/** Whether the next process trusts the file. */
async function isTrusted(place: { path: string; bootId: string }, file: string): Promise<boolean> {
  const files = new VerifiedFiles();
  await new VerifiedRecord(place, files, nullLogger()).load();
  return files.has((await stampOf(file)) ?? "", "digest");
}

test("VerifiedRecord trusts a file after a restart only if nothing has touched it", async (t) => {
  const dir = await temporaryDirectory(t);
  const place = { path: join(dir, "verified.json"), bootId: "boot" };
  const file = join(dir, "memory");
  const remember = async (): Promise<void> => {
    const files = new VerifiedFiles();
    await using _record = new VerifiedRecord(place, files, nullLogger());
    files.add((await stampOf(file)) ?? "", "digest", file);
  };
  await writeFile(file, "content");
  assert.equal(await isTrusted(place, file), false, "there is no record");
  await remember();
  assert.equal((await stat(place.path)).mode & 0o777, 0o600);
  assert.equal(await isTrusted(place, file), true);
  assert.equal(await isTrusted({ ...place, bootId: "next" }, file), false, "the host was restarted");

  const when = new Date(1_700_000_000_000);
  await utimes(file, when, when);
  await remember();
  const before = await stampOf(file);
  await writeFile(file, "cOntent");
  await utimes(file, when, when);
  assert.equal(await stampOf(file), before);
  assert.equal(await isTrusted(place, file), false, "the modification time was set back");

  await remember();
  await link(file, join(dir, "link"));
  assert.equal(await isTrusted(place, file), false, "a link changes the file too, so it is read once more");
  await remember();
  assert.equal(await isTrusted(place, file), true);
  await writeFile(place.path, "{");
  assert.equal(await isTrusted(place, file), false, "a damaged record");
});
