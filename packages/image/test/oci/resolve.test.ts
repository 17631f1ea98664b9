import assert from "node:assert/strict";
import { mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { gzipSync } from "node:zlib";
import { runProgram } from "@forkd/base";
import {
  addBlob,
  addImage,
  rejectsWith,
  sha256,
  tarOf,
  temporaryDirectory,
  writeIndex,
  writeLayout,
  type TestImage,
} from "@forkd/test-support";
import { openImage } from "../../src/oci/base-image.ts";
import { hostArchitecture } from "../../src/oci/platform.ts";

const layer = { tar: tarOf([{ name: "hello", content: "world" }]) };
const architecture = hostArchitecture();

/** Opens and unpacks an image; returns what it found. */
async function open(t: TestContext, image: string) {
  const imageDir = await temporaryDirectory(t);
  await using opened = await openImage({ imageDir, image }, {});
  const work = join(imageDir, "work");
  await mkdir(work);
  const { tree } = await opened.unpack(work);
  return { ...opened.base, contentDigest: opened.contentDigest, tree, imageDir };
}

async function layoutOf(t: TestContext, image: TestImage): Promise<string> {
  return await writeLayout(join(await temporaryDirectory(t), "layout"), { architecture, ...image });
}

for (const compression of ["gzip", "zstd", "none"] as const) {
  for (const types of ["oci", "docker"] as const) {
    test(`openImage() reads ${types} layers with compression ${compression}`, async (t) => {
      const layout = await layoutOf(t, { layers: [{ ...layer, compression }], types });
      const { tree } = await open(t, `oci:${layout}`);
      assert.equal(await readFile(join(tree, "hello"), "utf8"), "world");
    });
  }
}

test("openImage() reads the config of an image", async (t) => {
  const config = {
    Env: ["PATH=/app/bin:/bin", "EMPTY=", "A=b=c", "=bad", "bad"],
    WorkingDir: "app//x/",
    User: "1000:1000",
    Entrypoint: ["/entry", "--flag"],
    Cmd: ["serve"],
    ExposedPorts: { "8080/tcp": {}, "53/udp": {} },
    Volumes: { "/data": {} },
    Labels: { maintainer: "someone" },
  };
  const { config: found, tree } = await open(t, `oci:${await layoutOf(t, { layers: [layer], config })}`);
  assert.deepEqual(found, {
    env: { PATH: "/app/bin:/bin", EMPTY: "", A: "b=c" },
    workdir: "/app/x",
    user: "1000:1000",
    entrypoint: ["/entry", "--flag"],
    cmd: ["serve"],
    ports: ["53/udp", "8080/tcp"],
    volumes: ["/data"],
    labels: { maintainer: "someone" },
  });
  assert.deepEqual(await readdir(join(tree, "app/x")), []);
  assert.deepEqual(await readdir(join(tree, "data")), []);
});

test("openImage() accepts a config in which everything is null", async (t) => {
  const config = { Env: null, WorkingDir: null, User: null, Cmd: null, Labels: null, Volumes: null };
  const found = await open(t, `oci:${await layoutOf(t, { layers: [layer], config })}`);
  assert.equal(found.config.workdir, "/");
  assert.equal(found.config.user, "");
});

test("openImage() chooses the image for this host from an index, also from a nested one", async (t) => {
  const directory = join(await temporaryDirectory(t), "layout");
  const other = architecture === "amd64" ? "arm64" : "amd64";
  const entries = [];
  for (const arch of [other, architecture]) {
    const tar = tarOf([{ name: "arch", content: arch }]);
    const blob = await addImage(directory, { layers: [{ tar }], architecture: arch });
    entries.push({ ...blob, platform: { os: "linux", architecture: arch } });
  }
  const attestation = { ...entries[0], platform: { os: "unknown", architecture: "unknown" } };
  const mediaType = "application/vnd.oci.image.index.v1+json";
  const index = Buffer.from(
    JSON.stringify({ schemaVersion: 2, mediaType, manifests: [attestation, ...entries] }),
  );
  await writeIndex(directory, [await addBlob(directory, index, mediaType)]);
  const { tree, digest } = await open(t, `oci:${directory}`);
  assert.equal(await readFile(join(tree, "arch"), "utf8"), architecture);
  assert.equal(digest, entries[1]?.digest);

  await writeIndex(directory, [
    { ...entries[0] },
    { ...entries[0], platform: { os: "windows", architecture } },
  ]);
  await rejectsWith(
    open(t, `oci:${directory}`),
    "invalid_image",
    new RegExp(
      `it has no image for linux/${architecture}; it is for linux/${other}, windows/${architecture}$`,
    ),
  );
});

test("openImage() refuses an image for another architecture", async (t) => {
  const layout = await layoutOf(t, { layers: [layer], architecture: "s390x" });
  await rejectsWith(open(t, `oci:${layout}`), "invalid_image", /it is for linux\/s390x, not for linux\//);
});

test("openImage() chooses an image of a layout by its tag", async (t) => {
  const directory = join(await temporaryDirectory(t), "layout");
  const entries = [];
  for (const name of ["1.0", "2.0"]) {
    const tar = tarOf([{ name: "version", content: name }]);
    const blob = await addImage(directory, { layers: [{ tar }], architecture });
    entries.push({ ...blob, annotations: { "org.opencontainers.image.ref.name": name } });
  }
  await writeIndex(directory, entries);
  const { tree } = await open(t, `oci:${directory}:2.0`);
  assert.equal(await readFile(join(tree, "version"), "utf8"), "2.0");
  await rejectsWith(
    open(t, `oci:${directory}`),
    "invalid_image",
    /several images, so a tag must be given: 1\.0, 2\.0$/,
  );
  await rejectsWith(
    open(t, `oci:${directory}:3`),
    "invalid_image",
    /no image with the tag "3"; it has 1\.0, 2\.0$/,
  );
});

test("openImage() reads an archive of a layout, also a compressed one, and leaves no copy", async (t) => {
  const layout = await layoutOf(t, { layers: [layer] });
  const tar = join(layout, "..", "image.tar");
  await runProgram("tar", ["-C", layout, "-cf", tar, "."]);
  const { tree, contentDigest } = await open(t, `oci:${tar}`);
  assert.equal(await readFile(join(tree, "hello"), "utf8"), "world");
  await writeFile(`${tar}.gz`, gzipSync(await readFile(tar)));
  const again = await open(t, `oci-archive:${tar}.gz`);
  assert.equal(again.contentDigest, contentDigest);
  assert.deepEqual(await readdir(join(again.imageDir, "blobs")), []);
});

/** An archive as `docker save` writes it. */
async function savedImage(t: TestContext, names: readonly string[]): Promise<string> {
  const config = (content: string) =>
    JSON.stringify({
      architecture,
      os: "linux",
      rootfs: { diff_ids: [`sha256:${sha256(content)}`] },
      config: { Cmd: ["a"] },
    });
  const tars = names.map((name) => tarOf([{ name: "name", content: name }]).toString("latin1"));
  const members = names.flatMap((name, index) => {
    const tar = Buffer.from(tars[index] ?? "", "latin1");
    return [
      { name: `layer-${index}/` },
      { name: `layer-${index}/layer.tar`, content: tar },
      // A layer that images share is a link.
      { name: `link-${index}/layer.tar`, type: "2", link: `../layer-${index}/layer.tar` },
      { name: `${index}.json`, content: config(tar.toString("latin1")) },
    ];
  });
  const manifest = names.map((name, index) => ({
    Config: `${index}.json`,
    RepoTags: [name],
    Layers: [`link-${index}/layer.tar`],
  }));
  const path = join(await temporaryDirectory(t), "saved.tar");
  await writeFile(path, tarOf([...members, { name: "manifest.json", content: JSON.stringify(manifest) }]));
  return path;
}

test("openImage() reads what docker save writes", async (t) => {
  const path = await savedImage(t, ["app:1.0"]);
  const { tree, config } = await open(t, `docker-archive:${path}`);
  assert.equal(await readFile(join(tree, "name"), "utf8"), "app:1.0");
  assert.deepEqual(config.cmd, ["a"]);
});

test("openImage() chooses a saved image by its name", async (t) => {
  const path = await savedImage(t, ["app:1.0", "example.com/app:2.0"]);
  assert.equal(
    await readFile(join((await open(t, `docker-archive:${path}:app:2.0`)).tree, "name"), "utf8"),
    "example.com/app:2.0",
  );
  await rejectsWith(
    open(t, `docker-archive:${path}`),
    "invalid_image",
    /several images.*: app:1\.0, example\.com\/app:2\.0$/,
  );
  await rejectsWith(
    open(t, `docker-archive:${path}:app`),
    "invalid_image",
    /it has no image "app"; it has app:1\.0/,
  );
});

test("openImage() refuses media types that it does not know, by name", async (t) => {
  const cases: [Partial<TestImage["layers"][number]>, RegExp][] = [
    [
      { mediaType: "application/vnd.oci.image.layer.v1.tar+xz" },
      /layer 1 has the media type "application\/vnd\.oci\.image\.layer\.v1\.tar\+xz": it is unknown$/,
    ],
    [
      { mediaType: "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip" },
      /foreign\.diff\.tar\.gzip": foreign layers are not in the image$/,
    ],
    [
      { mediaType: "application/vnd.oci.image.layer.nondistributable.v1.tar" },
      /foreign layers are not in the image$/,
    ],
  ];
  for (const [more, message] of cases)
    await rejectsWith(
      open(t, `oci:${await layoutOf(t, { layers: [{ ...layer, ...more }] })}`),
      "invalid_image",
      message,
    );
});

test("openImage() refuses artifacts that are not images, and manifests of other kinds", async (t) => {
  const directory = join(await temporaryDirectory(t), "layout");
  const config = await addBlob(directory, Buffer.from("{}"), "application/vnd.cncf.helm.config.v1+json");
  const mediaType = "application/vnd.oci.image.manifest.v1+json";
  const chart = Buffer.from(JSON.stringify({ schemaVersion: 2, mediaType, config, layers: [] }));
  await writeIndex(directory, [await addBlob(directory, chart, mediaType)]);
  await rejectsWith(
    open(t, `oci:${directory}`),
    "invalid_image",
    /it is not a container image, but has the type "application\/vnd\.cncf\.helm/,
  );
  const old = "application/vnd.docker.distribution.manifest.v1+prettyjws";
  await writeIndex(directory, [await addBlob(directory, Buffer.from('{"schemaVersion":1}'), old)]);
  await rejectsWith(
    open(t, `oci:${directory}`),
    "invalid_image",
    /its manifest has the media type ".*prettyjws", which is not that of an image$/,
  );
});

test("openImage() refuses damaged and missing parts, and names them", async (t) => {
  const layout = await layoutOf(t, { layers: [{ ...layer, compression: "none" }] });
  const blob = join(layout, "blobs/sha256", sha256(layer.tar));
  const damaged = Buffer.from(layer.tar);
  damaged.write("WORLD", 512);
  await writeFile(blob, damaged);
  await rejectsWith(
    open(t, `oci:${layout}`),
    "invalid_image",
    /Cannot use "oci:.*": layer 1 of 1 .*: its digest is/,
  );
  await writeFile(blob, layer.tar.subarray(0, 100));
  await rejectsWith(
    open(t, `oci:${layout}`),
    "invalid_image",
    /layer 1 of 1 \(sha256:.*\) has 100 bytes, but should have/,
  );
  await rm(blob);
  await rejectsWith(open(t, `oci:${layout}`), "invalid_image", /layer 1 of 1 \(sha256:.*\) is missing$/);
  await writeFile(join(layout, "index.json"), "{");
  await rejectsWith(open(t, `oci:${layout}`), "invalid_image", /its manifest is not JSON$/);
  await rm(join(layout, "index.json"));
  await rejectsWith(
    open(t, `oci:${layout}`),
    "invalid_image",
    /it has no index\.json, so it is not an OCI layout$/,
  );
});

test("openImage() refuses a wrong diff_id and a wrong number of layers", async (t) => {
  const wrong = `sha256:${sha256("other")}`;
  const layout = await layoutOf(t, { layers: [{ ...layer, diffId: wrong }] });
  await rejectsWith(
    open(t, `oci:${layout}`),
    "invalid_image",
    /its diff_id is sha256:.*, but the image names sha256:/,
  );
});

test("openImage() refuses references that name nothing", async (t) => {
  await rejectsWith(
    open(t, "oci:/nowhere"),
    "invalid_image",
    /Cannot use the image "oci:\/nowhere": no such file/,
  );
  await rejectsWith(open(t, "./layout"), "invalid_image", /it is a path$/);
  await rejectsWith(open(t, "oci:"), "invalid_image", /the path is missing$/);
  await rejectsWith(open(t, "oci:/x:"), "invalid_image", /the tag after the colon is missing$/);
  await rejectsWith(open(t, "https://example.com/x"), "invalid_image", /it is a URL/);
  const dir = await temporaryDirectory(t);
  await writeFile(join(dir, "plain.tar"), tarOf([{ name: "etc/passwd", content: "root" }]));
  await rejectsWith(
    open(t, `oci:${dir}/plain.tar`),
    "invalid_image",
    /neither manifest\.json nor index\.json/,
  );
});

test("openImage() stops when it is cancelled", async (t) => {
  const big = tarOf([{ name: "big", content: Buffer.alloc(64 << 20) }]);
  const layout = await layoutOf(t, { layers: [{ tar: big, compression: "none" }] });
  const imageDir = await temporaryDirectory(t);
  const cancel = new AbortController();
  const context = {
    signal: cancel.signal,
    onProgress: (step: string, message: string) => {
      if (message.startsWith("Reading layer")) cancel.abort();
      assert.notEqual(step, "unpack");
    },
  };
  await using opened = await openImage({ imageDir, image: `oci:${layout}` }, context);
  await rejectsWith(opened.unpack(imageDir), "cancelled");
});
