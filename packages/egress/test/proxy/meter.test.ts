import assert from "node:assert/strict";
import test from "node:test";
import { until } from "@forkd/test-support";
import { Meter } from "../../src/proxy/meter.ts";
import { MachineLog } from "../../src/proxy/machine-log.ts";
import { fixture, machineId } from "../support/fixture.ts";
import { listening, once } from "../support/sockets.ts";
import type { LogEntry } from "../../src/types.ts";

test("a rate holds over any time: bytes never exceed the burst and what the time allows", () => {
  let nowMs = 0;
  const rate = 1_000_000;
  const meter = new Meter({ bps: rate }, { in: 0, out: 0 }, () => nowMs);
  t: for (const chunk of [65_536, 1000, 16_384]) {
    const [startMs, start] = [nowMs, meter.used.in];
    let isWaiting = false;
    for (let step = 0; step < 10_000; step++) {
      // A sender that sends whenever it may.
      if (!isWaiting) isWaiting = meter.charge("in", chunk) !== undefined;
      else {
        nowMs += 1;
        isWaiting = meter.tryCharge("out", 0) && !meter.tryCharge("in", 1);
      }
      const bytes = meter.used.in - start;
      assert.ok(
        bytes <= rate * 0.25 + (rate * (nowMs - startMs)) / 1000 + chunk + 10_000,
        `${chunk}: ${bytes}`,
      );
      if (nowMs - startMs > 2000) continue t;
    }
  }
  meter.release();
});

test("a change of the limits ends waits, and the total holds across a restart", async () => {
  const meter = new Meter({ bps: 1 }, { in: 10, out: 20 });
  const pause = meter.charge("out", 1 << 20);
  assert.ok(pause);
  meter.setLimits({ bytes: 100 });
  await pause;
  assert.ok(meter.isUsedUp);
  assert.throws(() => meter.charge("in", 1), /used up/);
  assert.deepEqual(meter.used, { in: 11, out: 20 + (1 << 20) });
});

test("a machine that is above its rate is not read any further", async (t) => {
  const port = await listening(t, (socket) => socket.write(Buffer.alloc(16 << 20)));
  const { guest, proxy } = await fixture(t, {
    records: { "a.example": ["127.0.0.1"] },
    rules: [`allow a.example:${port}`, `allow 127.0.0.1:${port}`],
    limits: { bps: 1000 },
  });
  const socket = await guest.dial("a.example", port);
  socket.write("\x01");
  await once(socket, "data");
  // The burst and one chunk pass; the rest needs hours.
  await until("the burst has passed", async () => (await proxy.counters(machineId)).bytesIn >= 65_536);
  const { bytesIn } = await proxy.counters(machineId);
  assert.ok(bytesIn <= 3 * 65_536, String(bytesIn));
  await proxy.update(machineId, { limits: {} });
  let received = socket.bytesRead;
  socket.on("data", () => (received = socket.bytesRead));
  socket.resume();
  await until("everything has passed", () => received === 16 << 20);
  socket.destroy();
});

test("denials are summed up: one for each destination and second, 50 in all", () => {
  let nowMs = 0;
  const reported: LogEntry[] = [];
  const log = new MachineLog(
    (entry) => reported.push(entry),
    () => nowMs,
  );
  for (let round = 0; round < 100; round++)
    log.add({ event: "denied", protocol: "tcp", name: "a.example", port: 1 });
  assert.equal(reported.length, 1);
  for (let port = 2; port < 2000; port++)
    log.add({ event: "denied", protocol: "tcp", name: "a.example", port });
  assert.equal(reported.length, 50);
  nowMs = 1001;
  log.add({ event: "denied", protocol: "tcp", name: "a.example", port: 1 });
  assert.equal(reported.at(-1)?.suppressed, 1998 - 49);
  for (let round = 0; round < 30; round++) {
    nowMs += 1001;
    for (let each = 0; each < 100; each++)
      log.add({ event: "connected", protocol: "tcp", name: `n${round}-${each}` });
  }
  const entries = log.entries();
  assert.equal(entries.length, 1000);
  assert.deepEqual([entries[0]?.name, entries.at(-1)?.name], ["n20-0", "n29-99"]);
});
