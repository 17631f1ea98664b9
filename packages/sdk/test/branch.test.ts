import assert from "node:assert/strict";
import { test } from "node:test";
import { CommandError, ForkError } from "../src/errors.ts";
import { Forkd } from "../src/forkd.ts";
import { outputBytes } from "../src/output.ts";
import { Sandbox } from "../src/sandbox.ts";
import { readBody, startServer, type TestServer } from "./support.ts";

const id = "sb-aa0000000000000000000001";
const info = { id, snapshot_tag: "py", state: "running" };
const branched = { tag: "fan", status: "ready", branched_from: id, children: [] as unknown[] };
const started = { type: "started", exec_id: 1, pid: 9 };
const workspace = { id, name: "dev", status: "running" };

type Answer = { status?: number; json?: unknown; lines?: unknown[]; frames?: unknown[]; hold?: true };
type Answers = Record<string, Answer | (() => Answer)>;
type Daemon = TestServer & { readonly asked: string[]; readonly forkd: Forkd };

/** Canned answers by method and path; `asked` has method, path and body of every request. */
async function openDaemon(answers: Answers): Promise<Daemon> {
  const asked: string[] = [];
  const server = await startServer((incoming, outgoing) => {
    void readBody(incoming).then((body) => {
      asked.push(`${incoming.method} ${incoming.url} ${body}`.trim());
      const found = answers[`${incoming.method} ${incoming.url?.split("?")[0]}`] ?? { status: 404 };
      const answer = typeof found === "function" ? found() : found;
      outgoing.writeHead(answer.status ?? 200);
      if (answer.json !== undefined) outgoing.write(JSON.stringify(answer.json));
      for (const line of answer.lines ?? []) outgoing.write(`${JSON.stringify(line)}\n`);
      for (const frame of answer.frames ?? []) outgoing.write(`data: ${JSON.stringify(frame)}\n\n`);
      if (answer.hold) outgoing.flushHeaders();
      else outgoing.end();
    });
  });
  return { ...server, asked, forkd: new Forkd({ transport: server.transports.unix }) };
}

test("branch() sends its options and returns the children as objects", async () => {
  const failure = { index: 1, error: "no room", code: "capacity_exhausted", details: {} };
  await using daemon = await openDaemon({
    [`GET /v1/sandboxes/${id}`]: { json: info },
    [`POST /v1/sandboxes/${id}/branch`]: { status: 201, json: { ...branched, children: [info, failure] } },
  });
  const sandbox = await daemon.forkd.sandboxes.get(id);
  const branch = await sandbox.branch({
    tag: "fan",
    mode: "diff",
    n: 2,
    vary: [{ values: 1 }],
    env: { A: "b" },
    labels: { k: "v" },
    ttlMs: 59_001,
  });
  assert.equal(branch.tag, "fan");
  assert.ok(branch.children[0] instanceof Sandbox);
  assert.ok(branch.children[1] instanceof ForkError);
  assert.equal(branch.children[1].name, "ForkError");
  assert.deepEqual(JSON.parse(daemon.asked[1]?.split(" ").slice(2).join(" ") ?? ""), {
    tag: "fan",
    mode: "diff",
    n: 2,
    vary: [{ values: 1 }],
    env: { A: "b" },
    labels: { k: "v" },
    ttl_secs: 60,
  });
  await sandbox.branch({ wait: false });
  assert.equal(daemon.asked[2], `POST /v1/sandboxes/${id}/branch {"wait":false}`);
});

test("pause(), resume() and rewind() keep the answer as info", async () => {
  await using daemon = await openDaemon({
    [`GET /v1/sandboxes/${id}`]: { json: info },
    [`POST /v1/sandboxes/${id}/pause`]: { json: { ...info, state: "paused" } },
    [`POST /v1/sandboxes/${id}/resume`]: { json: info },
    [`POST /v1/sandboxes/${id}/rewind`]: { json: { ...info, snapshot_tag: "fan" } },
  });
  const sandbox = await daemon.forkd.sandboxes.get(id);
  await sandbox.pause();
  assert.equal(sandbox.info.state, "paused");
  await sandbox.resume();
  assert.equal(sandbox.info.state, "running");
  assert.equal((await sandbox.rewind("fan")).snapshotTag, "fan");
  assert.equal(sandbox.info.snapshotTag, "fan");
  assert.equal(daemon.asked.at(-1), `POST /v1/sandboxes/${id}/rewind {"to":"fan"}`);
});

