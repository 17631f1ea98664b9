import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { createLogger, exposition } from "@forkd/base";
import { LoopWatch } from "../../src/host/loop-watch.ts";
import { post, startServer } from "../support.ts";

type Line = { event: string; level: string | number; durationMs: number; cpuMs: number; routes: object };

/** A watch whose clock and ticks the test moves. */
function watched(t: TestContext) {
  const clock = { ms: 1000, cpuMs: 0, now: () => clock.ms, cpu: () => clock.cpuMs };
  const lines: Line[] = [];
  const destination = { write: (text: string) => void lines.push(JSON.parse(text) as Line) };
  t.mock.timers.enable({ apis: ["setInterval"] });
  const watch = new LoopWatch(createLogger({ level: "debug", destination }), clock);
  t.after(() => watch[Symbol.dispose]());
  const turn = (ms: number, cpuMs = ms) => {
    clock.ms += ms;
    clock.cpuMs += cpuMs;
    watch.tick();
  };
  return { watch, lines, turn, clock };
}

test("a turn up to 200 ms is not a stall", (t) => {
  const { watch, lines, turn } = watched(t);
  turn(50);
  turn(250);
  assert.deepEqual(lines, []);
  assert.equal(watch.finding().outcome, "ok");
  assert.match(exposition([watch.seconds]), /stall_seconds_count 0\n/);
});

test("a long turn is logged with its routes, counted and shown by the doctor", (t) => {
  const { watch, lines, turn } = watched(t);
  const endOne = watch.begin("eval");
  watch.begin("eval");
  const endOther = watch.begin("version");
  endOther();
  turn(50);
  endOne();
  turn(2050);
  assert.deepEqual(
    lines.map(({ event, durationMs, cpuMs, routes }) => ({ event, durationMs, cpuMs, routes })),
    [{ event: "daemon.stall", durationMs: 2000, cpuMs: 2050, routes: { eval: 2 } }],
  );
  const finding = watch.finding();
  assert.equal(finding.outcome, "warn");
  assert.match(finding.detail, /^1 turn over 200 ms .* longest 2000 ms with eval in progress$/);
  assert.match(exposition([watch.seconds]), /stall_seconds_bucket\{le="2.5"\} 1\n/);
});

test("a turn without processor time is reported as the host's", (t) => {
  const { watch, lines, turn } = watched(t);
  turn(3050, 10);
  assert.equal(lines[0]?.event, "daemon.stall");
  assert.match(JSON.stringify(lines[0]), /the host did not run the daemon/);
  assert.deepEqual([watch.finding().outcome, /up to 3000 ms/.test(watch.finding().detail)], ["ok", true]);
});

test("a stall is forgotten after an hour", (t) => {
  const { watch, turn, clock } = watched(t);
  turn(1000);
  clock.ms += 3_600_000;
  assert.match(watch.finding().detail, /no turn over/);
});

test("the server tells the watch which routes are in progress", async () => {
  const seen: string[] = [];
  const watch = (route: string) => {
    seen.push(`${route} began`);
    return () => void seen.push(`${route} ended`);
  };
  await using server = await startServer({ gc: () => Promise.reject(new Error("no")) }, undefined, { watch });
  assert.equal((await post(server.socket, "/v1/gc", {})).status, 500);
  assert.deepEqual(seen, ["gc began", "gc ended"]);
});
