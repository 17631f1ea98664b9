import assert from "node:assert/strict";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { createSnapshot } from "../../src/operations/create-snapshot.ts";
import { context, forkableRuntime, openTestRuntime, rejectsWith, type TestRuntime } from "../support.ts";

const service = (name: string) => ({ name, argv: ["sleep", "1000"] });

/** Writes recipes beside each other; returns their directory. */
async function writeRecipes(t: TestContext, recipes: Record<string, object>): Promise<string> {
  const place = await mkdtemp(join(tmpdir(), "forkd-recipes-"));
  t.after(() => rm(place, { recursive: true, force: true }));
  for (const [name, json] of Object.entries(recipes)) {
    await mkdir(join(place, name));
    await writeFile(join(place, name, "recipe.json"), JSON.stringify({ version: 1, ...json }));
  }
  return place;
}

function build({ runtime }: TestRuntime, recipe: string, steps: string[]) {
  const onProgress = (step: string) => void steps.push(step);
  return createSnapshot(runtime, { tag: "new", recipe, force: false }, { ...context, onProgress });
}

test("a service with the name of one in the snapshot is refused before the first step", async (t) => {
  const opened = await forkableRuntime(t);
  opened.engine.script = () => ({ processes: [{ id: 1, label: "service:web", stdout: "" }] });
  const tag = (await opened.runtime.store.list())[0]?.tag ?? "";
  const place = await writeRecipes(t, {
    child: { from: tag, steps: [{ run: "true" }], services: [service("db"), service("web")] },
  });
  const steps: string[] = [];
  const error = await rejectsWith(
    build(opened, join(place, "child"), steps),
    "invalid_recipe",
    new RegExp(
      `child": services\\[1\\]\\.name: "web" is a service of "${tag}", which runs in this snapshot, too$`,
    ),
  );
  assert.deepEqual(error.remedy, { action: "advice", text: "Give the service another name." });
  assert.deepEqual(steps, []);
});

test("a service with the name of one in a recipe that would be built first is refused before that", async (t) => {
  const opened = await openTestRuntime(t);
  const place = await writeRecipes(t, {
    lowest: { services: [service("web")] },
    lower: { from: "../lowest", services: [{ argv: ["/bin/db"] }] },
    web: { from: "../lower", services: [service("web")] },
    db: { from: "../lower", services: [service("db")] },
  });
  const steps: string[] = [];
  const refused = async (name: string, parent: string) =>
    await rejectsWith(
      build(opened, join(place, name), steps),
      "invalid_recipe",
      new RegExp(`services\\[0\\]\\.name: "${name}" is a service of "${parent}"`),
    );
  await refused("web", "lowest");
  await refused("db", "lower");
  assert.deepEqual(steps, []);
});
