import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, readdir, readFile, readlink, stat, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { idA, openFakeDaemon, sandbox, type Answer, type Asked, type FakeDaemon } from "../fake-daemon.ts";
import { staysInside } from "../../src/guest/guest-tree.ts";
import { runCli } from "../run-cli.ts";

type Entry = { name: string; type: string; size?: number; target?: string };

const place = `/v1/sandboxes/${idA}`;
const pathIn = ({ path }: Asked) => new URL(path, "http://x").searchParams.get("path") ?? "";
const entryOf = ({ size = 0, ...rest }: Entry, path: string) => ({
  mode: "0644",
  uid: 0,
  gid: 0,
  mtime_unix: 0,
  ...rest,
  path,
  size,
});

/** A guest with these directories; every file in them has the content "guest". */
function guest(
  list: (path: string) => Entry[],
  more: Record<string, Answer | ((asked: Asked) => Answer)> = {},
): Promise<FakeDaemon> {
  return openFakeDaemon({
    "GET /v1/sandboxes": { json: [sandbox(idA)] },
    [`GET ${place}`]: { json: sandbox(idA) },
    [`GET ${place}/files/list`]: (asked) => {
      const path = pathIn(asked);
      return { json: list(path).map((entry) => entryOf(entry, join(path, entry.name))) };
    },
    [`GET ${place}/files/stat`]: (asked) => {
      const path = pathIn(asked);
      const type = path.includes("file") || path.includes("link") ? "file" : "directory";
      return { json: entryOf({ name: path.split("/").at(-1) ?? "", type, size: 5 }, path) };
    },
    [`GET ${place}/files`]: { bytes: "guest" },
    ...more,
  });
}

test("cp does not write through a link that an earlier copy created", async () => {
  await using daemon = await guest(() => [{ name: "link", type: "symlink", target: "../victim" }]);
  const { dir, socket } = daemon;
  await writeFile(join(dir, "victim"), "host");
  const first = await runCli(["cp", "--links", `${idA}:/evil`, join(dir, "out")], { socket });
  assert.equal(first.code, 0, first.stderr);
  assert.equal(await readlink(join(dir, "out/link")), "../victim");
  const second = await runCli(["cp", `${idA}:/evil/link`, `${join(dir, "out")}/`], { socket });
  assert.equal(second.code, 2);
  assert.match(second.stderr, /Cannot write ".*out\/link": it is a symbolic link/);
  assert.equal(await readFile(join(dir, "victim"), "utf8"), "host");
});

test("cp refuses a pipe in the place of a file from the guest, and follows a link that the user names", async () => {
  await using daemon = await guest(() => [{ name: "file", type: "file", size: 5 }]);
  const { dir, socket } = daemon;
  await mkdir(join(dir, "out/tree"), { recursive: true });
  execFileSync("mkfifo", [join(dir, "out/tree/file")]);
  const refused = await runCli(["cp", `${idA}:/tree`, join(dir, "out")], { socket });
  assert.equal(refused.code, 2);
  assert.match(refused.stderr, /Cannot write ".*out\/tree\/file"/);
  await writeFile(join(dir, "mine"), "");
  await symlink("mine", join(dir, "chosen"));
  assert.equal((await runCli(["cp", `${idA}:/a/file`, join(dir, "chosen")], { socket })).code, 0);
  assert.equal(await readFile(join(dir, "mine"), "utf8"), "guest");
});

test("cp skips links that lead out of the copied directory, and says so", async () => {
  const links = { absolute: "/etc/passwd", up: "../../x", inside: "sub/a", odd: "inside/../.." };
  await using daemon = await guest((path) =>
    path.endsWith("/sub")
      ? [{ name: "back", type: "symlink", target: "../inside" }]
      : [
          { name: "sub", type: "directory" },
          ...Object.entries(links).map(([name, target]) => ({ name, type: "symlink", target })),
        ],
  );
  const { dir, socket } = daemon;
  const out = join(dir, "out");
  const result = await runCli(["--json", "cp", `${idA}:/tree`, out], { socket });
  assert.equal(result.code, 0, result.stderr);
  assert.deepEqual((await readdir(out)).sort(), ["inside", "sub"]);
  assert.equal(await readlink(join(out, "sub/back")), "../inside");
  const { skipped } = JSON.parse(result.stdout) as { skipped: { path: string; reason: string }[] };
  assert.deepEqual(skipped.map(({ path }) => path.slice(out.length + 1)).sort(), ["absolute", "odd", "up"]);
  assert.ok(skipped.every(({ reason }) => /leads out of the copied directory.*--links/.test(reason)));
});

