import assert from "node:assert/strict";
import { readdir, readFile, stat, writeFile, mkdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { gzipSync } from "node:zlib";
import { sha256, tarOf, temporaryDirectory, type TarMember } from "@forkd/test-support";
import { unpackLayers, UnpackFault } from "../../src/oci/unpack.ts";
import { contentOf, unpackMembers, unpackTars } from "./support.ts";

async function isRefused(work: Promise<unknown>, message: RegExp): Promise<void> {
  await assert.rejects(work, (error) => {
    assert.ok(error instanceof UnpackFault, String(error));
    assert.match(error.message, message);
    return true;
  });
}

const refused: readonly { what: string; layers: readonly (readonly TarMember[])[]; message: RegExp }[] = [
  {
    what: "a name with ..",
    layers: [[{ name: "a/../../etc/passwd", content: "x" }]],
    message: /^layer 1 of 1 \(sha256:[0-9a-f]{12}\): "a\/\.\.\/\.\.\/etc\/passwd" leads out of the image$/,
  },
  {
    what: "a hard link with ..",
    layers: [[{ name: "a", type: "1", link: "../../etc/passwd" }]],
    message: /"..\/..\/etc\/passwd" leads out of the image$/,
  },
  {
    what: "a hard link to a file outside",
    layers: [[{ name: "a", type: "1", link: "/etc/passwd" }]],
    message: /"a" is a hard link to "\/etc\/passwd", which does not exist$/,
  },
  {
    what: "a hard link to a file outside, through a link",
    layers: [[{ name: "out", type: "2", link: "/" }], [{ name: "a", type: "1", link: "out/etc/passwd" }]],
    message: /^layer 2 of 2 .*"a" is a hard link to "out\/etc\/passwd", which does not exist$/,
  },
  {
    what: "a hard link to a directory",
    layers: [[{ name: "d/" }, { name: "a", type: "1", link: "d" }]],
    message: /which is a directory$/,
  },
  {
    what: "a file below a file",
    layers: [
      [
        { name: "a", content: "1" },
        { name: "a/b", content: "2" },
      ],
    ],
    message: /"a\/b" is below a file$/,
  },
  {
    what: "a directory that becomes a file in the same layer",
    layers: [[{ name: "a/b", content: "2" }, { name: "a/" }, { name: "a", content: "1" }]],
    message: /"a" is both a directory and a file$/,
  },
  {
    what: "links in a circle",
    layers: [
      [
        { name: "a", type: "2", link: "b" },
        { name: "b", type: "2", link: "a" },
        { name: "a/x", content: "1" },
      ],
    ],
    message: /"a" has too many links$/,
  },
  {
    what: "a whiteout of the parent",
    layers: [[{ name: "a/b", content: "1" }], [{ name: "a/.wh..." }]],
    message: /"a\/\.wh\.\.\." removes nothing that has a name$/,
  },
  {
    what: "an unknown type",
    layers: [[{ name: "a", type: "Z" }]],
    message: /"a" has the unknown type "Z"$/,
  },
  {
    what: "a sparse file",
    layers: [[{ name: "a", type: "0", pax: { "GNU.sparse.major": "1" } }]],
    message: /"a" is a sparse file$/,
  },
  {
    what: "an owner that cannot exist",
    layers: [[{ name: "a", pax: { uid: "4294967295" } }]],
    message: /"a" belongs to user 4294967295 and group 0, which cannot exist$/,
  },
  {
    what: "too many attributes",
    layers: [[{ name: "a", pax: { "SCHILY.xattr.user.big": "x".repeat(4000) } }]],
    message: /"a" has more than 3800 bytes of extended attributes$/,
  },
  {
    what: "a part of a name that no file system holds",
    layers: [[{ name: "a", pax: { path: `dir/${"x".repeat(256)}` } }]],
    message: /has a part of more than 255 bytes$/,
  },
  {
    what: "a link without a target",
    layers: [[{ name: "a", type: "2" }]],
    message: /"a" is a link without a usable target$/,
  },
];

for (const { what, layers, message } of refused) {
  test(`unpackLayers() refuses ${what}`, async (t) => {
    await isRefused(unpackMembers(t, layers), message);
  });
}

test("unpackLayers() never writes outside of the tree, whatever links a layer has", async (t) => {
  const outside = await temporaryDirectory(t);
  await mkdir(join(outside, "dir"));
  await writeFile(join(outside, "file"), "untouched");
  const { tree } = await unpackMembers(t, [
    [
      { name: "absolute", type: "2", link: outside },
      { name: "file", type: "2", link: join(outside, "file") },
      { name: "relative", type: "2", link: `../../../../../../../..${outside}` },
      { name: "twice", type: "2", link: "absolute/dir" },
    ],
    [
      { name: "absolute/new", content: "1" },
      { name: "file", content: "1" },
      { name: "relative/new", content: "1" },
      { name: "twice/new", content: "1" },
    ],
    [
      { name: "own", type: "2", link: outside },
      { name: "own/new", content: "1" },
      { name: "own/dir/new", content: "1" },
      { name: "last", type: "2", link: join(outside, "file") },
      { name: "last", content: "replaced" },
      { name: "own-file", type: "2", link: join(outside, "file") },
      { name: "hard", type: "1", link: "own-file" },
    ],
  ]);
  assert.deepEqual((await readdir(outside, { recursive: true })).sort(), ["dir", "file"]);
  assert.equal(await readFile(join(outside, "file"), "utf8"), "untouched");
  assert.equal((await stat(join(outside, "file"))).nlink, 1);
  assert.equal(await contentOf(tree, "absolute/new"), "1");
  assert.equal(await contentOf(tree, "last"), "replaced");
  // The link of the same layer leads to the same path inside of the tree.
  assert.equal(await contentOf(tree, join(outside, "dir/new")), "1");
});

test("unpackLayers() stops at a layer that expands too far", async (t) => {
  const bomb = gzipSync(tarOf([{ name: "zeros", content: Buffer.alloc(8 << 20) }]));
  assert.ok(bomb.length < 100_000);
  await isRefused(
    unpackTars(t, [bomb], { maxBytes: 1 << 20 }),
    /^layer 1 of 1 .*the image has more than 1048576 bytes when it is unpacked$/,
  );
});

test("unpackLayers() counts the bytes of all layers together", async (t) => {
  const half = tarOf([{ name: "half", content: Buffer.alloc(600_000) }]);
  await isRefused(unpackTars(t, [half, half], { maxBytes: 1 << 20 }), /^layer 2 of 2 .*more than/);
});

for (const [what, change, message] of [
  ["cut off in a file", (tar: Buffer) => tar.subarray(0, 700), /it ends too early/],
  ["cut off in a header", (tar: Buffer) => tar.subarray(0, 100), /it ends too early/],
  ["that is not a tar", () => Buffer.from("not an archive".repeat(100)), /it is not a tar archive/],
  [
    "with a damaged header",
    (tar: Buffer) => Buffer.concat([Buffer.from("y"), tar.subarray(1)]),
    /a header is damaged/,
  ],
] as const) {
  test(`unpackLayers() refuses a layer ${what}`, async (t) => {
    const tar = tarOf([{ name: "xfile", content: "x".repeat(900) }]);
    await isRefused(unpackTars(t, [change(tar)]), message);
  });
}

test("unpackLayers() refuses gzip data that is damaged or cut off", async (t) => {
  const zipped = gzipSync(tarOf([{ name: "a", content: "x".repeat(10_000) }]));
  await isRefused(unpackTars(t, [zipped.subarray(0, 60)]), /its gzip data cannot be read/);
  const xz = Buffer.from("fd377a585a000000", "hex");
  await isRefused(unpackTars(t, [xz]), /compressed with xz/);
});

test("unpackLayers() compares digest and diff_id of a layer", async (t) => {
  const dir = await temporaryDirectory(t);
  const tar = tarOf([{ name: "a", content: "1" }]);
  const zipped = gzipSync(tar);
  const path = join(dir, "layer");
  await writeFile(path, zipped);
  const part = { path, offset: 0, size: zipped.length };
  const unpack = async (digest: string, diffId: string) => {
    const tree = join(dir, `tree-${digest.slice(0, 4)}-${diffId.slice(0, 4)}`);
    await mkdir(tree);
    await unpackLayers({ layers: [{ ...part, digest, diffId }], tree, maxBytes: 1 << 20, directories: [] });
    return tree;
  };
  const other = sha256("other");
  await isRefused(unpack(other, sha256(tar)), /its digest is sha256:[0-9a-f]+, but the image names/);
  await isRefused(unpack(sha256(zipped), other), /its diff_id is sha256:[0-9a-f]+, but the image names/);
  assert.equal(await contentOf(await unpack(sha256(zipped), sha256(tar)), "a"), "1");
});

test("unpackLayers() refuses a directory for a command where the image has a file", async (t) => {
  await isRefused(
    unpackMembers(t, [[{ name: "srv", content: "1" }]], { directories: ["/srv/app"] }),
    /^"\/srv\/app" should be a directory, but the image has another file there$/,
  );
});
