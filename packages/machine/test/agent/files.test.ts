import assert from "node:assert/strict";
import {
  mkdir,
  readdir,
  readFile as readHostFile,
  stat,
  symlink,
  writeFile as writeHostFile,
} from "node:fs/promises";
import { userInfo } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { AppError } from "@forkd/contract";
import {
  changeMode,
  listFiles,
  makeDirectory,
  moveFile,
  readFile,
  removeFile,
  statFile,
  writeFile,
} from "../../src/agent/files.ts";
import { frameType } from "../../src/agent/wire/frames.ts";
import { FakeGuest } from "./support/fake-guest.ts";
import { RealAgent } from "./support/real-agent.ts";
import { listing, statRecord } from "./support/stat-record.ts";

async function bytesOf(content: AsyncIterable<Buffer>): Promise<Buffer> {
  const pieces: Buffer[] = [];
  for await (const piece of content) pieces.push(Buffer.from(piece));
  return Buffer.concat(pieces);
}

const hasErrno =
  (code: string, errno: string) =>
  (error: unknown): boolean =>
    error instanceof AppError && error.code === code && error.details["errno"] === errno;

test("writeFile() writes a whole file; readFile() reads all or a part of it", async () => {
  await using agent = await RealAgent.open();
  const path = join(agent.directory, "new", "file");
  const content = Buffer.alloc(3_000_000, "0123456789abc");
  await writeFile(agent.client, path, [content.subarray(0, 1_000_001), content.subarray(1_000_001)], {
    mode: 0o600,
  });
  assert.ok((await readHostFile(path)).equals(content));
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  assert.ok((await bytesOf(await readFile(agent.client, path))).equals(content));
  const part = await bytesOf(await readFile(agent.client, path, { offset: 13, limit: 13 }));
  assert.equal(part.toString(), "0123456789abc");
  await writeFile(agent.client, path, [Buffer.from("!")], { append: true });
  assert.equal((await stat(path)).size, 3_000_001);
  assert.deepEqual(await agent.client.list(), []);
});

test("writeFile() and readFile() handle an empty file", async () => {
  await using agent = await RealAgent.open();
  const path = join(agent.directory, "empty");
  await writeFile(agent.client, path, []);
  assert.equal((await bytesOf(await readFile(agent.client, path))).length, 0);
});

test("readFile() rejects for a missing file before the first byte", async () => {
  await using agent = await RealAgent.open();
  await assert.rejects(
    readFile(agent.client, join(agent.directory, "none")),
    hasErrno("file_not_found", "ENOENT"),
  );
  await assert.rejects(readFile(agent.client, agent.directory), hasErrno("guest_refused", "EISDIR"));
});

test("a reader may stop early", async () => {
  await using agent = await RealAgent.open();
  for await (const piece of await readFile(agent.client, "/dev/zero")) {
    assert.ok(piece.length > 0);
    break;
  }
  const unread = await readFile(agent.client, "/dev/zero");
  await unread.return?.();
  assert.deepEqual(await agent.client.list(), []);
});

test("writeFile() leaves no file when its content fails", async () => {
  await using agent = await RealAgent.open();
  async function* content(): AsyncGenerator<Buffer> {
    yield Buffer.from("first");
    throw new RangeError("no more");
  }
  await assert.rejects(writeFile(agent.client, join(agent.directory, "file"), content()), RangeError);
  assert.deepEqual(await readdir(agent.directory), []);
});

test("writeFile() leaves no file after an abort", async () => {
  await using agent = await RealAgent.open();
  const controller = new AbortController();
  async function* content(): AsyncGenerator<Buffer> {
    yield Buffer.from("first");
    controller.abort();
    await new Promise(() => undefined);
  }
  const writing = writeFile(agent.client, join(agent.directory, "file"), content(), {
    signal: controller.signal,
  });
  await assert.rejects(writing, { code: "cancelled" });
  assert.deepEqual(await readdir(agent.directory), []);
});

