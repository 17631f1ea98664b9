import assert from "node:assert/strict";
import { lstat, readdir, readlink, stat } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { runProgram } from "@forkd/base";
import { contentOf, listTree, unpackMembers } from "./support.ts";

/** What every tree gets. */
const usual = ["dev", "etc", "proc", "run", "sys", "tmp"];

async function namesAt(tree: string, path = ""): Promise<string[]> {
  return (await readdir(join(tree, path))).filter((name) => path !== "" || !usual.includes(name)).sort();
}

test("unpackLayers() keeps owners, modes, times, links and fifos", async (t) => {
  const { tree, bytes } = await unpackMembers(t, [
    [
      { name: "./", mode: 0o700 },
      { name: "./home/app/", mode: 0o2750, uid: 1000, gid: 1001, mtime: 1_500_000_000 },
      {
        name: "./home/app/run",
        mode: 0o4755,
        uid: 1000,
        gid: 1001,
        content: "#!/bin/sh\n",
        mtime: 1_500_000_001,
      },
      { name: "./home/app/again", type: "1", link: "./home/app/run" },
      { name: "./home/app/link", type: "2", link: "../../etc/motd" },
      { name: "./home/app/queue", type: "6", mode: 0o600 },
    ],
  ]);
  assert.equal(bytes, 10);
  assert.deepEqual(
    (await listTree(tree)).filter((line) => line.includes("/home/")),
    [
      "d 2750 1000:1001 /home/app",
      "f 4755 1000:1001 /home/app/again",
      "l 777 0:0 /home/app/link -> ../../etc/motd",
      "p 600 0:0 /home/app/queue",
      "f 4755 1000:1001 /home/app/run",
    ],
  );
  const run = await stat(join(tree, "home/app/run"));
  assert.equal(run.mtimeMs, 1_500_000_001_000);
  assert.equal(run.ino, (await stat(join(tree, "home/app/again"))).ino);
  assert.equal((await stat(join(tree, "home/app"))).mtimeMs, 1_500_000_000_000);
});

test("unpackLayers() makes the directories that a guest needs, also in an image without any", async (t) => {
  const { tree } = await unpackMembers(t, [[{ name: "app", mode: 0o755, content: "program" }]], {
    directories: ["/srv/data", "/"],
  });
  assert.deepEqual((await readdir(tree)).sort(), ["app", ...usual, "srv"].sort());
  assert.equal((await stat(join(tree, "tmp"))).mode & 0o7777, 0o1777);
  assert.ok((await stat(join(tree, "srv/data"))).isDirectory());
});

test("unpackLayers() replaces mount points that are not directories", async (t) => {
  const { tree } = await unpackMembers(t, [
    [
      { name: "proc", type: "2", link: "/etc" },
      { name: "dev", content: "file" },
      { name: "tmp", type: "2", link: "var/tmp" },
    ],
  ]);
  assert.ok((await lstat(join(tree, "proc"))).isDirectory());
  assert.ok((await lstat(join(tree, "dev"))).isDirectory());
  assert.equal(await readlink(join(tree, "tmp")), "var/tmp");
  assert.equal((await stat(join(tree, "var/tmp"))).mode & 0o7777, 0o1777);
});

test("unpackLayers() removes what a whiteout names, from lower layers only", async (t) => {
  const { tree } = await unpackMembers(t, [
    [
      { name: "a/gone", content: "1" },
      { name: "a/kept", content: "1" },
      { name: "b/deep/file", content: "1" },
      { name: "c", content: "old" },
    ],
    [
      { name: "a/.wh.gone" },
      { name: "a/.wh.never-was" },
      { name: ".wh.b" },
      { name: "nowhere/.wh.x" },
      { name: "c", content: "new" },
      { name: ".wh.c" },
    ],
  ]);
  assert.deepEqual(await namesAt(tree), ["a", "c"]);
  assert.deepEqual(await namesAt(tree, "a"), ["kept"]);
  assert.equal(await contentOf(tree, "c"), "new");
});

test("unpackLayers() empties an opaque directory, in whatever order its entries come", async (t) => {
  const lower = [
    { name: "d/", mode: 0o711 },
    { name: "d/old", content: "1" },
    { name: "d/sub/old", content: "1" },
  ];
  const entries = [
    { name: "d/", mode: 0o750 },
    { name: "d/new", content: "2" },
    { name: "d/sub/new", content: "2" },
  ];
  const mark = { name: "d/.wh..wh..opq" };
  for (const upper of [
    [mark, ...entries],
    [...entries, mark],
  ]) {
    const { tree } = await unpackMembers(t, [lower, upper]);
    assert.deepEqual(await namesAt(tree, "d"), ["new", "sub"]);
    assert.deepEqual(await namesAt(tree, "d/sub"), ["new"]);
    assert.equal((await stat(join(tree, "d"))).mode & 0o777, 0o750);
  }
});

test("unpackLayers() does not create files of storage drivers", async (t) => {
  const { tree } = await unpackMembers(t, [
    [{ name: ".wh..wh.plnk/1.2", content: "" }, { name: ".wh..wh.orph/" }, { name: "a", content: "1" }],
  ]);
  assert.deepEqual(await namesAt(tree), ["a"]);
});

