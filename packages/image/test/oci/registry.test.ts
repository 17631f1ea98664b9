import assert from "node:assert/strict";
import { mkdir, readdir, readFile, rm, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { digestOf, parseReference, Registries } from "@forkd/registry";
import {
  addImage,
  rejectsWith,
  startRegistry,
  tarOf,
  temporaryDirectory,
  type TestImage,
} from "@forkd/test-support";
import { openImage } from "../../src/oci/base-image.ts";
import { hostArchitecture } from "../../src/oci/platform.ts";

const architecture = hostArchitecture();
const shared = { tar: tarOf([{ name: "shared", content: "s".repeat(100_000) }]) };

/** Copies an image of the test to a registry and returns the digest of its manifest. */
async function push(
  registries: Registries,
  name: string,
  image: TestImage,
  directory: string,
): Promise<string> {
  const { digest } = await addImage(directory, { architecture, ...image });
  const reference = parseReference(name);
  const repository = registries.repository(reference);
  const blob = async (each: string) => await readFile(join(directory, "blobs/sha256", each.slice(7)));
  const bytes = await blob(digest);
  const manifest = JSON.parse(bytes.toString("utf8")) as {
    mediaType: string;
    config: { digest: string };
    layers: { digest: string }[];
  };
  for (const each of [manifest.config, ...manifest.layers]) {
    const content = await blob(each.digest);
    await repository.uploadBlob({
      digest: each.digest,
      size: content.length,
      open: async function* () {
        yield await Promise.resolve(content);
      },
    });
  }
  const { tag } = reference;
  await repository.putManifest(bytes, manifest.mediaType, { tag });
  assert.equal(digestOf(bytes), digest);
  return digest;
}

test("openImage() downloads an image, and of the next one only the layers that are new", async (t) => {
  const registry = await startRegistry(t);
  using registries = new Registries();
  const directory = await temporaryDirectory(t);
  const imageDir = await temporaryDirectory(t);
  const own = (name: string) => ({ tar: tarOf([{ name, content: name }]) });
  const names = { one: `${registry.address}/team/one:1.0`, two: `${registry.address}/two` };
  const digest = await push(
    registries,
    names.one,
    { layers: [shared, own("one")], types: "docker" },
    directory,
  );
  await push(registries, `${names.two}:latest`, { layers: [shared, own("two")] }, directory);

  const open = async (image: string) => {
    const steps: string[] = [];
    const context = {
      registries,
      onProgress: (step: string, line: string) => steps.push(`${step}: ${line}`),
    };
    await using opened = await openImage({ imageDir, image }, context);
    const work = join(imageDir, `work-${image.replaceAll("/", "-")}`);
    await mkdir(work);
    const { tree } = await opened.unpack(work);
    return { names: await readdir(tree), digest: opened.base.digest, steps };
  };
  const first = await open(names.one);
  assert.equal(first.digest, digest);
  assert.ok(first.names.includes("shared") && first.names.includes("one"));
  assert.ok(first.steps.some((step) => /^download: Downloaded .* in 2 layers$/.test(step)));
  const before = await readdir(join(imageDir, "blobs"));
  // manifest, config, two layers
  assert.equal(before.length, 4);
  const second = await open(names.two);
  assert.ok(second.names.includes("shared") && second.names.includes("two"));
  assert.equal((await readdir(join(imageDir, "blobs"))).length, 7);

  // By digest nothing is asked of the registry.
  await registry.kill();
  const again = await open(`${registry.address}/team/one@${digest}`);
  assert.deepEqual(again.names, first.names);
  assert.ok(!again.steps.some((step) => step.startsWith("download")));
});

test("openImage() reports what a registry does not have, and keeps nothing", async (t) => {
  const registry = await startRegistry(t);
  const imageDir = await temporaryDirectory(t);
  const open = (image: string) => openImage({ imageDir, image }, {});
  await rejectsWith(open(`${registry.address}/missing:1`), "artifact_not_found", /missing:1/);
  await rejectsWith(open("Not A Name"), "invalid_image", /Cannot use the image "Not A Name"/);
  assert.deepEqual(await readdir(imageDir), []);
});

test("openImage() reports a layer that the registry has lost, and keeps no part of it", async (t) => {
  const registry = await startRegistry(t);
  using registries = new Registries({ retries: { attempts: 1, firstMs: 1, maxMs: 1 } });
  const directory = await temporaryDirectory(t);
  const imageDir = await temporaryDirectory(t);
  const image = `${registry.address}/app:1`;
  await push(registries, image, { layers: [shared] }, directory);
  await using opened = await openImage({ imageDir, image }, { registries });
  await registry.kill();
  const work = join(imageDir, "work");
  await mkdir(work);
  await rejectsWith(opened.unpack(work), "registry_unreachable");
  const left = await readdir(join(imageDir, "blobs"));
  assert.equal(left.length, 2);
  assert.ok(left.every((name) => !name.startsWith(".")));
});

/** Changes one byte in the middle of a file. */
async function damage(path: string): Promise<void> {
  const bytes = await readFile(path);
  const middle = bytes.length >> 1;
  bytes[middle] = (bytes[middle] ?? 0) ^ 1;
  await writeFile(path, bytes);
}

const damages: Record<string, (blob: string) => Promise<void>> = {
  "with a changed byte": damage,
  "that is cut off": (blob) => truncate(blob, 10),
  "that is missing": (blob) => rm(blob),
  "without its facts": (blob) => writeFile(join(blob, "../info.json"), "{"),
};
for (const [what, change] of Object.entries(damages)) {
  test(`openImage() fetches a kept blob ${what} again`, async (t) => {
    const registry = await startRegistry(t);
    using registries = new Registries({ retries: { attempts: 1, firstMs: 1, maxMs: 1 } });
    const imageDir = await temporaryDirectory(t);
    const name = `${registry.address}/app`;
    const digest = await push(registries, `${name}:1`, { layers: [shared] }, await temporaryDirectory(t));
    const image = `${name}@${digest}`;
    let opens = 0;
    const open = async () => {
      await using opened = await openImage({ imageDir, image }, { registries });
      const work = join(imageDir, `work-${++opens}`);
      await mkdir(work);
      const { tree } = await opened.unpack(work);
      assert.equal(opened.base.digest, digest);
      return (await readFile(join(tree, "shared"), "utf8")).length;
    };
    await open();
    const blobs = (await readdir(join(imageDir, "blobs"))).map((each) => join(imageDir, "blobs", each));
    assert.equal(blobs.length, 3, "manifest, config and a layer");
    for (const blob of blobs) {
      await change(join(blob, "blob"));
      assert.equal(await open(), 100_000, blob);
      assert.deepEqual((await readdir(blob)).sort(), ["blob", "info.json"]);
    }
    // All of them are whole again.
    await registry.kill();
    assert.equal(await open(), 100_000);
    for (const blob of blobs) await change(join(blob, "blob"));
    await rejectsWith(open(), "registry_unreachable");
  });
}