test("a refused writeFile() ends before all content is read", async () => {
  await using agent = await RealAgent.open();
  const path = join(agent.directory, "file");
  await writeHostFile(path, "old");
  async function* endless(): AsyncGenerator<Buffer> {
    for (;;) yield Buffer.alloc(65_536);
  }
  const writing = writeFile(agent.client, path, endless(), { exclusive: true });
  await assert.rejects(writing, hasErrno("already_exists", "EEXIST"));
  assert.equal(await readHostFile(path, "utf8"), "old");
});

test("writeFile() fails with disk_full on a full disk", async () => {
  await using agent = await RealAgent.open();
  const content = Array.from({ length: 8 }, () => Buffer.alloc(65_536));
  const writing = writeFile(agent.client, "/dev/full", content, { append: true });
  await assert.rejects(writing, (error: AppError) => {
    assert.deepEqual([error.code, error.details["where"]], ["disk_full", "guest"]);
    return true;
  });
});

test("listFiles() returns sorted entries with their type", async () => {
  await using agent = await RealAgent.open();
  const at = (name: string): string => join(agent.directory, name);
  await mkdir(at("dir"));
  await writeHostFile(at("b"), "12345", { mode: 0o640 });
  await symlink("b", at("a-link"));
  const entries = await listFiles(agent.client, agent.directory);
  assert.deepEqual(
    entries.map(({ name, path, type, target }) => [name, path, type, target]),
    [
      ["a-link", at("a-link"), "symlink", "b"],
      ["b", at("b"), "file", undefined],
      ["dir", at("dir"), "directory", undefined],
    ],
  );
  const host = await stat(at("b"));
  const { size, mode, mtime_unix, uid, gid } = entries[1]!;
  assert.deepEqual([size, mode, uid, gid], [5, "0640", host.uid, host.gid]);
  assert.ok(Math.abs(mtime_unix - host.mtimeMs / 1000) < 0.002);
});

test("listFiles() lists directories below, with owners and where links lead", async () => {
  await using agent = await RealAgent.open();
  const at = (name: string): string => join(agent.directory, name);
  await mkdir(at("a/b"), { recursive: true });
  await writeHostFile(at("a/b/f"), "");
  await symlink("a", at("l"));
  await symlink("nowhere", at("m"));
  const names = async (depth: number) =>
    (await listFiles(agent.client, agent.directory, { depth })).map(({ path }) => path);
  assert.deepEqual(await names(1), ["a", "l", "m"].map(at));
  assert.deepEqual(await names(2), ["a", "a/b", "l", "m"].map(at));
  assert.deepEqual(await names(64), ["a", "a/b", "a/b/f", "l", "m"].map(at));
  const [a, l, m] = await listFiles(agent.client, agent.directory);
  assert.deepEqual([a?.owner, a?.group, a?.resolved], ["root", "root", undefined]);
  assert.deepEqual([l?.target, l?.resolved], ["a", { path: at("a"), type: "directory", mode: "0755" }]);
  assert.deepEqual([m?.target, m?.resolved], ["nowhere", undefined]);
});

test("a path below the home is answered with its absolute path", async () => {
  await using agent = await RealAgent.open();
  const { homedir: home } = userInfo();
  assert.equal((await statFile(agent.client, "~")).path, home);
  assert.equal((await listFiles(agent.client, "~/."))[0]?.path.startsWith(`${home}/`), true);
});

test("a guest cannot answer a path below the home with a relative one", async () => {
  await using guest = await FakeGuest.ready();
  const described = statFile(guest.client, "~/a");
  const id = await guest.acceptStart();
  guest.output(id, 1, 0, statRecord("a"));
  guest.exit(id);
  await assert.rejects(described, hasErrno("guest_refused", "EPROTO"));
});

