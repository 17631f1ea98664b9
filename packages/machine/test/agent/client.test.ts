import assert from "node:assert/strict";
import { test } from "node:test";
import { AppError } from "@forkd/contract";
import { encodeField, frameType } from "../../src/agent/wire/frames.ts";
import type { AgentProcess } from "../../src/agent/process/process.ts";
import { FakeGuest, u32, u64 } from "./support/fake-guest.ts";
import { RealAgent } from "./support/real-agent.ts";

async function collect(process: AgentProcess): Promise<{ 1: string; 2: string; 3: string }> {
  const pieces: Record<1 | 2 | 3, Buffer[]> = { 1: [], 2: [], 3: [] };
  for await (const { stream, bytes } of process.output) pieces[stream].push(Buffer.from(bytes));
  const text = (stream: 1 | 2 | 3): string => Buffer.concat(pieces[stream]).toString();
  return { 1: text(1), 2: text(2), 3: text(3) };
}

/** Output has no event for an offset, so this waits for some round trips; the caller asserts the result. */
async function pingUntil(agent: RealAgent, reached: () => boolean): Promise<void> {
  for (let left = 20_000; left > 0 && !reached(); left--) await agent.client.ping();
}

/** The leader may exit before its output is read, so this waits for both. */
async function waitUntilFinished(agent: RealAgent, stdoutBytes: number): Promise<void> {
  for (let left = 20_000; left > 0; left--) {
    const [listing] = await agent.client.list();
    if (listing?.finished && listing.offsets[0] === stdoutBytes) return;
  }
  assert.fail(`the process did not finish with ${stdoutBytes} bytes`);
}

test("ready resolves with the facts of the agent", async () => {
  await using agent = await RealAgent.open();
  const hello = await agent.client.ready;
  assert.ok(hello.version.length > 0);
  assert.ok(hello.uptimeMs > 0);
  assert.equal(hello.unfinished, 0);
  await agent.client.ping();
  await agent.client.sync();
});

test("requests made before ready are answered", async () => {
  await using agent = await RealAgent.open();
  assert.equal(agent.client.hello, undefined);
  const process = agent.client.start({ argv: ["cat"], stdin: true });
  const written = process.write(Buffer.from("early"));
  const ended = process.end();
  const [output, exit] = await Promise.all([collect(process), process.exit, written, ended]);
  assert.equal(output[1], "early");
  assert.equal(exit.code, 0);
});

test("a command reports its output, exit code and times", async () => {
  await using agent = await RealAgent.open();
  const process = agent.client.start({ argv: ["sh", "-c", "echo out; echo err >&2; exit 3"] });
  const output = await collect(process);
  const exit = await process.exit;
  assert.deepEqual(output, { 1: "out\n", 2: "err\n", 3: "" });
  assert.equal(exit.code, 3);
  assert.equal(exit.signal, undefined);
  assert.equal(exit.timedOut, false);
  assert.ok(exit.peakRssKib > 0);
  assert.ok((process.pid ?? 0) > 0);
});

test("environment, directory, timeout and signal reach the command", async () => {
  await using agent = await RealAgent.open();
  const { client } = agent;
  const shown = client.start({ argv: ["sh", "-c", 'echo "$WORD"; pwd'], env: { WORD: "ä=b" }, cwd: "/usr" });
  assert.equal((await collect(shown))[1], "ä=b\n/usr\n");
  const late = await client.start({ argv: ["sleep", "60"], timeoutMs: 100 }).exit;
  assert.deepEqual([late.signal, late.timedOut], [9, true]);
  const killed = client.start({ argv: ["sleep", "60"] });
  killed.signal(15);
  assert.deepEqual([(await killed.exit).signal, (await killed.exit).timedOut], [15, false]);
});

test("start() rejects with the errno if the command cannot start", async () => {
  await using agent = await RealAgent.open();
  const process = agent.client.start({ argv: ["/no/such/program"] });
  const refused = (error: unknown): boolean =>
    error instanceof AppError && error.code === "guest_refused" && error.details["errno"] === "ENOENT";
  await assert.rejects(process.started, refused);
  await assert.rejects(process.exit, refused);
  await assert.rejects(collect(process), refused);
  await agent.client.ping();
});

test("start() refuses a spec larger than a frame with invalid_request", async () => {
  await using agent = await RealAgent.open();
  const start = (): AgentProcess => agent.client.start({ argv: ["echo", "x".repeat(70_000)] });
  assert.throws(start, { code: "invalid_request" });
});

