/** Events, metrics and stats of a real daemon with real machines, and repeated forks with the same key. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import http from "node:http";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { Sandbox, type ForkdEvent } from "@forkd/sdk";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import "../support/orphans.ts";
import { repository } from "../support/places.ts";
import { parseMetrics, valueOf } from "../support/prometheus.ts";
import { sh } from "../support/sandboxes.ts";

let daemon: TestDaemon;

before(async () => {
  daemon = await startDaemon({ snapshots: ["tiny"] });
});

after(async () => {
  await daemon[Symbol.asyncDispose]();
});

function get(path: string): Promise<{ text: string; type: string | undefined }> {
  return new Promise((resolve, reject) => {
    http
      .get({ socketPath: daemon.socket, path }, (response) => {
        let text = "";
        response.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
        response.once("end", () => resolve({ text, type: response.headers["content-type"] }));
      })
      .once("error", reject);
  });
}

/** Listens for events; `next` returns them one by one. */
async function follow(signal: AbortSignal): Promise<{ next: () => Promise<ForkdEvent> }> {
  // An unknown id makes the daemon send a first event, which shows that the stream is open.
  const events = daemon.forkd.events({ signal, after: "000000000000-0" });
  const next = async () => {
    const { value, done } = await events.next();
    assert.ok(!done);
    return value;
  };
  assert.equal((await next()).type, "reset");
  return { next };
}

test("fork, pause, branch and kill appear in events, metrics and stats", async () => {
  const stop = new AbortController();
  const { next } = await follow(stop.signal);
  const { forkd } = daemon;

  const entries = await forkd.fork("tiny", 2, { labels: { job: "1" }, idempotencyKey: "fork-1" });
  const again = await forkd.fork("tiny", 2, { labels: { job: "1" }, idempotencyKey: "fork-1" });
  const [first, second] = entries;
  assert.ok(first instanceof Sandbox && second instanceof Sandbox);
  assert.deepEqual(
    again.map((entry) => (entry instanceof Sandbox ? entry.id : entry.message)),
    [first.id, second.id],
  );
  assert.equal((await forkd.sandboxes.list({ label: "job=1" }).all()).length, 2);
  const created = [await next(), await next()];
  assert.ok(created.every(({ type }) => type === "sandbox.created"));
  assert.deepEqual(created.map(({ sandboxId }) => sandboxId).sort(), [first.id, second.id].sort());

  assert.equal(await sh(first, "head -c 8000000 /dev/zero | md5sum >/dev/null; echo done"), "done");
  const { sandboxes } = await forkd.stats();
  assert.equal(sandboxes.length, 2);
  for (const { cpuMs = 0, privateBytes = 0, pssBytes = 0, diskBytes } of sandboxes) {
    assert.ok(cpuMs > 0 && privateBytes > 1_000_000 && pssBytes >= privateBytes && diskBytes > 0);
  }

  await first.pause();
  assert.deepEqual([(await next()).type], ["sandbox.paused"]);
  await first.resume();
  assert.equal((await next()).type, "sandbox.resumed");

  const branched = await first.branch({ tag: "b", wait: false });
  assert.equal((await forkd.snapshots.ready(branched.tag)).status, "ready");
  assert.deepEqual([(await next()).type, (await next()).type], ["snapshot.writing", "snapshot.ready"]);

  process.kill(second.info.pid ?? assert.fail("no pid"), "SIGKILL");
  const died = await next();
  assert.deepEqual([died.type, died.sandboxId], ["sandbox.died", second.id]);
  assert.match(died.reason ?? "", /SIGKILL/);
  await first.kill();
  assert.equal((await next()).type, "sandbox.killed");
  await forkd.snapshots.remove("b");
  assert.equal((await next()).type, "snapshot.removed");

  const { text, type } = await get("/metrics");
  assert.equal(type, "text/plain; version=0.0.4; charset=utf-8");
  const metrics = parseMetrics(text);
  assert.equal(valueOf(metrics, "forkd_sandboxes_ended_total", { reason: "killed" }), 1);
  assert.equal(valueOf(metrics, "forkd_sandboxes_ended_total", { reason: "died" }), 1);
  assert.equal(valueOf(metrics, "forkd_sandboxes", { state: "dead" }), 1);
  assert.equal(valueOf(metrics, "forkd_sandboxes_active"), 0);
  assert.equal(valueOf(metrics, "forkd_ready_seconds_count"), 2);
  assert.equal(valueOf(metrics, "forkd_exec_seconds_count"), 1);
  assert.equal(valueOf(metrics, "forkd_branch_pause_seconds_count"), 1);
  assert.equal(valueOf(metrics, "forkd_requests_total", { route: "fork", code: "201" }), 2);
  assert.ok(!text.includes("sb-"), "metrics contain no sandbox id");
  assertDashboard(metrics);
  stop.abort();
});

/** Asserts that the daemon has every metric that the dashboard queries. */
function assertDashboard(metrics: ReturnType<typeof parseMetrics>): void {
  const dashboard = readFileSync(join(repository, "deploy/grafana/forkd.json"), "utf8");
  const used = new Set(dashboard.match(/\bforkd_[a-z_]+\b/g));
  assert.ok(used.size > 15);
  for (const name of used) {
    const family = metrics.get(name) ?? metrics.get(name.replace(/_(bucket|sum|count)$/, ""));
    assert.ok(family, `the dashboard queries ${name}, which does not exist`);
    if (name !== family.name) assert.equal(family.type, "histogram", name);
  }
  const { panels } = JSON.parse(dashboard) as { panels: Panel[] };
  for (const { title, targets, options } of panels) {
    const units = new Set(targets.map(({ expr }) => unitOf(expr)));
    assert.equal(units.size, 1, `panel "${title}" shows ${[...units].join(" and ")} on one axis`);
    const isLabel = targets.some(({ expr }) => expr.includes("_info{"));
    assert.equal(options?.textMode === "name", isLabel, `panel "${title}"`);
  }
}

type Panel = { title: string; targets: { expr: string }[]; options?: { textMode?: string } };

function unitOf(expr: string): string {
  if (expr.includes("histogram_quantile(")) return "seconds";
  if (expr.includes("rate(")) return "per second";
  return /_(bytes|seconds)\b/.exec(expr)?.[1] ?? (expr.includes("fds") ? "descriptors" : "count");
}

test("fork() with the same idempotency key gets the same answer after the daemon was killed", async () => {
  const [made] = await daemon.forkd.fork("tiny", 1, { idempotencyKey: "fork-2" });
  assert.ok(made instanceof Sandbox);
  daemon.process.kill("SIGKILL");
  await once(daemon.process, "exit");
  await using next = await startDaemon({
    dataDir: daemon.dataDir,
    env: { FORKD_RUNTIME_DIR: join(daemon.dir, "run") }, // so that it adopts the machines of the first daemon
  });
  const [again] = await next.forkd.fork("tiny", 1, { idempotencyKey: "fork-2" });
  assert.ok(again instanceof Sandbox);
  assert.equal(again.id, made.id);
  const other = next.forkd.fork("tiny", 2, { idempotencyKey: "fork-2" });
  await assert.rejects(other, { code: "idempotency_mismatch" });
  await next.forkd.call("killAll", {});
});
