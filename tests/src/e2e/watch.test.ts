/** Watching files of a real guest: what is reported, what is not lost, and how a watch ends. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { until } from "@forkd/test-support";
import type { Sandbox } from "@forkd/sdk";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { rawRequest, type RawAnswer } from "../support/raw-http.ts";
import { sh } from "../support/sandboxes.ts";

let daemon: TestDaemon;
let sandbox: Sandbox;
before(async () => {
  daemon = await startDaemon({ snapshots: ["tiny"] });
  sandbox = await daemon.forkd.create("tiny");
});
after(() => daemon[Symbol.asyncDispose]());

function filesPath(route: string, query: Record<string, string>, id = sandbox.id): string {
  return `/v1/sandboxes/${id}/files${route}?${new URLSearchParams(query).toString()}`;
}

async function watch(query: Record<string, string>, id?: string): Promise<RawAnswer> {
  const answer = await rawRequest(daemon.socket, { path: filesPath("/watch", query, id) });
  const first = await answer.next();
  assert.deepEqual([answer.status, first?.["type"]], [200, "started"], JSON.stringify(first));
  return answer;
}

/** Events up to the creation of a file, which comes after all changes before it. */
async function eventsUntil(answer: RawAnswer, path: string): Promise<Record<string, unknown>[]> {
  const events: Record<string, unknown>[] = [];
  for (let event = await answer.next(); event; event = await answer.next()) {
    if (event["type"] === "create" && event["path"] === path) return events;
    events.push(event);
  }
  throw new Error(`the watch ended: ${JSON.stringify(events.at(-1))}`);
}

const short = (events: readonly Record<string, unknown>[]): string[] =>
  events.map((event) => `${String(event["type"])} ${String(event["path"])}`);

/** Commands of the guest that are watches. */
const watching = async (): Promise<number> =>
  Number(
    await sh(sandbox, "ls -d /proc/[0-9]*/fd/* | xargs -n1 readlink 2>/dev/null | grep -c inotify || true"),
  );

test("a watch reports each change of a file, in order, and describes it", async () => {
  await sh(sandbox, "mkdir -p /tmp/w");
  using answer = await watch({ path: "/tmp/w", include_entry: "true" });
  const put = filesPath("", { path: "/tmp/w/f", in_place: "true", mode: "0640" });
  using written = await rawRequest(daemon.socket, { method: "PUT", path: put, body: "content" });
  assert.equal(written.status, 200);
  await sh(sandbox, "mv /tmp/w/f /tmp/w/g; rm /tmp/w/g; touch /tmp/w/end");
  const events = await eventsUntil(answer, "end");
  assert.deepEqual(short(events), ["create f", "chmod f", "write f", "rename f", "create g", "remove g"]);
  assert.equal(events[4]?.["from"], "f");
  const { entry } = events[2] as { entry?: Record<string, unknown> };
  // The file may be gone when the watch describes it.
  if (entry)
    assert.deepEqual(
      [entry["path"], entry["mode"], entry["owner"], entry["group"]],
      ["/tmp/w/f", "0640", "root", "root"],
    );
});

test("a recursive watch loses nothing in directories that appear while it looks", async () => {
  await sh(sandbox, "rm -rf /tmp/r; mkdir -p /tmp/r/old");
  using answer = await watch({ path: "/tmp/r", recursive: "true" });
  await sh(
    sandbox,
    `cd /tmp/r; i=0; while [ $i -lt 60 ]; do mkdir -p n$i/a/b; echo > n$i/a/b/f; i=$((i+1)); done;
     ln -s / old/link; echo > old/g; touch end`,
  );
  const created = short(await eventsUntil(answer, "end")).filter((line) => line.startsWith("create"));
  const wanted = ["create old/link", "create old/g"];
  for (let i = 0; i < 60; i++)
    for (const path of ["", "/a", "/a/b", "/a/b/f"]) wanted.push(`create n${i}${path}`);
  // The file that ends the search may be found before the last directories have been read.
  await sh(sandbox, "touch /tmp/r/last");
  created.push(...short(await eventsUntil(answer, "last")).filter((line) => line.startsWith("create")));
  assert.deepEqual(created.sort(), wanted.sort());
});

test("a watch as a user sees what the user may see, below its home", async () => {
  await sh(
    sandbox,
    "mkdir -p /home/user/d/closed; chown -R 1000:1000 /home/user; chown 0:0 /home/user/d/closed; chmod 700 /home/user/d/closed",
  );
  using answer = await rawRequest(daemon.socket, {
    path: filesPath("/watch", { path: "~/d", user: "user", recursive: "true" }),
  });
  assert.deepEqual(await answer.next(), { type: "started", path: "/home/user/d" });
  await sh(sandbox, "touch /home/user/d/closed/f /home/user/d/end");
  assert.deepEqual(await eventsUntil(answer, "end"), []);
});

