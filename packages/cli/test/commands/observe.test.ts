import assert from "node:assert/strict";
import { test } from "node:test";
import { eventTypes, type SandboxStats, type Stats } from "@forkd/contract";
import { rowsOf, totalsOf } from "../../src/views/top-table.ts";
import { idA, idB, openFakeDaemon, sandbox, snapshot } from "../fake-daemon.ts";
import { jsonLines, runCli } from "../run-cli.ts";

const event = (number: number, type: string, more: object = {}) => ({
  id: `0123456789ab-${number}`,
  type,
  at_unix: 1_700_000_000 + number,
  ...more,
});
const ofSandbox = (number: number, type: string, info: Record<string, unknown>, more: object = {}) =>
  event(number, type, { tag: info["snapshot_tag"], sandbox_id: info["id"], sandbox: info, ...more });
const frames = (...events: object[]) => events.map((each) => `data: ${JSON.stringify(each)}\n\n`).join("");
/** As wide as the longest type. */
const column = (type: string) => type.padEnd(Math.max(...eventTypes.map(({ length }) => length)));
const two = { "GET /v1/sandboxes": { json: [sandbox(idA), sandbox(idB, 1)] } };

/** Interrupts the verb when its output has this many lines. */
function runUntil(args: readonly string[], socket: string, lines: number) {
  return runCli(args, {
    socket,
    onStdout: (text, child) => {
      if (text.split("\n").length > lines) child.kill("SIGINT");
    },
  });
}

test("events prints a line per event, with --json the raw events", async () => {
  const died = ofSandbox(1, "sandbox.died", sandbox(idA), { reason: "VMM\u001b[2J killed" });
  const ready = event(2, "snapshot.ready", { tag: "b", status: "ready" });
  const killed = ofSandbox(3, "sandbox.killed", sandbox(idB), { reason: "killed" });
  await using daemon = await openFakeDaemon({
    ...two,
    "GET /v1/events": { bytes: frames(died, ready, killed), hold: true },
  });
  const text = await runUntil(["events"], daemon.socket, 3);
  assert.deepEqual([text.code, text.stderr], [130, ""]);
  assert.equal(
    text.stdout,
    `2023-11-14T22:13:21.000Z  ${column("sandbox.died")}  ${idA}  py  (VMM [2J killed)\n` +
      `2023-11-14T22:13:22.000Z  ${column("snapshot.ready")}  -${" ".repeat(26)}  b\n` +
      `2023-11-14T22:13:23.000Z  ${column("sandbox.killed")}  ${idB}  py\n`,
  );
  const args = [
    "events",
    "--json",
    "--type",
    "sandbox.*",
    "--type",
    "snapshot.ready",
    "--sandbox",
    "ab",
    "--label",
    "a=1",
  ];
  const json = await runUntil(args, daemon.socket, 3);
  assert.deepEqual(jsonLines(json.stdout), [died, ready, killed]);
  assert.equal(
    daemon.asked.at(-1)?.path,
    `/v1/events?type=sandbox.*%2Csnapshot.ready&sandbox=${idB}&label=a%3D1`,
  );
});

test("ls --watch without a terminal prints the list and then each change", async () => {
  const paused = { ...sandbox(idA), state: "paused" };
  const dead = { ...sandbox(idB), state: "dead", reason: "killed" };
  const bytes = frames(
    event(0, "reset"),
    ofSandbox(1, "sandbox.paused", paused),
    ofSandbox(2, "sandbox.created", { ...sandbox("sb-ac0000000000000000000003"), snapshot_tag: "other" }),
    ofSandbox(3, "sandbox.killed", dead, { reason: "killed" }),
  );
  await using daemon = await openFakeDaemon({ ...two, "GET /v1/events": { bytes, hold: true } });
  const { code, stdout } = await runUntil(["ls", "--watch", "--tag", "py"], daemon.socket, 4);
  assert.equal(code, 130);
  assert.deepEqual(stdout.trim().split("\n"), [
    `listed  ${idA}  py  running`,
    `listed  ${idB}  py  running`,
    `paused  ${idA}  py  paused`,
    `killed  ${idB}  py  dead  killed`,
  ]);
  const json = await runUntil(["ls", "-w", "--json", "--tag", "py"], daemon.socket, 4);
  const changes = json.stdout
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { change: string; sandbox: { id: string } });
  assert.deepEqual(
    changes.map((each) => [each.change, each.sandbox.id]),
    [
      ["listed", idA],
      ["listed", idB],
      ["sandbox.paused", idA],
      ["sandbox.killed", idB],
    ],
  );
});