test("unpackLayers() replaces files by directories and directories by files", async (t) => {
  const { tree } = await unpackMembers(t, [
    [
      { name: "file-to-dir", content: "1" },
      { name: "dir-to-file/x/y", content: "1" },
      { name: "link-to-dir", type: "2", link: "/etc" },
      { name: "dir-to-link/x", content: "1" },
      { name: "file-to-parent", content: "1" },
    ],
    [
      { name: "file-to-dir/" },
      { name: "file-to-dir/x", content: "2" },
      { name: "dir-to-file", content: "2" },
      { name: "link-to-dir/" },
      { name: "dir-to-link", type: "2", link: "file-to-dir" },
      { name: "file-to-parent/x", content: "2" },
    ],
  ]);
  assert.equal(await contentOf(tree, "file-to-dir/x"), "2");
  assert.equal(await contentOf(tree, "dir-to-file"), "2");
  assert.ok((await lstat(join(tree, "link-to-dir"))).isDirectory());
  assert.equal(await readlink(join(tree, "dir-to-link")), "file-to-dir");
  assert.equal(await contentOf(tree, "file-to-parent/x"), "2");
});

test("unpackLayers() keeps the content of a hard link when another layer replaces the other name", async (t) => {
  const { tree } = await unpackMembers(t, [
    [
      { name: "one", content: "old" },
      { name: "two", type: "1", link: "one" },
    ],
    [
      { name: "one", content: "new" },
      { name: "three", type: "1", link: "/two" },
    ],
  ]);
  assert.equal(await contentOf(tree, "one"), "new");
  assert.equal(await contentOf(tree, "two"), "old");
  assert.equal((await stat(join(tree, "two"))).ino, (await stat(join(tree, "three"))).ino);
});

test("unpackLayers() follows links of a layer inside the tree, and hides those of lower layers", async (t) => {
  const { tree } = await unpackMembers(t, [
    [
      { name: "usr/lib/" },
      { name: "lib", type: "2", link: "usr/lib" },
      { name: "lib/own", content: "1" },
      { name: "up", type: "2", link: "../../../../usr" },
      { name: "up/lib/climbed", content: "1" },
    ],
    [{ name: "lib/later", content: "2" }],
  ]);
  assert.deepEqual(await namesAt(tree, "usr/lib"), ["climbed", "own"]);
  assert.ok((await lstat(join(tree, "lib"))).isDirectory());
  assert.deepEqual(await namesAt(tree, "lib"), ["later"]);
});

test("unpackLayers() keeps capabilities and attributes of programs", async (t) => {
  // CAP_NET_BIND_SERVICE, effective and permitted; version 2
  const capability = "\x01\x00\x00\x02\x00\x04" + "\x00".repeat(14);
  const { tree, note } = await unpackMembers(t, [
    [
      {
        name: "ping",
        content: "1",
        uid: 7,
        pax: {
          "SCHILY.xattr.security.capability": capability,
          "SCHILY.xattr.user.origin": "test äö",
          "SCHILY.xattr.trusted.overlay.opaque": "y",
          "SCHILY.xattr.security.selinux": "label",
        },
      },
    ],
  ]);
  const { stdout } = await runProgram("getcap", [join(tree, "ping")], {
    env: { PATH: "/usr/sbin:/sbin:/usr/bin" },
  });
  assert.match(stdout, /cap_net_bind_service[+=]ep/);
  const attributes = await runProgram("python3", [
    "-c",
    "import os,sys; print(sorted(os.listxattr(sys.argv[1])), os.getxattr(sys.argv[1], 'user.origin').decode())",
    join(tree, "ping"),
  ]);
  assert.equal(attributes.stdout, "['security.capability', 'user.origin'] test äö\n");
  assert.equal(
    note,
    'Left out: attribute "trusted.overlay.opaque" of "ping", attribute "security.selinux" of "ping"',
  );
});

test("unpackLayers() leaves out device nodes and says so", async (t) => {
  const { tree, note } = await unpackMembers(t, [
    [
      { name: "dev/console", type: "3" },
      { name: "dev/tty", type: "1", link: "dev/console" },
      ...Array.from({ length: 5 }, (_, index) => ({ name: `dev/sd${index}`, type: "4" })),
    ],
  ]);
  assert.deepEqual(await namesAt(tree, "dev"), []);
  assert.match(note ?? "", /^Left out: device node "dev\/console", device node "dev\/tty", .* and 2 more$/);
});

test("unpackLayers() keeps long names, names that are not ASCII, and large owners", async (t) => {
  const deep = `${"d".repeat(120)}/${"e".repeat(200)}`;
  const { tree } = await unpackMembers(t, [
    [
      { name: "short", content: "1", pax: { path: deep, uid: "3000000", mtime: "1500000000.5" } },
      { name: "ä", content: "2" },
      { name: "long-link", type: "2", pax: { linkpath: "x".repeat(300) } },
    ],
  ]);
  const info = await stat(join(tree, deep));
  assert.deepEqual([info.uid, info.mtimeMs], [3_000_000, 1_500_000_000_500]);
  assert.equal(await contentOf(tree, "ä"), "2");
  assert.equal(await readlink(join(tree, "long-link")), "x".repeat(300));
});
