import assert from "node:assert/strict";
import test from "node:test";
import { rejectsWith, until } from "@forkd/test-support";
import { HostResolver } from "../../src/dns/resolver.ts";
import { dnsUpstream } from "../support/dns-upstream.ts";

test("an answer is pinned although the name's own time is short, and renewed later", async (t) => {
  const upstream = await dnsUpstream(t, { "a.example": ["192.0.2.1", "2001:db8::1"] });
  let nowMs = 0;
  const resolver = new HostResolver({ server: upstream.server, nowMs: () => nowMs });
  assert.deepEqual([...(await resolver.resolve("a.example", "m1"))].toSorted(), ["192.0.2.1", "2001:db8::1"]);
  upstream.records.set("a.example", ["127.0.0.1"]);
  nowMs = 29_000;
  assert.equal((await resolver.resolve("a.example", "m1")).includes("127.0.0.1"), false);
  nowMs = 31_000;
  assert.deepEqual(await resolver.resolve("a.example", "m1"), ["127.0.0.1"]);
  assert.equal(upstream.asked.length, 2);
});

test("callers at the same time share one question, and a failure is remembered for a moment", async (t) => {
  const upstream = await dnsUpstream(t);
  let nowMs = 0;
  const resolver = new HostResolver({ server: upstream.server, nowMs: () => nowMs });
  await Promise.all(
    Array.from({ length: 20 }, () =>
      rejectsWith(resolver.resolve("b.example", "m1"), "not_found", /no host "b.example"/),
    ),
  );
  assert.equal(upstream.asked.length, 1);
  upstream.records.set("b.example", ["192.0.2.2"]);
  nowMs = 6000;
  assert.deepEqual(await resolver.resolve("b.example", "m1"), ["192.0.2.2"]);
});

test("names of the hosts file resolve without a server", async () => {
  const addresses = await new HostResolver().resolve("localhost", "m1");
  assert.ok(addresses.every((address) => address === "127.0.0.1" || address === "::1"));
});

test("look-ups that do not end occupy few threads of one machine, and do not stop another one", async () => {
  const started: string[] = [];
  const ends = new Map<string, () => void>();
  const resolver = new HostResolver({
    deadlineMs: 200,
    askHost: (name) => {
      started.push(name);
      if (!name.startsWith("silent")) return Promise.resolve({ addresses: ["192.0.2.1"] });
      return new Promise((resolve) => ends.set(name, () => resolve({ addresses: ["192.0.2.2"] })));
    },
  });
  const silent = Array.from({ length: 64 }, (_, index) => `silent${index}.example`);
  const settled = await Promise.allSettled(silent.map((name) => resolver.resolve(name, "m1")));
  assert.deepEqual(started, silent.slice(0, 4));
  assert.ok(settled.every(({ status }) => status === "rejected"));
  // The deadline has passed, and the threads are still busy.
  await rejectsWith(resolver.resolve("b.example", "m1"), "capacity_exhausted");
  assert.deepEqual(await resolver.resolve("b.example", "m2"), ["192.0.2.1"]);
  ends.get("silent0.example")?.();
  await until("a slot is free", () =>
    resolver.resolve("c.example", "m1").then(
      () => true,
      () => false,
    ),
  );
});

test("look-ups of many machines leave threads to files", async () => {
  let started = 0;
  const resolver = new HostResolver({
    deadlineMs: 200,
    askHost: () => {
      started++;
      return new Promise(() => undefined);
    },
  });
  const asked = Array.from({ length: 64 }, (_, index) => resolver.resolve(`${index}.example`, `m${index}`));
  await Promise.allSettled(asked);
  assert.equal(started, 12);
});

test("a machine that resolves many names at a time gets them all", async () => {
  const resolver = new HostResolver({ askHost: async () => ({ addresses: ["192.0.2.1"] }) });
  const asked = Array.from({ length: 64 }, (_, index) => resolver.resolve(`${index % 32}.example`, "m1"));
  assert.equal((await Promise.all(asked)).length, 64);
});
