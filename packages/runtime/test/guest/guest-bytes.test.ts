import assert from "node:assert/strict";
import { test } from "node:test";
import { AppError, isSandbox } from "@forkd/contract";
import { GuestBytes, guestBytesLimits } from "../../src/guest/guest-bytes.ts";
import { exec } from "../../src/operations/exec.ts";
import { listFiles } from "../../src/operations/files.ts";
import { fork } from "../../src/operations/fork.ts";
import { collectFromGuest } from "../../src/sandbox/into-guest.ts";
import { context, forkableRuntime, forkRequest, rejectsWith } from "../support.ts";

const limits = { free: 0, sandbox: 10, caller: 15, total: 18 };

function whichFails(hold: () => void): unknown {
  try {
    hold();
    return undefined;
  } catch (error) {
    assert.ok(error instanceof AppError && error.code === "capacity_exhausted");
    return error.details["which"];
  }
}

test("GuestBytes limits each sandbox, each caller and all together", () => {
  const bytes = new GuestBytes(limits);
  using a = bytes.open("sb-a", "alice");
  using b = bytes.open("sb-b", "alice");
  using c = bytes.open("sb-c", "bob");
  a.hold(10);
  assert.equal(
    whichFails(() => a.hold(1)),
    "sandbox_guest_bytes",
  );
  assert.equal(
    whichFails(() => b.hold(6)),
    "key_guest_bytes",
  );
  b.hold(5);
  assert.equal(
    whichFails(() => c.hold(4)),
    "guest_bytes",
  );
  c.hold(3);
  assert.equal(bytes.total, 18);
});

test("GuestBytes counts calls into one sandbox together, and a refused call nothing", () => {
  const bytes = new GuestBytes(limits);
  using first = bytes.open("sb-a", "alice");
  using second = bytes.open("sb-a", undefined);
  first.hold(6);
  assert.equal(
    whichFails(() => second.hold(5)),
    "sandbox_guest_bytes",
  );
  assert.equal(bytes.total, 6);
});

test("GuestBytes gives a part where not everything fits", () => {
  const bytes = new GuestBytes(limits);
  const a = bytes.open("sb-a", "alice");
  using b = bytes.open("sb-b", "alice");
  using c = bytes.open("sb-c", "bob");
  assert.deepEqual([a.take(12), b.take(12), c.take(12), bytes.total], [10, 5, 3, 18]);
  a[Symbol.dispose]();
  assert.deepEqual([a.take(1), c.take(12), bytes.total], [0, 7, 15]);
});

test("the first bytes of each call are not counted", () => {
  const bytes = new GuestBytes({ ...limits, free: 4 });
  using a = bytes.open("sb-a", "alice");
  using b = bytes.open("sb-a", "alice");
  a.hold(3);
  assert.equal(bytes.total, 0);
  a.hold(11);
  assert.equal(
    whichFails(() => a.hold(1)),
    "sandbox_guest_bytes",
  );
  assert.deepEqual([b.take(6), bytes.total], [4, 10]);
});

test("a call that ended releases its bytes once and takes no more", () => {
  const bytes = new GuestBytes(limits);
  const held = bytes.open("sb-a", "alice");
  held.hold(10);
  held[Symbol.dispose]();
  held[Symbol.dispose]();
  assert.throws(() => held.hold(1), { code: "cancelled" });
  assert.equal(bytes.total, 0);
  using next = bytes.open("sb-a", "alice");
  next.hold(10);
});

function record(name: string): Buffer {
  const fixed = Buffer.alloc(36);
  fixed.write("f", 0, "latin1");
  fixed.writeUInt16LE(name.length, 34);
  // No target, owner, group or resolved path.
  return Buffer.concat([fixed, Buffer.from(name), Buffer.alloc(4 * 2)]);
}

test("a listing without room fails with capacity_exhausted; the next one works", async (t) => {
  const { runtime, engine } = await forkableRuntime(t);
  const [entry] = await fork(runtime, forkRequest({}), context);
  assert.ok(entry && isSandbox(entry));
  const guest = engine.machines.at(-1)?.guest;
  assert.ok(guest);
  // Several hundred records: a short listing is not counted.
  const names = Array.from({ length: 500 }, (_, at) => String(at).padStart(3, "0"));
  guest.script.stdout = Buffer.concat(["/", ...names.toReversed()].map(record));
  const request = { id: entry.id, path: "/", depth: 1 };
  const others: Disposable[] = [];
  while (runtime.guestBytes.total < guestBytesLimits.total) {
    const other = runtime.guestBytes.open(`sb-${others.length}`, `other-${others.length}`);
    other.take(guestBytesLimits.total + guestBytesLimits.free);
    others.push(other);
  }
  const error = await rejectsWith(
    listFiles(runtime, request, context),
    "capacity_exhausted",
    /guests for all sandboxes/,
  );
  assert.deepEqual([error.details["which"], error.remedy?.action], ["guest_bytes", "retry_later"]);
  others.pop()?.[Symbol.dispose]();
  assert.deepEqual(
    (await listFiles(runtime, request, context)).map(({ name }) => name),
    names,
  );
  for (const other of others) other[Symbol.dispose]();
  assert.equal(runtime.guestBytes.total, 0);
});

test("exec cuts output beyond what its caller may hold; other callers get theirs", async (t) => {
  const { runtime, engine } = await forkableRuntime(t);
  const [entry] = await fork(runtime, forkRequest({}), context);
  assert.ok(entry && isSandbox(entry));
  const guest = engine.machines.at(-1)?.guest;
  assert.ok(guest);
  const free = "f".repeat(guestBytesLimits.free / 2);
  guest.script.stdout = Buffer.from(`${free}0123456789`);
  const request = {
    id: entry.id,
    args: ["yes"],
    env: {},
    stdin_open: false,
    background: false,
    stream: false,
  };
  const kept: Disposable[] = [];
  const untilAnswered = (held: Disposable) => void kept.push(held);
  const as = (name: string) => exec(runtime, request, { ...context, caller: { name }, untilAnswered });
  using first = runtime.guestBytes.open("sb-first", "alice");
  using second = runtime.guestBytes.open("sb-second", "alice");
  first.take(guestBytesLimits.sandbox + guestBytesLimits.free);
  // Output is counted twice: as bytes and as text.
  second.take(guestBytesLimits.caller - guestBytesLimits.sandbox - 8 + guestBytesLimits.free);
  const { stdout, truncated } = await as("alice");
  assert.deepEqual([stdout, truncated], [`${free}0123`, true]);
  const other = await as("bob");
  assert.deepEqual([other.stdout, other.truncated], [`${free}0123456789`, false]);
  assert.equal(kept.length, 2, "both are counted until they are answered");
});

test("collectFromGuest() keeps the bytes until the answer is encoded", async (t) => {
  const { runtime } = await forkableRuntime(t);
  const [entry] = await fork(runtime, forkRequest({}), context);
  assert.ok(entry && isSandbox(entry));
  const kept: Disposable[] = [];
  const call = { ...context, id: entry.id, untilAnswered: (held: Disposable) => void kept.push(held) };
  const { free } = guestBytesLimits;
  await collectFromGuest(runtime, call, async (_sandbox, { hold }) => hold(free + 5));
  assert.equal(runtime.guestBytes.total, 5);
  for (const held of kept) held[Symbol.dispose]();
  const failing = collectFromGuest(runtime, call, async (_sandbox, { hold }) => {
    hold(free + 5);
    throw new AppError("guest_refused", "no");
  });
  await rejectsWith(failing, "guest_refused", /no/);
  assert.equal(runtime.guestBytes.total, 0);
});
