import assert from "node:assert/strict";
import { link, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { temporaryDirectory } from "@forkd/test-support";
import { ensureLayer, layerName } from "../../src/layers/layer.ts";
import { ImageLease } from "../../src/lease.ts";
import type { LayerStep } from "../../src/recipe/resolve-steps.ts";
import { removeUnusedImages } from "../../src/unused.ts";
import { namesIn } from "../support.ts";

function stepOf(text: string): LayerStep {
  const step = { kind: "run", argv: ["sh", "-c", text], text } as const;
  return { number: 1, total: 1, label: `RUN ${text}`, state: { env: {} }, step };
}

const make =
  (content: string) =>
  async ({ directory, work }: { directory: string; work: string }): Promise<void> => {
    await writeFile(join(work, "leftover"), "x");
    await writeFile(join(directory, layerName), content);
  };

test("ensureLayer() makes a layer once for each step and what is below it", async (t) => {
  const images = await temporaryDirectory(t);
  const first = await ensureLayer(images, { step: stepOf("a"), below: "r", make: make("1") }, {});
  assert.equal(first.isCached, false);
  const again = await ensureLayer(images, { step: stepOf("a"), below: "r", make: make("2") }, {});
  assert.deepEqual(again, { ...first, isCached: true });
  assert.equal(await readFile(join(again.directory, layerName), "utf8"), "1");
  const other = await ensureLayer(images, { step: stepOf("a"), below: "r2", make: make("3") }, {});
  assert.equal(other.isCached, false, "the same step over other content is another layer");
  assert.notEqual(other.instance, first.instance);
  const names = (await namesIn(first.directory)).sort();
  assert.deepEqual(names, ["info.json", layerName]);
});

test("ensureLayer() with isFresh makes the layer again, and what is above it has another key", async (t) => {
  const images = await temporaryDirectory(t);
  const step = stepOf("a");
  const first = await ensureLayer(images, { step, below: "r", make: make("1") }, {});
  const above = await ensureLayer(images, { step: stepOf("b"), below: first.instance, make: make("b") }, {});
  const fresh = await ensureLayer(images, { step, below: "r", make: make("2") }, { isFresh: true });
  assert.equal(fresh.directory, first.directory);
  assert.equal(fresh.isCached, false);
  assert.equal(await readFile(join(fresh.directory, layerName), "utf8"), "2");
  const next = await ensureLayer(images, { step: stepOf("b"), below: fresh.instance, make: make("b") }, {});
  assert.equal(next.isCached, false, "the old layer is not used over the new one");
  assert.notEqual(next.directory, above.directory);
});

test("ensureLayer() leaves nothing of a step that fails", async (t) => {
  const images = await temporaryDirectory(t);
  const failing = ensureLayer(
    images,
    {
      step: stepOf("a"),
      below: "r",
      make: async (place) => {
        await make("1")(place);
        throw new Error("exit code 1");
      },
    },
    {},
  );
  await assert.rejects(failing, /exit code 1/);
  assert.deepEqual(await namesIn(join(images, "layers")), []);
});

test("removeUnusedImages() removes layers that no build and no snapshot uses, and states in any case", async (t) => {
  const images = await temporaryDirectory(t);
  const pinned = join(await temporaryDirectory(t), "disk-0.qcow2");
  using lease = new ImageLease();
  const held = await ensureLayer(images, { step: stepOf("held"), below: "r", make: make("1") }, { lease });
  const pin = (directory: string): Promise<void> => link(join(directory, layerName), pinned);
  const linked = await ensureLayer(images, { step: stepOf("linked"), below: "r", make: make("1"), pin }, {});
  await ensureLayer(images, { step: stepOf("unused"), below: "r", make: make("1") }, {});
  const state = await ensureLayer(
    images,
    { step: stepOf("state"), below: "r", make: make("1"), isState: true },
    {},
  );
  await link(join(state.directory, layerName), `${pinned}-state`);
  const removed = await removeUnusedImages(images, { isUsed: () => false, dryRun: false });
  assert.deepEqual(removed.map(({ source }) => source).sort(), ["RUN state", "RUN unused"]);
  const left = (await namesIn(join(images, "layers"))).filter((name) => !name.includes("/"));
  assert.deepEqual(left, [held.directory, linked.directory].map((path) => path.split("/").at(-1)).sort());
});