test("snapshots.ready() follows events and reads the list again after each", async () => {
  const states = ["writing", "writing", "ready"];
  const event = { id: "0123456789ab-1", type: "snapshot.ready", at_unix: 1, tag: "fan" };
  await using daemon = await openDaemon({
    "GET /v1/snapshots": () => ({ json: [{ tag: "other" }, { tag: "fan", status: states.shift() }] }),
    "GET /v1/events": { frames: [event], hold: true },
  });
  assert.equal((await daemon.forkd.snapshots.ready("fan")).status, "ready");
  assert.deepEqual(daemon.asked, [
    "GET /v1/snapshots?limit=1000&tag=fan",
    "GET /v1/events?type=snapshot.*&tag=fan",
    "GET /v1/snapshots?limit=1000&tag=fan",
    "GET /v1/snapshots?limit=1000&tag=fan",
  ]);
});

test("snapshots.ready() rejects for a failed snapshot, a missing one, and on abort", async () => {
  const states: Record<string, string> = { fan: "failed" };
  await using daemon = await openDaemon({
    "GET /v1/snapshots": () => ({
      json: Object.entries(states).map(([tag, status]) => ({ tag, status, warning: "no space" })),
    }),
    "GET /v1/events": { hold: true },
  });
  const { snapshots } = daemon.forkd;
  await assert.rejects(snapshots.ready("fan"), { code: "snapshot_failed", message: /no space/ });
  await assert.rejects(snapshots.ready("absent"), { code: "snapshot_not_found" });
  states["fan"] = "writing";
  const waiting = new AbortController();
  const pending = snapshots.ready("fan", { signal: waiting.signal });
  setTimeout(() => waiting.abort(), 30);
  await assert.rejects(pending, { code: "cancelled" });
});

function deriveAnswers(exec: Answer, branch: Answer = { status: 201, json: branched }): Answers {
  return {
    "POST /v1/sandboxes": { status: 201, json: [info] },
    [`POST /v1/sandboxes/${id}/exec`]: exec,
    [`POST /v1/sandboxes/${id}/branch`]: branch,
    [`DELETE /v1/sandboxes/${id}`]: { status: 204 },
    "GET /v1/snapshots": { json: [{ ...branched, branched_from: "another" }] },
  };
}
const output = (type: string, data: string) => ({ type, offset: 0, data, encoding: "utf8" });
const exit = (exit_code: number) => ({ type: "exit", exit_code, timed_out: false, duration_ms: 1 });
const request = { from: "py", tag: "fan", command: ["make"] };
const calls = (daemon: Daemon) => daemon.asked.map((line) => line.split(" ").slice(0, 2).join(" "));

test("snapshots.derive() forks, runs, branches and kills", async () => {
  const lines = [started, output("stdout", "a"), output("stderr", "b"), exit(0)];
  await using daemon = await openDaemon(deriveAnswers({ lines }));
  let text = "";
  const branch = await daemon.forkd.snapshots.derive({
    ...request,
    env: { A: "1" },
    mode: "full",
    onOutput: (event) => {
      text += `${event.type} ${new TextDecoder().decode(outputBytes(event))};`;
    },
  });
  assert.equal(branch.tag, "fan");
  assert.equal(text, "stdout a;stderr b;");
  assert.deepEqual(daemon.asked, [
    'POST /v1/sandboxes {"snapshot_tag":"py","n":1}',
    `POST /v1/sandboxes/${id}/exec {"args":["make"],"stream":true,"env":{"A":"1"}}`,
    `POST /v1/sandboxes/${id}/branch {"tag":"fan","mode":"full"}`,
    `DELETE /v1/sandboxes/${id}`,
  ]);
});