/** Goes to a directory below /tmp/o, deep enough for events of 3 KB. */
const inDeep = `cd /tmp/o; d=$(printf 'd%.0s' $(seq 250)); for i in $(seq 12); do mkdir -p $d; cd $d; done`;

/** Whether a reader that stalls during so many changes gets an overflow. */
async function overflowsAfter(changes: number): Promise<boolean> {
  using answer = await watch({ path: "/tmp/o", recursive: "true" });
  answer.stream.pause();
  const flood = `${inDeep}; i=0; while [ $i -lt ${changes} ]; do : > f; rm f; i=$((i+1)); done`;
  await sandbox.commands.run(["sh", "-c", flood], { timeoutMs: 600_000, check: true });
  answer.stream.resume();
  await sh(sandbox, "touch /tmp/o/end; rm /tmp/o/end");
  for (let event = await answer.next(); event && event["path"] !== "end"; event = await answer.next())
    // The last change may be among those that were lost.
    if (event["type"] === "overflow") return true;
  return false;
}

test("a reader that stalls gets an overflow instead of a gap", async () => {
  await sh(sandbox, `mkdir -p /tmp/o; ${inDeep}; echo 64 > /proc/sys/fs/inotify/max_queued_events`);
  // Buffers between guest and client, whose sizes depend on the host, hold what comes first.
  let changes = 500;
  while (changes <= 32_000 && !(await overflowsAfter(changes))) changes *= 2;
  assert.ok(changes <= 32_000, "no overflow");
  await sh(sandbox, "echo 16384 > /proc/sys/fs/inotify/max_queued_events");
});

test("a watch ends with an error when its directory is removed", async () => {
  await sh(sandbox, "mkdir -p /tmp/gone");
  using answer = await watch({ path: "/tmp/gone" });
  await sh(sandbox, "rmdir /tmp/gone");
  const last = (await answer.rest()).at(-1);
  assert.deepEqual([last?.["type"], last?.["code"]], ["error", "file_not_found"]);
});

test("a path that cannot be watched is an error, not a stream", async () => {
  for (const [query, status, code] of [
    [{ path: "/tmp/none" }, 404, "file_not_found"],
    [{ path: "/etc/passwd" }, 422, "guest_refused"],
    [{ path: "tmp" }, 400, "invalid_request"],
  ] as const) {
    using answer = await rawRequest(daemon.socket, { path: filesPath("/watch", query) });
    assert.deepEqual([answer.status, (await answer.next())?.["code"]], [status, code]);
  }
});

test("a client that goes, a pause and a branch leave no watch behind", async () => {
  {
    using _gone = await watch({ path: "/tmp" });
    assert.equal(await watching(), 1);
  }
  await until("the watch of the client has ended", async () => (await watching()) === 0);
  using answer = await watch({ path: "/tmp" });
  await sandbox.branch({ tag: "watched" });
  const child = await daemon.forkd.create("watched");
  assert.equal(
    await sh(child, "ls -d /proc/[0-9]*/fd/* | xargs -n1 readlink 2>/dev/null | grep -c inotify || true"),
    "0",
  );
  await child.kill();
  await sh(sandbox, "touch /tmp/after-branch");
  assert.deepEqual(await eventsUntil(answer, "after-branch"), [], "the watch of the source lasts");
  await sandbox.pause();
  const last = (await answer.rest()).at(-1);
  assert.equal(last?.["type"], "error");
  await sandbox.resume();
  assert.equal(await watching(), 0);
});

test("listFiles and statFile describe owners, links and directories below", async () => {
  await sh(sandbox, "mkdir -p /tmp/l/a/b; ln -s a/b /tmp/l/link; chown 1000:12345 /tmp/l/a");
  using answer = await rawRequest(daemon.socket, {
    path: filesPath("/list", { path: "/tmp/l", depth: "2" }),
  });
  const [entries] = (await answer.rest()) as unknown as [Record<string, unknown>[]];
  assert.deepEqual(
    entries?.map(({ path, owner, group, gid }) => [path, owner, group, gid]),
    [
      ["/tmp/l/a", "user", undefined, 12345],
      ["/tmp/l/a/b", "root", "root", 0],
      ["/tmp/l/link", "root", "root", 0],
    ],
  );
  assert.deepEqual(entries?.[2]?.["resolved"], { path: "/tmp/l/a/b", type: "directory", mode: "0755" });
  using refused = await rawRequest(daemon.socket, {
    path: filesPath("/list", { path: "/tmp", depth: "65" }),
  });
  assert.equal(refused.status, 400);
});
