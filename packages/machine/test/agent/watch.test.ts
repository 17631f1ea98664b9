import assert from "node:assert/strict";
import { chmod, mkdir, rename, rm, symlink, writeFile as writeHostFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { AppError, type WatchEvent } from "@forkd/contract";
import { writeFile } from "../../src/agent/files.ts";
import { watchFiles, type FileWatch } from "../../src/agent/watch.ts";
import { frameType } from "../../src/agent/wire/frames.ts";
import { FakeGuest } from "./support/fake-guest.ts";
import { RealAgent } from "./support/real-agent.ts";
import { statRecord, watchRecord } from "./support/stat-record.ts";

/** Reads on in the background; `seen` takes the events of all changes so far. */
function reading(watch: FileWatch) {
  const events: WatchEvent[] = [];
  const end = (async () => {
    for await (const event of watch) events.push(event);
  })();
  end.catch(() => undefined);
  const seen = async (): Promise<WatchEvent[]> => {
    await watch.sync();
    return events.splice(0);
  };
  return { end, seen };
}

const short = (events: readonly WatchEvent[]): string[] =>
  events.map((event) => `${event.type} ${"path" in event ? event.path : ""}`);

test("watchFiles() reports changes in their order", async () => {
  await using agent = await RealAgent.open();
  const at = (name: string): string => join(agent.directory, name);
  const watch = await watchFiles(agent.client, agent.directory);
  const { seen } = reading(watch);
  assert.deepEqual(await seen(), [{ type: "started", path: agent.directory }]);
  await writeFile(agent.client, at("a"), [Buffer.from("x")], { inPlace: true });
  assert.deepEqual(short(await seen()), ["create a", "chmod a", "write a"]);
  await rename(at("a"), at("b"));
  assert.deepEqual(await seen(), [
    { type: "rename", path: "a" },
    { type: "create", path: "b", from: "a" },
  ]);
  await rm(at("b"));
  await chmod(agent.directory, 0o700);
  assert.deepEqual(short(await seen()), ["remove b", "chmod ."]);
  await watch.return();
  await assert.rejects(watch.sync(), { code: "wrong_state" });
  assert.deepEqual(await agent.client.list(), []);
});

test("watchFiles() watches new directories, and describes files", async () => {
  await using agent = await RealAgent.open();
  const at = (name: string): string => join(agent.directory, name);
  await using watch = await watchFiles(agent.client, agent.directory, {
    recursive: true,
    includeEntry: true,
  });
  const { seen } = reading(watch);
  await seen();
  await mkdir(at("x/y"), { recursive: true });
  await writeHostFile(at("x/y/f"), "12");
  await symlink("/", at("x/l"));
  const events = await seen();
  const created = events.filter(({ type }) => type === "create");
  assert.deepEqual(short(created).sort(), ["create x", "create x/l", "create x/y", "create x/y/f"]);
  // It may have been found before its content was written.
  const file = events.findLast((event) => "path" in event && event.path === "x/y/f");
  assert.ok(file?.type === "create" || file?.type === "write");
  assert.deepEqual([file.entry?.path, file.entry?.name, file.entry?.size], [at("x/y/f"), "f", 2]);
});

test("watchFiles() ends with an error when the directory is removed", async () => {
  await using agent = await RealAgent.open();
  const path = join(agent.directory, "w");
  await mkdir(path);
  const { end } = reading(await watchFiles(agent.client, path));
  await rm(path, { recursive: true });
  await assert.rejects(end, { code: "file_not_found", message: /removed or moved/ });
  assert.deepEqual(await agent.client.list(), []);
});

test("watchFiles() rejects for a path that cannot be watched", async () => {
  await using agent = await RealAgent.open();
  await assert.rejects(watchFiles(agent.client, join(agent.directory, "none")), { code: "file_not_found" });
  await writeHostFile(join(agent.directory, "f"), "");
  const refused = (error: AppError) => error.details["errno"] === "ENOTDIR";
  await assert.rejects(watchFiles(agent.client, join(agent.directory, "f")), refused);
});

test("watchFiles() ends when its caller aborts, while it waits for a change", async () => {
  await using agent = await RealAgent.open();
  const abort = new AbortController();
  const watch = await watchFiles(agent.client, agent.directory, { signal: abort.signal });
  const { end, seen } = reading(watch);
  await seen();
  abort.abort();
  await assert.rejects(end, { code: "cancelled" });
  assert.deepEqual(await agent.client.list(), []);
});

const started = watchRecord("s", "/dir");
for (const [what, bytes] of [
  ["a path that leads out", watchRecord("c", "../../etc/passwd")],
  ["an absolute path", watchRecord("c", "/etc/passwd")],
  ["an earlier path that leads out", watchRecord("c", "a", "../b")],
  ["a path of a name that is too long", watchRecord("w", "n".repeat(1025))],
  ["an unknown change", watchRecord("?", "a")],
  ["a second start", started],
  ["an entry that is not a record", watchRecord("c", "a", "", Buffer.alloc(10))],
  [
    "an entry with bytes after it",
    watchRecord("c", "a", "", Buffer.concat([statRecord("/dir/a"), Buffer.alloc(1)])),
  ],
  ["a path longer than any", Buffer.from([0x63, 0xff, 0xff])],
] as const) {
  test(`watchFiles() refuses ${what} from the guest`, async () => {
    await using guest = await FakeGuest.ready();
    const opening = watchFiles(guest.client, "/dir");
    const id = await guest.acceptStart();
    guest.output(id, 1, 0, started);
    const { end } = reading(await opening);
    guest.output(id, 1, started.length, bytes);
    const kill = await guest.take(frameType.signal);
    assert.equal(kill.id, id);
    guest.exit(id);
    await assert.rejects(end, (error: AppError) => error.details["errno"] === "EPROTO");
  });
}

test("watchFiles() takes the path of an entry from the event, whatever the guest names it", async () => {
  await using guest = await FakeGuest.ready();
  const opening = watchFiles(guest.client, "/dir", { includeEntry: true });
  const id = await guest.acceptStart();
  const record = watchRecord("c", "a/b", "", statRecord("/etc/shadow"));
  guest.output(id, 1, 0, Buffer.concat([started, record]));
  const watch = await opening;
  await watch.next();
  const { value } = await watch.next();
  assert.ok(value?.type === "create");
  assert.deepEqual([value.path, value.entry?.path, value.entry?.name], ["a/b", "/dir/a/b", "b"]);
  const closed = watch.return();
  await guest.take(frameType.signal);
  guest.exit(id);
  await closed;
});
