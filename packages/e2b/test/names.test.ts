import assert from "node:assert/strict";
import { mkdtemp } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { nullLogger, removeTree } from "@forkd/base";
import type { Runtime } from "@forkd/runtime";
import { AppError } from "@forkd/contract";
import { TemplateNames } from "../src/templates/names.ts";

const isUnknown = (error: unknown) => error instanceof AppError && error.code === "snapshot_not_found";

test("a tag is not there because every object has a property of its name", async (t) => {
  const dataDir = await mkdtemp(join(tmpdir(), "forkd-names-"));
  t.after(() => removeTree(dataDir));
  const runtime = { config: { dataDir } as Runtime["config"], log: nullLogger() };
  const names = await TemplateNames.open(runtime, []);
  const build = { tag: "app-1", env: {}, cpuCount: 1, memoryMib: 128 };
  await names.add(names.parse("app"), build);
  await assert.rejects(names.assign("app:constructor", ["v1"]), isUnknown);
  await assert.rejects(names.unassign("app", ["constructor"]), isUnknown);
  assert.deepEqual(names.tagsOf("app:constructor"), []);
  await names.assign("app", ["constructor"]);
  assert.equal(names.resolve("app:constructor").tag, "app-1");
});
