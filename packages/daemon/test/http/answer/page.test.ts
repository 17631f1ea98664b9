import assert from "node:assert/strict";
import { test } from "node:test";
import { byAgeKey, byTagKey, pageOf } from "../../../src/http/answer/page.ts";
import { send, startServer } from "../../support.ts";

type Entry = { id: string; created_at_unix: number };

const byAge = (a: Entry, b: Entry) => a.created_at_unix - b.created_at_unix || (a.id < b.id ? -1 : 1);

test("pageOf() gives every lasting entry once and in order, whatever is added or removed", () => {
  let entries: Entry[] = Array.from({ length: 100 }, (_, nth) => ({
    id: `sb-${String(nth).padStart(3, "0")}`,
    created_at_unix: Math.floor(nth / 7), // several of the same moment
  }));
  const staying = entries.filter((_, nth) => nth % 3 !== 0).map(({ id }) => id);
  const seen: string[] = [];
  let cursor: string | undefined;
  let round = 0;
  do {
    const page = pageOf(entries, { limit: 9, cursor }, byAgeKey);
    seen.push(...page.items.map(({ id }) => id));
    cursor = page.next;
    round++;
    // Some go, before and after the place of the cursor; others come, at the end and with an old clock.
    entries = entries.filter(({ id }) => staying.includes(id) || Number(id.slice(3)) % 4 !== round % 4);
    entries.push(
      { id: `new-${round}`, created_at_unix: 1000 + round },
      { id: `old-${round}`, created_at_unix: -1 },
    );
    entries.sort(byAge);
  } while (cursor !== undefined && round < 50);
  assert.ok(round < 50);
  assert.equal(new Set(seen).size, seen.length, "nothing twice");
  assert.deepEqual(
    seen.filter((id) => staying.includes(id)),
    staying,
  );
});

test("pageOf() has a next page only where there is more", () => {
  const entries = ["a", "b", "c"].map((tag) => ({ tag }));
  assert.equal(pageOf(entries, { limit: 3 }, byTagKey).next, undefined);
  assert.equal(pageOf(entries, {}, byTagKey).items.length, 3);
  const first = pageOf(entries, { limit: 2 }, byTagKey);
  const last = pageOf(entries, { limit: 2, cursor: first.next }, byTagKey);
  assert.deepEqual([last.items, last.next], [[{ tag: "c" }], undefined]);
});

test("a list names its next page in two headers, with the filters of this one", async () => {
  const all = ["a", "b", "c"].map((tag) => ({ tag }) as never);
  await using server = await startServer({
    listSnapshots: ({ limit, cursor }) => pageOf<{ tag: string }, never>(all, { limit, cursor }, byTagKey),
  });
  const first = await send(server.socket, "/v1/snapshots?limit=2&state=ready");
  assert.deepEqual(first.json, all.slice(0, 2));
  const cursor = String(first.headers["x-next-cursor"]);
  assert.equal(first.headers["link"], `</v1/snapshots?limit=2&state=ready&cursor=${cursor}>; rel="next"`);
  const target = /^<([^>]+)>/.exec(String(first.headers["link"]))?.[1] ?? "";
  const second = await send(server.socket, target);
  assert.deepEqual(second.json, all.slice(2));
  assert.equal(second.headers["x-next-cursor"], undefined);
  assert.equal(second.headers["link"], undefined);
});

test("a bad cursor, limit or filter is refused by its name", async () => {
  await using server = await startServer({
    listSandboxes: ({ limit, cursor }) => pageOf([] as never[], { limit, cursor }, byAgeKey),
  });
  const ofAnotherList = pageOf([{ tag: "a" }, { tag: "b" }], { limit: 1 }, byTagKey).next ?? "";
  const forged = Buffer.from('["age","1","x"]').toString("base64url");
  for (const cursor of ["x", "bm90IGpzb24", ofAnotherList, forged, Buffer.from("7").toString("base64url")]) {
    const { status, json } = await send(server.socket, `/v1/sandboxes?cursor=${cursor}`);
    assert.deepEqual(
      [status, json.code, json.details.issues[0].path],
      [400, "invalid_request", "cursor"],
      cursor,
    );
  }
  for (const limit of ["0", "1001", "1.5", "many", ""]) {
    const { json } = await send(server.socket, `/v1/sandboxes?limit=${limit}`);
    assert.equal(json.details.issues[0].path, "limit", limit);
  }
  const { json } = await send(server.socket, "/v1/sandboxes?state=asleep");
  assert.equal(json.details.issues[0].path, "state");
});

test("label may be given several times, other fields may not", async () => {
  const asked: unknown[] = [];
  await using server = await startServer({
    listSandboxes: (input) => {
      asked.push(input);
      return [];
    },
  });
  await send(server.socket, "/v1/sandboxes?label=a%3D1&label=b&owner=me");
  await send(server.socket, "/v1/sandboxes?label=a%3D1%2C2");
  assert.deepEqual(asked, [{ label: ["a=1", "b"], owner: "me" }, { label: ["a=1,2"] }]);
  const twice = await send(server.socket, "/v1/sandboxes?owner=a&owner=b");
  assert.match(twice.json.error, /owner: is given twice/);
});