test("32 MiB pass through both windows unchanged", async () => {
  await using agent = await RealAgent.open();
  const size = 32 * 1024 * 1024;
  const process = agent.client.start({ argv: ["cat"], stdin: true });
  const send = async (): Promise<void> => {
    for (let at = 0; at < size; at += 1 << 20) await process.write(Buffer.alloc(1 << 20, at >> 20));
    await process.end();
  };
  const sent = send();
  let seen = 0;
  for await (const { offset, bytes } of process.output) {
    assert.equal(offset, seen);
    assert.equal(bytes[0], seen >> 20);
    assert.equal(bytes.at(-1), (seen + bytes.length - 1) >> 20);
    seen += bytes.length;
  }
  await sent;
  assert.equal(seen, size);
  assert.equal((await process.exit).code, 0);
});

test("a consumer that does not read blocks the process, not the connection", async () => {
  await using agent = await RealAgent.open();
  const process = agent.client.start(
    { argv: ["sh", "-c", "head -c 4000000 /dev/zero"] },
    { windowBytes: 65_536 },
  );
  await pingUntil(agent, () => process.offsets[0] >= 65_536);
  for (let round = 0; round < 50; round++) await agent.client.ping();
  assert.equal(process.offsets[0], 65_536);
  assert.equal((await agent.client.list())[0]?.finished, false);
  assert.equal((await collect(process))[1].length, 4_000_000);
  assert.equal((await process.exit).code, 0);
});

test("a promise from onOutput delays the credit", async () => {
  await using agent = await RealAgent.open();
  let release = (): void => undefined;
  const gate = new Promise<void>((resolve) => (release = resolve));
  let seen = 0;
  const process = agent.client.start(
    { argv: ["head", "-c", "1000000", "/dev/zero"] },
    {
      windowBytes: 65_536,
      onOutput: ({ bytes }) => {
        seen += bytes.length;
        return gate;
      },
    },
  );
  await pingUntil(agent, () => seen >= 65_536);
  for (let round = 0; round < 50; round++) await agent.client.ping();
  assert.equal(seen, 65_536);
  release();
  await process.exit;
  assert.equal(seen, 1_000_000);
});

test("an error thrown by onOutput only fails its own process", async () => {
  await using agent = await RealAgent.open();
  const onOutput = (): void => {
    throw new RangeError("consumer");
  };
  const process = agent.client.start({ argv: ["sh", "-c", "echo; sleep 60"] }, { onOutput });
  await assert.rejects(process.exit, RangeError);
  await process[Symbol.asyncDispose]();
  await agent.client.ping();
});

test("a detached process keeps running, is listed and can be attached to", async () => {
  await using agent = await RealAgent.open();
  const { client } = agent;
  const first = client.start({ argv: ["sh", "-c", "echo one; read x; echo $x"], stdin: true, label: "job" });
  const one = await first.output.next();
  assert.equal(one.value?.bytes.toString(), "one\n");
  await first.detach();
  await assert.rejects(first.exit, { code: "wrong_state" });
  const [listing] = await client.list();
  assert.deepEqual(
    [listing?.id, listing?.label, listing?.finished, listing?.kind, listing?.offsets],
    [first.id, "job", false, "command", [4, 0, 0]],
  );
  const second = client.attach(first.id, [0, 0, 0]);
  await second.write(Buffer.from("two\n"));
  assert.equal((await collect(second))[1], "one\ntwo\n");
  second.forget();
  assert.deepEqual(await client.list(), []);
});

test("all attachments of a connection share one input window", async () => {
  await using agent = await RealAgent.open();
  const argv = ["sh", "-c", "sleep 0.5; wc -c"];
  const first = agent.client.start({ argv, stdin: true });
  // The pipe holds 64 KiB and the window another 64 KiB.
  await first.write(Buffer.alloc(131_072));
  await first.detach();
  const second = agent.client.attach(first.id, first.offsets);
  const more = second.write(Buffer.alloc(100_000));
  const ended = second.end();
  assert.equal((await collect(second))[1].trim(), "231072");
  await Promise.all([more, ended]);
});

test("only attach() reaches a process that was started detached", async () => {
  await using agent = await RealAgent.open();
  const started = agent.client.start({ argv: ["echo", "hi"], detached: true });
  await started.started;
  await assert.rejects(started.exit, { code: "wrong_state" });
  await waitUntilFinished(agent, 3);
  const attached = agent.client.attach(started.id, [1, 0, 0]);
  assert.equal((await collect(attached))[1], "i\n");
});

test("attach() skips dropped output and reports the offset", async () => {
  await using agent = await RealAgent.open();
  const argv = ["sh", "-c", "head -c 300000 /dev/zero"];
  const started = agent.client.start({ argv, detached: true, keepBytes: 1000 });
  await started.started;
  await waitUntilFinished(agent, 300_000);
  const attached = agent.client.attach(started.id, [0, 0, 0]);
  const { value } = await attached.output.next();
  assert.equal(value?.offset, 299_000);
  assert.equal((await attached.exit).code, 0);
});