test("ls and images send filters, and print at most --limit entries", async () => {
  await using daemon = await openFakeDaemon({ ...two, "GET /v1/snapshots": { json: [snapshot("a")] } });
  const { stdout } = await runCli(
    ["ls", "-q", "--limit", "1", "--label", "a=1", "--label", "b", "--state", "running", "--owner", "me"],
    daemon,
  );
  assert.equal(stdout, `${idA}\n`);
  assert.equal(daemon.asked[0]?.path, "/v1/sandboxes?label=a%3D1&label=b&state=running&owner=me");
  await runCli(
    ["images", "--state", "ready", "--parent", "py", "--from-sandbox", idA, "--limit", "5"],
    daemon,
  );
  assert.equal(daemon.asked[1]?.path, `/v1/snapshots?limit=5&state=ready&parent=py&branched_from=${idA}`);
});

const stats = (at: number, ...sandboxes: Partial<SandboxStats>[]): Stats => ({
  sampled_at_unix: at,
  sandboxes: sandboxes.map((each) => ({
    id: idA,
    snapshot_tag: "py",
    state: "running",
    pid: 7,
    uptime_secs: 60,
    disk_bytes: 4096,
    sampled_at_unix: at,
    ...each,
  })),
});

test("top computes CPU from two measurements of the same machine, and sorts", () => {
  const before = stats(100, { cpu_seconds: 10 }, { id: idB, cpu_seconds: 5 });
  const now = stats(102, { cpu_seconds: 11, pss_bytes: 1 }, { id: idB, cpu_seconds: 8, pss_bytes: 9 });
  assert.deepEqual(
    rowsOf(now, before, "cpu").map(({ id, cpu_percent }) => [id, cpu_percent]),
    [
      [idB, 150],
      [idA, 50],
    ],
  );
  assert.deepEqual(
    rowsOf(now, before, "id").map(({ id }) => id),
    [idA, idB],
  );
  assert.equal(rowsOf(now, undefined, "memory")[0]?.id, idB);
  assert.equal(rowsOf(now, undefined, "memory")[0]?.cpu_percent, null);
  const [resumed] = rowsOf(stats(102, { pid: 8, cpu_seconds: 1 }), before, "cpu");
  assert.equal(resumed?.cpu_percent, null);
  assert.equal(rowsOf(now, now, "cpu")[0]?.cpu_percent, null, "one measurement gives no rate");
  assert.match(totalsOf(rowsOf(now, before, "cpu")), /^2 sandboxes, 2 running {3}CPU 200\.0 % /);
  const shelf = { tag: "py", ready: 2, making: 0, wanted: 2, is_set: true, child_mib: 30 };
  const pool = { budget_mib: 100, used_mib: 60, snapshots: [shelf] };
  assert.match(totalsOf(rowsOf(now, before, "cpu"), pool), / {3}ready 2, about 60 MiB$/);
  assert.doesNotMatch(totalsOf([], { ...pool, snapshots: [] }), /ready/);
});

test("top --once prints one table, and with --json one document", async () => {
  let at = 100;
  const answer = () => ({
    json: stats((at += 2), { cpu_seconds: at / 4, private_bytes: 1048576, pss_bytes: 2097152 }),
  });
  await using daemon = await openFakeDaemon({ "GET /v1/stats": answer });
  const table = await runCli(["top", "--once", "--tag", "py"], daemon);
  assert.equal(table.code, 0, table.stderr);
  assert.match(table.stdout, /^ID +TAG +STATE +CPU % +PRIVATE +SHARED +PSS +DISK +UPTIME +WORKSPACE\n/);
  assert.match(
    table.stdout,
    new RegExp(`${idA}  py   running   25\\.0  1\\.0 MiB +-  2\\.0 MiB  4\\.0 KiB +60s  -\n$`),
  );
  assert.equal(daemon.asked[0]?.path, "/v1/stats?tag=py");
  const json = await runCli(["top", "--once", "--json"], daemon);
  const { sandboxes } = JSON.parse(json.stdout) as { sandboxes: { cpu_percent: number }[] };
  assert.equal(sandboxes[0]?.cpu_percent, 25);
});

test("events, ls, top and images refuse invalid options", async () => {
  const cases = [
    [["events", "--type", "sandbox.eaten"], /It must be one of: sandbox\.created/],
    [["ls", "--watch", "--limit", "3"], /--limit cannot be used with --watch/],
    [["ls", "--state", "asleep"], /Allowed choices are running, paused, dead/],
    [["ls", "--label", "=x"], /name=value, or a name/],
    [["top", "--sort", "colour"], /Allowed choices are cpu, memory/],
    [["images", "--limit", "0"], /whole number, 1 or more/],
  ] as const;
  await using daemon = await openFakeDaemon(two);
  for (const [args, message] of cases) {
    const { code, stderr } = await runCli(args, daemon);
    assert.equal(code, 2, args.join(" "));
    assert.match(stderr, message);
  }
});

test("completion completes types of events and sandboxes", async () => {
  await using daemon = await openFakeDaemon(two);
  const { stdout } = await runCli(["__complete", "--", "events", "--type", "sandbox.p"], daemon);
  assert.equal(stdout, "sandbox.paused\n");
  assert.equal(
    (await runCli(["__complete", "--", "events", "--sandbox", "sb-aa"], daemon)).stdout,
    `${idA}\n`,
  );
});
