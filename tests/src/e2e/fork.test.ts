/** Fork: what children share, what they must not share, and how they stop. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { assertClockAfter } from "../support/branches.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { until, rejectsWith } from "@forkd/test-support";
import { forkAll, processExists, residentBytes, sh } from "../support/sandboxes.ts";

let daemon: TestDaemon;
before(async () => {
  daemon = await startDaemon({ snapshots: ["python", "node", "tiny"], env: { FORKD_MAX_SANDBOXES: "120" } });
});
// A test that fails must not leave sandboxes to the next tests.
afterEach(() => daemon.forkd.call("killAll", {}));
after(() => daemon[Symbol.asyncDispose]());

function allDiffer(values: readonly unknown[], what: string): void {
  assert.equal(
    new Set(values.map((value) => JSON.stringify(value))).size,
    values.length,
    `${what} repeats: ${JSON.stringify(values)}`,
  );
}

test("fork() gives each child its own random numbers, identity and memory", async () => {
  const children = await forkAll(daemon.forkd, "python", 5);
  const facts = await Promise.all(
    children.map(async (child) => {
      const { resultJson: json } = await child.eval(
        "import os, random, uuid, tempfile\n" +
          "[os.urandom(8).hex(), random.random(), float(numpy.random.rand()), os.uname().nodename, open('/etc/machine-id').read(), open('/proc/sys/kernel/random/boot_id').read(), str(uuid.uuid4()), tempfile.mktemp()]",
      );
      return json as unknown[];
    }),
  );
  for (const index of facts[0]?.keys() ?? [])
    allDiffer(
      facts.map((values) => values[index]),
      `fact ${index}`,
    );
  assert.deepEqual(
    facts.map((values) => values[3]),
    children.map(({ info }) => info.hostname),
  );
  await children[0]?.eval("secret = 42");
  assert.equal((await children[1]?.eval("'secret' in globals()"))?.resultJson, false);
  await Promise.all(children.map((child) => child.kill()));
});

test("fork() reseeds the random generators of Node", async () => {
  const children = await forkAll(daemon.forkd, "node", 3);
  const facts = await Promise.all(
    children.map(
      async (child) =>
        (
          await child.eval(
            "[Math.random(), require('crypto').randomBytes(8).toString('hex'), require('crypto').randomUUID()]",
          )
        ).resultJson as unknown[],
    ),
  );
  for (const index of [0, 1, 2])
    allDiffer(
      facts.map((values) => values[index]),
      `fact ${index}`,
    );
  await Promise.all(children.map((child) => child.kill()));
});

test("fork() gives each child a private disk", async () => {
  const [a, b] = await forkAll(daemon.forkd, "tiny", 2);
  assert.ok(a && b);
  await sh(a, "echo secret > /root/of-a; sync");
  assert.equal(await sh(a, "cat /root/of-a"), "secret");
  await rejectsWith(b.files.read("/root/of-a"), "file_not_found");
  const later = await daemon.forkd.create("tiny");
  await rejectsWith(later.files.read("/root/of-a"), "file_not_found");
  await Promise.all([a, b, later].map((child) => child.kill()));
});

test("fork() sets the guest's clock to the host's time although the snapshot is old", async () => {
  await assertClockAfter(
    () => daemon.forkd.create("tiny"),
    (child) => child,
  );
});

test("fork() passes env, vary and values to the right child", async () => {
  const children = await forkAll(daemon.forkd, "python", 2, {
    env: { COMMON: "c", MODE: "default" },
    vary: [{ env: { MODE: "zero" }, values: { prompt: ["a", 1] } }, {}],
    labels: { job: "42" },
  });
  const seen = await Promise.all(
    children.map(async (child) => [
      (await child.eval("import os; [os.environ['COMMON'], os.environ['MODE'], os.environ['FORKD_INDEX']]"))
        .resultJson,
      await sh(child, "echo $COMMON $MODE $FORKD_INDEX $FORKD_SANDBOX_ID"),
    ]),
  );
  assert.deepEqual(seen[0], [["c", "zero", "0"], `c zero 0 ${children[0]?.id}`]);
  assert.deepEqual(seen[1], [["c", "default", "1"], `c default 1 ${children[1]?.id}`]);
  assert.deepEqual(JSON.parse((await children[0]?.files.readText("/run/forkd/values.json")) ?? ""), {
    prompt: ["a", 1],
  });
  assert.equal((await daemon.forkd.sandboxes.list({ label: "job=42" }).all()).length, 2);
  assert.equal((await daemon.forkd.sandboxes.list({ label: "job=43" }).all()).length, 0);
  await Promise.all(children.map((child) => child.kill()));
});

test("kill() removes the process, the sockets and the directory of a sandbox", async () => {
  const child = await daemon.forkd.create("tiny");
  assert.ok(processExists(child.info.pid));
  assert.deepEqual(readdirSync(join(daemon.dataDir, "sandboxes")), [child.id]);
  await child.kill();
  assert.equal(processExists(child.info.pid), false);
  assert.deepEqual(readdirSync(join(daemon.dataDir, "sandboxes")), []);
  assert.deepEqual(readdirSync(join(daemon.dir, "run")), ["forkd.sock"]);
  await rejectsWith(child.ping(), "sandbox_not_found");
});

test("a sandbox stops when its time to live is over", async () => {
  const child = await daemon.forkd.create("tiny", { ttlMs: 1000 });
  assert.ok(child.info.expiresAt);
  await until("the sandbox expires", async () => (await daemon.forkd.sandboxes.list().all()).length === 0);
  await until("its VMM is gone", () => !processExists(child.info.pid));
});

test("a VMM killed from outside is reported with its signal and affects no other sandbox", async () => {
  const [victim, other] = await forkAll(daemon.forkd, "python", 2);
  assert.ok(victim?.info.pid && other);
  const followed = await victim.commands.start(["sleep", "60"]);
  // `running` may not have started in the guest yet. It fails with the same reason.
  const running = victim.commands.run(["sleep", "60"], { timeoutMs: 60_000 });
  const evals = victim.eval("print('on', flush=True)\nimport time; time.sleep(60)")[Symbol.asyncIterator]();
  assert.equal((await evals.next()).value?.type, "stdout");
  process.kill(victim.info.pid, "SIGKILL");
  await rejectsWith(running, "sandbox_dead", /SIGKILL/);
  await rejectsWith(followed.wait(), "sandbox_dead", /SIGKILL/);
  await rejectsWith(evals.next(), "sandbox_dead", /SIGKILL/);
  await until(
    "the sandbox is reported dead",
    async () => (await daemon.forkd.sandboxes.get(victim.id)).info.state === "dead",
  );
  const { info } = await daemon.forkd.sandboxes.get(victim.id);
  assert.match(info.reason ?? "", /SIGKILL/);
  await rejectsWith(victim.commands.run(["true"]), "sandbox_dead", /SIGKILL/);
  assert.equal(await sh(other, "echo alive"), "alive");
  await Promise.all([victim, other].map((child) => child.kill()));
});

test("a kernel panic in the guest is reported with the console output", async () => {
  const child = await daemon.forkd.create("tiny");
  await child.commands.run(["sh", "-c", "echo c > /proc/sysrq-trigger"]).catch(() => undefined);
  await until(
    "the sandbox is reported dead",
    async () => (await daemon.forkd.sandboxes.get(child.id)).info.state === "dead",
  );
  const { info } = await daemon.forkd.sandboxes.get(child.id);
  assert.match(info.reason ?? "", /Kernel panic/);
  const error = await rejectsWith(child.ping(), "sandbox_dead");
  assert.match(String(error.details["console"]), /sysrq/i);
  await child.kill();
});

test("fork() refuses invalid input, names the field and starts no machine", async () => {
  const { forkd } = daemon;
  await rejectsWith(forkd.fork("no-such"), "snapshot_not_found", /no-such/);
  await rejectsWith(forkd.fork("../etc"), "invalid_request", /snapshot_tag/);
  await rejectsWith(forkd.fork("tiny", 0), "invalid_request", /n: must be 1 to 1000/);
  await rejectsWith(forkd.fork("tiny", 1001), "invalid_request", /n: must be 1 to 1000/);
  await rejectsWith(forkd.fork("tiny", 1, { vary: [{}, {}] }), "invalid_request", /vary/);
  await rejectsWith(forkd.fork("tiny", 1, { env: { "A=B": "x" } }), "invalid_request", /env/);
  await rejectsWith(forkd.fork("tiny", 121), "capacity_exhausted", /limit is 120/);
  await rejectsWith(
    forkd.call("fork", { snapshot_tag: "tiny", hugepages: true as never }),
    "invalid_request",
    /hugepages/,
  );
  assert.deepEqual(readdirSync(join(daemon.dataDir, "sandboxes")), []);
});

test("a fork whose caller disconnects leaves no children", async () => {
  for (let attempt = 0; ; attempt++) {
    const abort = new AbortController();
    const pending = daemon.forkd.fork("tiny", 20, { signal: abort.signal });
    let isAnswered = false;
    const answered = pending.then(() => (isAnswered = true));
    answered.catch(() => undefined);
    await until("the fork has begun", () => readdirSync(join(daemon.dataDir, "sandboxes")).length > 0);
    // If the answer has already arrived, the abort would be too late. Then try again.
    await new Promise((resolve) => setImmediate(resolve));
    if (isAnswered && attempt < 10) {
      await daemon.forkd.call("killAll", {});
      continue;
    }
    abort.abort();
    await rejectsWith(pending, "cancelled");
    break;
  }
  await until("every child is removed", () => readdirSync(join(daemon.dataDir, "sandboxes")).length === 0);
  assert.deepEqual(await daemon.forkd.sandboxes.list().all(), []);
});

test("fork() makes a hundred children that all answer", async () => {
  const children = await forkAll(daemon.forkd, "python", 100);
  const results = await Promise.all(
    children.map((child) => child.eval("numpy.zeros(5).tolist()", { timeoutMs: 600_000 })),
  );
  assert.ok(results.every(({ result }) => result === "[0.0, 0.0, 0.0, 0.0, 0.0]"));
  allDiffer(
    children.map(({ id }) => id),
    "id",
  );
  const { killed } = await daemon.forkd.call("killAll", {});
  assert.equal(killed.length, 100);
  assert.deepEqual(readdirSync(join(daemon.dataDir, "sandboxes")), []);
  const rss = residentBytes(daemon.process.pid) / 1024 ** 2;
  assert.ok(rss < 300, `daemon RSS ${rss} MiB`);
});

test("forks take ready children, the pool fills again, and killAll empties it", async () => {
  await using pooled = await startDaemon({ snapshots: ["tiny"], env: { FORKD_POOL_MEMORY_PERCENT: "10" } });
  const first = await pooled.forkd.create("tiny");
  assert.equal(first.info.from, "start");
  await pooled.forkd.pool.set("tiny", 2);
  await until("the pool is full", async () => (await pooled.forkd.status()).pool["tiny"] === 2);
  const [a, b] = await forkAll(pooled.forkd, "tiny", 2);
  assert.ok(a && b);
  assert.deepEqual([a.info.from, b.info.from], ["pool", "pool"]);
  assert.notEqual(await sh(a, "cat /etc/machine-id"), await sh(b, "cat /etc/machine-id"));
  await pooled.forkd.call("killAll", {});
  assert.deepEqual(readdirSync(join(pooled.dataDir, "sandboxes")), []);
  assert.deepEqual((await pooled.forkd.status()).pool, {});
});