test("snapshots.derive() rejects with code and output of a failed command, and makes no snapshot", async () => {
  const lines = [started, output("stdout", "first\nlast\n"), exit(3)];
  await using daemon = await openDaemon(deriveAnswers({ lines }));
  await assert.rejects(daemon.forkd.snapshots.derive(request), (error) => {
    assert.ok(error instanceof CommandError);
    assert.equal(error.name, "CommandError");
    assert.equal(error.result.exitCode, 3);
    assert.match(error.message, /exit code 3\nfirst\nlast$/);
    return true;
  });
  assert.deepEqual(calls(daemon).slice(1), [`POST /v1/sandboxes/${id}/exec`, `DELETE /v1/sandboxes/${id}`]);
});

test("snapshots.derive() kills when the branch is refused, and keeps the snapshot of that tag", async () => {
  const refused = { status: 409, json: { error: "taken", code: "snapshot_exists", details: {} } };
  await using daemon = await openDaemon(deriveAnswers({ lines: [started, exit(0)] }, refused));
  await assert.rejects(daemon.forkd.snapshots.derive(request), { code: "snapshot_exists" });
  assert.deepEqual(calls(daemon).at(-1), `DELETE /v1/sandboxes/${id}`);
});

test("snapshots.derive() kills on abort, and keeps a snapshot of that tag from another sandbox", async () => {
  await using daemon = await openDaemon(
    deriveAnswers({ lines: [started, output("stdout", "go")], hold: true }),
  );
  const controller = new AbortController();
  const onOutput = () => controller.abort();
  await assert.rejects(daemon.forkd.snapshots.derive({ ...request, onOutput, signal: controller.signal }), {
    code: "cancelled",
  });
  assert.deepEqual(calls(daemon).slice(2), [`DELETE /v1/sandboxes/${id}`, "GET /v1/snapshots"]);
});

test("workspaces, tree(), gc(), compact() and remove() send their requests", async () => {
  await using daemon = await openDaemon({
    "GET /v1/workspaces": { json: [workspace] },
    "POST /v1/workspaces": { status: 201, json: workspace },
    "GET /v1/workspaces/dev": { json: workspace },
    "DELETE /v1/workspaces/dev": { status: 204 },
    "POST /v1/workspaces/dev/suspend": { json: { ...workspace, status: "suspended" } },
    "POST /v1/workspaces/dev/resume": { json: workspace },
    [`GET /v1/sandboxes/${id}`]: { json: info },
    "POST /v1/snapshots/fan/compact": { json: { tag: "flat" } },
    "DELETE /v1/snapshots/fan": { status: 204 },
    "GET /v1/tree": { json: { snapshots: [], sandboxes: [] } },
    "POST /v1/gc": { json: { removed: [], freed_bytes: 0, dry_run: true } },
  });
  const { workspaces, snapshots } = daemon.forkd;
  assert.deepEqual(await workspaces.list().all(), [workspace]);
  assert.deepEqual(await workspaces.create("dev", "py", { env: { A: "1" } }), workspace);
  assert.equal((await workspaces.suspend("dev")).status, "suspended");
  assert.equal((await workspaces.resume("dev")).status, "running");
  assert.equal((await workspaces.sandbox("dev")).id, id);
  await workspaces.remove("dev");
  assert.equal((await snapshots.compact("fan", "flat")).tag, "flat");
  await snapshots.remove("fan", { cascade: true });
  assert.deepEqual(await daemon.forkd.tree(), { snapshots: [], sandboxes: [] });
  assert.equal((await daemon.forkd.gc({ dryRun: true })).dryRun, true);
  assert.deepEqual(daemon.asked, [
    "GET /v1/workspaces?limit=1000",
    'POST /v1/workspaces {"name":"dev","snapshot_tag":"py","env":{"A":"1"}}',
    "POST /v1/workspaces/dev/suspend {}",
    "POST /v1/workspaces/dev/resume {}",
    "GET /v1/workspaces/dev",
    `GET /v1/sandboxes/${id}`,
    "DELETE /v1/workspaces/dev",
    'POST /v1/snapshots/fan/compact {"to":"flat"}',
    "DELETE /v1/snapshots/fan?cascade=true",
    "GET /v1/tree",
    'POST /v1/gc {"dry_run":true}',
  ]);
});