test("attach() beyond the end continues from the end", async () => {
  await using agent = await RealAgent.open();
  const first = agent.client.start({ argv: ["cat"], stdin: true });
  await first.detach();
  const second = agent.client.attach(first.id, [1000, 0, 0]);
  await second.write(Buffer.from("abc"));
  const { value } = await second.output.next();
  assert.deepEqual([value?.offset, value?.bytes.toString()], [0, "abc"]);
});

test("attach() fails with ESRCH for an unknown process and wrong_state for an attached one", async () => {
  await using agent = await RealAgent.open();
  const absent = agent.client.attach(12345, [0, 0, 0]);
  assert.throws(() => agent.client.attach(12345, [0, 0, 0]), { code: "wrong_state" });
  await assert.rejects(absent.started, (error: AppError) => error.details["errno"] === "ESRCH");
});

test("disposing a process kills and forgets it", async () => {
  await using agent = await RealAgent.open();
  const process = agent.client.start({ argv: ["sh", "-c", "cat /dev/zero & cat /dev/zero"] });
  await process.started;
  await process[Symbol.asyncDispose]();
  assert.deepEqual(await agent.client.list(), []);
  await process[Symbol.asyncDispose]();
});

test("write() to an ended process rejects", async () => {
  await using agent = await RealAgent.open();
  const process = agent.client.start({ argv: ["true"], stdin: true });
  await process.exit;
  await assert.rejects(process.write(Buffer.from("x")), { code: "wrong_state" });
});

test("a process with a terminal has a size and echoes its input", async () => {
  await using agent = await RealAgent.open();
  const process = agent.client.start({
    argv: ["sh", "-c", "stty size; read x; stty size"],
    stdin: true,
    pty: { rows: 5, cols: 9 },
  });
  const { value } = await process.output.next();
  assert.match(value?.bytes.toString() ?? "", /^5 9\r\n/);
  process.resize(6, 10);
  await process.write(Buffer.from("\n"));
  assert.match((await collect(process))[1], /6 10\r\n$/);
});

test("ids differ between connections and are not reused", async () => {
  await using one = await RealAgent.open();
  await using other = await RealAgent.open();
  const ids = [one, one, other, other].map(({ client }) => client.start({ argv: ["true"] }).id);
  assert.equal(new Set(ids).size, 4);
  assert.ok(ids.every((id) => id > 0 && id < 2 ** 32));
});

test("closing the client rejects everything pending with agent_unreachable", async () => {
  await using agent = await RealAgent.open();
  const process = agent.client.start({ argv: ["sleep", "60"] });
  await process.started;
  const pending = [process.exit, agent.client.ping(), agent.client.list(), process.output.next()];
  const checks = pending.map((promise) => assert.rejects(promise, { code: "agent_unreachable" }));
  await agent.client[Symbol.asyncDispose]();
  await Promise.all(checks);
  assert.equal(await agent.client.closed, undefined);
  await assert.rejects(agent.client.ping(), { code: "agent_unreachable" });
  await assert.rejects(agent.client.start({ argv: ["true"] }).started, { code: "agent_unreachable" });
});

test("setClock() sends the new time and resolves with the old one", async () => {
  await using guest = await FakeGuest.ready();
  const outcome = guest.client.setClock(() => 1_800_000_000_000_000_001n);
  const { id, payload } = await guest.take(frameType.clock);
  assert.equal(payload.readBigUInt64LE(5), 1_800_000_000_000_000_001n);
  guest.send(frameType.clockOk, id, encodeField(1, u64(1_799_999_999_000_000_000n)));
  assert.deepEqual(await outcome, { guestBeforeNs: 1_799_999_999_000_000_000n });
  const refused = guest.client.setClock(1n);
  const again = await guest.take(frameType.clock);
  guest.send(frameType.error, again.id, encodeField(1, u32(1)), encodeField(2, Buffer.from("CLOCK: no")));
  await assert.rejects(refused, { code: "guest_refused", message: "Cannot set the clock: CLOCK: no" });
});

test("the real agent reports its clock and refuses to set it outside a VM", async () => {
  await using agent = await RealAgent.open();
  const before = BigInt(Date.now()) * 1_000_000n;
  const { guestBeforeNs } = await agent.client.setClock(() => BigInt(Date.now()) * 1_000_000n);
  assert.ok(guestBeforeNs >= before && guestBeforeNs <= BigInt(Date.now() + 1) * 1_000_000n);
  await assert.rejects(agent.client.setClock(1n), { code: "guest_refused" });
});