test("writeFile() in place keeps the file, and watchers of it", async () => {
  await using agent = await RealAgent.open();
  const path = join(agent.directory, "file");
  await writeHostFile(path, "longer");
  const { ino } = await stat(path);
  await writeFile(agent.client, path, [Buffer.from("new")], { inPlace: true });
  assert.deepEqual([await readHostFile(path, "utf8"), (await stat(path)).ino], ["new", ino]);
});

test("statFile() describes the link or, with follow, its target", async () => {
  await using agent = await RealAgent.open();
  const link = join(agent.directory, "link");
  await symlink("/", link);
  const own = await statFile(agent.client, link);
  assert.deepEqual([own.type, own.name, own.path, own.target], ["symlink", "link", link, "/"]);
  assert.equal((await statFile(agent.client, link, { follow: true })).type, "directory");
  assert.equal((await statFile(agent.client, "/")).name, "/");
  await assert.rejects(statFile(agent.client, `${link}-none`), hasErrno("file_not_found", "ENOENT"));
});

test("directories can be created, moved, changed and removed", async () => {
  await using agent = await RealAgent.open();
  const { client, directory } = agent;
  const deep = join(directory, "x", "y");
  await assert.rejects(makeDirectory(client, deep), hasErrno("file_not_found", "ENOENT"));
  await makeDirectory(client, deep, { recursive: true, mode: 0o700 });
  await makeDirectory(client, deep, { recursive: true });
  await assert.rejects(makeDirectory(client, deep), hasErrno("already_exists", "EEXIST"));
  await changeMode(client, deep, 0o711);
  assert.equal((await stat(deep)).mode & 0o777, 0o711);
  await moveFile(client, join(directory, "x"), join(directory, "z"));
  await assert.rejects(removeFile(client, join(directory, "z")), hasErrno("guest_refused", "ENOTEMPTY"));
  await removeFile(client, join(directory, "z"), { recursive: true });
  assert.deepEqual(await readdir(directory), []);
});

for (const [what, bytes] of [
  ["a name with a slash", listing(statRecord("../../etc/passwd"))],
  ["the name ..", listing(statRecord(".."))],
  ["an empty name", listing(statRecord(""))],
  ["a name that is too deep", listing(statRecord("a/b"))],
  ["an unknown type", listing(statRecord("x", {}, "?"))],
  ["a link to an unknown type", listing(statRecord("x", { resolved: "/a" }, "l", "?"))],
  ["a link to a relative path", listing(statRecord("x", { resolved: "a" }, "l", "f"))],
  ["a cut record", listing(statRecord("abc")).subarray(0, -1)],
  ["no record", Buffer.from([])],
] as const) {
  test(`listFiles() refuses a listing with ${what}`, async () => {
    await using guest = await FakeGuest.ready();
    const files = listFiles(guest.client, "/dir");
    const id = await guest.acceptStart();
    if (bytes.length > 0) guest.output(id, 1, 0, bytes);
    guest.exit(id);
    await assert.rejects(files, hasErrno("guest_refused", "EPROTO"));
  });
}

test("listFiles() refuses an endless listing and kills its process", async () => {
  await using guest = await FakeGuest.ready();
  const files = listFiles(guest.client, "/dir");
  const refused = assert.rejects(files, { code: "guest_refused", message: /more than 100000 entries/ });
  const id = await guest.acceptStart();
  const block = Buffer.concat(Array.from({ length: 1000 }, () => statRecord("n")));
  let credit = 262_144;
  const directory = listing();
  guest.output(id, 1, 0, directory);
  let offset = directory.length;
  credit -= offset;
  for (let sent = 0; sent < 101; sent++) {
    while (credit < block.length) credit += (await guest.take(frameType.credit)).payload.readUInt32LE(1);
    guest.output(id, 1, offset, block);
    offset += block.length;
    credit -= block.length;
  }
  const kill = await guest.take(frameType.signal);
  assert.deepEqual([kill.id, kill.payload[0]], [id, 9]);
  guest.exit(id);
  await refused;
});