test("staysInside() follows no name of another link upwards", () => {
  for (const [path, target] of [
    ["a", "b"],
    ["a", "./b//c"],
    ["d/a", "../b"],
    ["d/e/a", "../../b/c"],
    ["d/a", ".."],
  ] as const)
    assert.equal(staysInside(path, target), true, `${path} -> ${target}`);
  for (const [path, target] of [
    ["a", "/b"],
    ["a", ".."],
    ["a", ""],
    ["d/a", "../.."],
    ["d/a", "b/../c"],
    ["a", "./../b"],
  ] as const)
    assert.equal(staysInside(path, target), false, `${path} -> ${target}`);
});

test("cp ends at a guest that invents directories without end", async () => {
  await using daemon = await guest(() => [{ name: "d", type: "directory" }]);
  const { dir, socket } = daemon;
  const result = await runCli(["cp", `${idA}:/deep`, join(dir, "out")], { socket });
  assert.equal(result.code, 9);
  assert.match(result.stderr, /"\/deep" has more than 256 levels of directories/);
  assert.deepEqual(await readdir(dir), ["s"], "nothing was written");
});

test("cp ends at a file that sends more than the guest reported and --max-bytes allows", async () => {
  await using daemon = await guest(() => [{ name: "file", type: "file", size: 1 }], {
    [`GET ${place}/files`]: { bytes: "x".repeat(1 << 20), hold: true },
  });
  const { dir, socket } = daemon;
  const args = ["cp", "--max-bytes", "1000", `${idA}:/a/file`, join(dir, "out")];
  const result = await runCli(args, { socket });
  assert.equal(result.code, 2);
  assert.match(result.stderr, /Cannot copy more than .*--max-bytes/s);
  assert.ok((await readFile(join(dir, "out"))).length <= 1000);
});

test("cp refuses before it writes when the guest reports more than the disk has", async () => {
  await using daemon = await guest(() => [{ name: "file", type: "file", size: 2 ** 52 }]);
  const { dir, socket } = daemon;
  const result = await runCli(["cp", `${idA}:/tree`, join(dir, "out")], { socket });
  assert.equal(result.code, 6);
  assert.match(result.stderr, /Cannot copy .* are free in/);
  assert.deepEqual(await readdir(dir), ["s"]);
});

const exited = (exit_code: number) => ({ type: "exit", exit_code, timed_out: false, duration_ms: 1 });

test("cp sends many small files as one archive, which tar unpacks with names and modes", async () => {
  const archive: Buffer[] = [];
  await using daemon = await guest(() => [], {
    [`POST ${place}/exec`]: { lines: [{ type: "started", exec_id: 1, pid: 9 }, exited(0)] },
    [`POST ${place}/execs/1/input`]: ({ body }) => {
      const { data } = JSON.parse(body) as { data?: string };
      if (data !== undefined) archive.push(Buffer.from(data, "base64"));
      return {};
    },
    [`POST ${place}/files/mkdir`]: {},
    [`PUT ${place}/files`]: (asked) => ({
      json: entryOf({ name: "large", type: "file", size: 300_000 }, pathIn(asked)),
    }),
  });
  const { dir, socket } = daemon;
  const long = `${"long-".repeat(30)}ü`;
  await mkdir(join(dir, "tree", long), { recursive: true });
  for (let index = 0; index < 20; index++)
    await writeFile(join(dir, "tree", `f${index}`), "x".repeat(index * 100), { mode: 0o640 });
  await writeFile(join(dir, "tree", long, long), "deep", { mode: 0o755 });
  await writeFile(join(dir, "tree", "large"), "y".repeat(300_000));
  const result = await runCli(["--json", "cp", join(dir, "tree"), `${idA}:/new`], { socket });
  assert.equal(result.code, 0, result.stderr);
  assert.deepEqual(JSON.parse(result.stdout), {
    files: 22,
    directories: 2,
    bytes: 19_000 + 4 + 300_000,
    skipped: [],
  });
  const target = join(dir, "unpacked");
  await mkdir(join(target, "new/tree", long), { recursive: true });
  execFileSync("tar", ["-xpf", "-", "-C", target], { input: Buffer.concat(archive) });
  for (let index = 0; index < 20; index++) {
    const path = join(target, "new/tree", `f${index}`);
    assert.equal((await readFile(path, "utf8")).length, index * 100);
    assert.equal((await stat(path)).mode & 0o777, 0o640);
  }
  assert.equal(await readFile(join(target, "new/tree", long, long), "utf8"), "deep");
  const written = daemon.asked.filter(({ method }) => method === "PUT").map(pathIn);
  assert.deepEqual(written, ["/new/tree/large"]);
});

