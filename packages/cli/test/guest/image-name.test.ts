import assert from "node:assert/strict";
import { resolve } from "node:path";
import { test } from "node:test";
import { absoluteImage, tagOfImage } from "../../src/guest/image-name.ts";

test("absoluteImage() resolves paths and leaves names of registries", () => {
  assert.equal(absoluteImage("oci:dir"), `oci:${resolve("dir")}`);
  assert.equal(absoluteImage("oci:/abs/dir:1.0"), "oci:/abs/dir:1.0");
  assert.equal(absoluteImage("docker-archive:./a.tar:app:1"), `docker-archive:${resolve("a.tar")}:app:1`);
  assert.equal(absoluteImage("localhost:5000/app:1"), "localhost:5000/app:1");
  assert.equal(absoluteImage("oci:"), "oci:");
});

test("tagOfImage() names a snapshot after its image", () => {
  const digest = `sha256:${"0".repeat(64)}`;
  for (const [image, tag] of [
    ["python:3.12-slim", "python-3.12-slim"],
    ["docker.io/library/debian", "debian"],
    ["localhost:5000/team/app:1.0", "app-1.0"],
    [`ghcr.io/team/app@${digest}`, "app"],
    ["oci:/srv/layout", "layout"],
    ["oci:layout:1.0", "layout-1.0"],
    ["docker-archive:/srv/app.tar.gz", "app"],
    ["docker-archive:app.tar:example.com/team/app:2", "app-2"],
    ["oci:/", undefined],
  ] as const)
    assert.equal(tagOfImage(image), tag, image);
  assert.equal(tagOfImage("a".repeat(100))?.length, 64);
});