test("cp reports what tar in the guest says when it fails", async () => {
  const said = Buffer.from("tar: new/f1: Cannot write: No space left on device\n").toString("base64");
  const output = { type: "stderr", offset: 0, data: said, encoding: "base64" };
  await using daemon = await guest(() => [], {
    [`POST ${place}/exec`]: { lines: [{ type: "started", exec_id: 1, pid: 9 }, output, exited(2)] },
    [`POST ${place}/execs/1/input`]: {},
    [`POST ${place}/files/mkdir`]: {},
  });
  const { dir, socket } = daemon;
  await mkdir(join(dir, "tree"));
  for (let index = 0; index < 20; index++) await writeFile(join(dir, "tree", `f${index}`), "x");
  const result = await runCli(["cp", join(dir, "tree"), `${idA}:/new`], { socket });
  assert.equal(result.code, 9);
  assert.match(result.stderr, /tar exited with 2: tar: new\/f1: Cannot write: No space left on device/);
});

test("cp copies several files at a time, in both directions, without tar in the guest", async () => {
  const names = Array.from({ length: 40 }, (_, index) => `file-${index}`);
  let open = 0;
  let most = 0;
  const files = () => names.map((name) => ({ name, type: "file", size: 5 }));
  await using daemon = await guest(files, {
    [`PUT ${place}/files`]: (asked) => {
      most = Math.max(most, ++open);
      setImmediate(() => (open -= 1));
      return { json: entryOf({ name: "f", type: "file", size: asked.body.length }, pathIn(asked)) };
    },
    [`POST ${place}/files/mkdir`]: {},
    [`POST ${place}/exec`]: { lines: [{ type: "started", exec_id: 1, pid: 9 }, exited(127)] },
    [`POST ${place}/execs/1/input`]: {},
  });
  const { dir, socket } = daemon;
  const out = await runCli(["--json", "cp", `${idA}:/tree`, join(dir, "out")], { socket });
  assert.equal(out.code, 0, out.stderr);
  assert.deepEqual((await readdir(join(dir, "out"))).sort(), [...names].sort());
  const back = await runCli(["--json", "cp", join(dir, "out"), `${idA}:/new`], { socket });
  assert.equal(back.code, 0, back.stderr);
  assert.deepEqual(JSON.parse(back.stdout), { files: 40, directories: 1, bytes: 200, skipped: [] });
  const written = daemon.asked.filter(({ method }) => method === "PUT").map(pathIn);
  assert.deepEqual(written.sort(), names.map((name) => `/new/out/${name}`).sort());
  assert.ok(most > 1, `at most ${most} at a time`);
});

test("exec -it without a terminal is refused before anything is started", async () => {
  await using daemon = await guest(() => []);
  for (const args of [
    ["exec", "-it", idA, "--", "bash"],
    ["run", "-it", "py", "--", "bash"],
  ]) {
    const result = await runCli(args, { socket: daemon.socket });
    assert.equal(result.code, 2);
    assert.match(result.stderr, /stdin is not a terminal/);
  }
  assert.deepEqual(
    daemon.asked.filter(({ method }) => method === "POST"),
    [],
  );
});
