/**
 * Children that wait ready to be handed out: they are as exact as children that are started for a caller, and
 * no fault of them reaches a caller.
 *
 * FORKD_TEST_POOL_KILLS sets the number of kills of the daemon, FORKD_TEST_SEED repeats a run.
 */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { readdirSync, readFileSync } from "node:fs";
import { rm } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import type { Forkd, Sandbox } from "@forkd/sdk";
import { until } from "@forkd/test-support";
import { endDaemon, startDaemon, withDaemons, type TestDaemon } from "../support/daemon.ts";
import { Random } from "../support/random.ts";
import { forkAll, processesOf, processExists, sh } from "../support/sandboxes.ts";
import { fillUp, ownDisk } from "../support/small-disk.ts";
import { testDir } from "../support/test-dir.ts";

const kills = Number(process.env["FORKD_TEST_POOL_KILLS"] ?? 3);
const seed = Number(process.env["FORKD_TEST_SEED"] ?? Date.now() % 1_000_000);
const on = { FORKD_POOL_MEMORY_PERCENT: "10" } as const;

let daemon: TestDaemon;
before(async () => {
  daemon = await startDaemon({ snapshots: ["python", "node", "tiny"], env: on });
});
after(async () => {
  await daemon?.[Symbol.asyncDispose]();
});

function assertDistinct(values: readonly unknown[]): void {
  assert.equal(new Set(values).size, values.length, JSON.stringify(values));
}

async function ready(forkd: Forkd, tag: string, count: number): Promise<void> {
  await forkd.pool.set(tag, count);
  await until(`${count} children of ${tag} are ready`, async () => {
    const { snapshots } = await forkd.pool.get();
    return snapshots.find((each) => each.tag === tag)?.ready === count;
  });
}

/** One child of the pool; the pool of the tag is empty afterwards. */
async function fromPool(tag: string, options: Parameters<Forkd["create"]>[1] = {}): Promise<Sandbox> {
  await ready(daemon.forkd, tag, 1);
  const sandbox = await daemon.forkd.create(tag, options);
  assert.equal(sandbox.info.from, "pool");
  await daemon.forkd.pool.set(tag, 0);
  return sandbox;
}

test("env, vary, labels, limits of time and the clock are those of the call, not of the moment it was made", async () => {
  await ready(daemon.forkd, "python", 2);
  const children = await forkAll(daemon.forkd, "python", 2, {
    env: { MODE: "test" },
    vary: [{ env: { SEED: "1" }, values: { k: 1 } }, { env: { SEED: "2" } }],
    labels: { job: "x" },
    ttlMs: 3_600_000,
  });
  await daemon.forkd.pool.set("python", 0);
  for (const [index, child] of children.entries()) {
    assert.equal(child.info.from, "pool");
    assert.deepEqual(child.info.labels, { job: "x" });
    assert.ok(child.info.expiresAt !== undefined);
    const seen = await child.eval("import os\n[os.environ[n] for n in ('MODE', 'SEED', 'FORKD_INDEX')]");
    assert.deepEqual(seen.resultJson, ["test", String(index + 1), String(index)]);
    assert.equal(await sh(child, "echo $MODE $SEED $FORKD_INDEX"), `test ${index + 1} ${index}`);
    assert.equal(await sh(child, "cat /etc/hostname"), child.id);
    const now = Number(await sh(child, "date +%s"));
    assert.ok(Math.abs(now - Date.now() / 1000) < 5, "the guest has the time of the host");
  }
  assert.equal(await sh(children[0] as Sandbox, "cat /run/forkd/values.json"), '{"k":1}');
  const draws = await Promise.all(
    children.map(async (child) => [
      (await child.eval("import random, os\nrandom.random()")).result,
      (await child.eval("numpy.random.random()")).result,
      (await child.eval("os.urandom(8).hex()")).result,
      await sh(child, "cat /etc/machine-id /proc/sys/kernel/random/boot_id"),
    ]),
  );
  assertDistinct(draws.flat());
  await Promise.all(children.map((child) => child.kill()));
});

for (const [tag, language] of [
  ["python", "python"],
  ["node", "node"],
] as const) {
  test(`a rehearsal leaves nothing in a ${language} child that its first eval could see`, async () => {
    const names =
      language === "python" ? "sorted(globals())" : "Object.getOwnPropertyNames(globalThis).sort().join()";
    await daemon.forkd.pool.set(tag, 0);
    const cold = await daemon.forkd.create(tag);
    assert.equal(cold.info.from, "start");
    const pooled = await fromPool(tag);
    const look = async (sandbox: Sandbox) => {
      const { result, executionCount, stdout, stderr } = await sandbox.runCode(names);
      return { result, executionCount, stdout, stderr };
    };
    assert.deepEqual(await look(pooled), await look(cold));
    await Promise.all([cold.kill(), pooled.kill()]);
  });
}

test("callbacks of after_fork run once, with the variables of the call, in a child that waited", async () => {
  const source = await daemon.forkd.create("python");
  await source.eval(
    "import forkd, os\nruns = []\nforkd.after_fork(lambda: runs.append(os.environ.get('WHO')))",
  );
  await source.branch({ tag: "hooked" });
  const child = await fromPool("hooked", { env: { WHO: "me" } });
  assert.deepEqual((await child.eval("runs")).resultJson, ["me"]);
  await Promise.all([source.kill(), child.kill()]);
  await daemon.forkd.snapshots.remove("hooked");
});

function cpuTicks(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, "latin1").split(") ").at(-1)?.split(" ") ?? [];
  return Number(fields[11]) + Number(fields[12]);
}

test("a child that waits is stopped: a program of its snapshot continues only when it is handed out", async () => {
  const source = await daemon.forkd.create("tiny");
  await source.commands.run("i=0; while :; do i=$((i+1)); echo $i > /tmp/count; done", { background: true });
  await until("it counts", async () => Number(await sh(source, "cat /tmp/count 2>/dev/null || echo 0")) > 0);
  await source.branch({ tag: "counting" });
  await source.kill();
  const known = new Set(processesOf(daemon.dataDir));
  await ready(daemon.forkd, "counting", 1);
  const [pid = 0] = processesOf(daemon.dataDir).filter((each) => !known.has(each));
  const ticks = cpuTicks(pid);
  // There is no event for a program that does not run; one that runs uses a whole core.
  await sleep(1500);
  assert.ok(cpuTicks(pid) - ticks < 20, "the guest uses no CPU while it waits");
  const child = await daemon.forkd.create("counting");
  assert.deepEqual([child.info.from, child.info.pid], ["pool", pid]);
  const count = Number(await sh(child, "cat /tmp/count"));
  await until("it counts again", async () => Number(await sh(child, "cat /tmp/count")) > count);
  await daemon.forkd.pool.set("counting", 0);
  await child.kill();
  await daemon.forkd.snapshots.remove("counting");
});

test("a ready child can be branched, paused, resumed and rewound like any other", async () => {
  const child = await fromPool("python");
  await child.eval("x = 41");
  await child.branch({ tag: "of-pooled" });
  await child.eval("x = 0");
  await child.pause();
  await child.resume();
  assert.equal((await child.eval("x")).result, "0");
  await child.rewind("of-pooled");
  assert.equal((await child.eval("x + 1")).result, "42");
  await child.kill();
  await daemon.forkd.snapshots.remove("of-pooled");
});

test("a ready child whose VMM was killed, or does not answer, is replaced without an error for the caller", async () => {
  await using own = await startDaemon({
    snapshots: ["tiny"],
    env: { ...on, FORKD_READY_TIMEOUT_SECS: "5", FORKD_VMM_TIMEOUT_SECS: "5" },
  });
  const { forkd, dataDir } = own;
  await ready(forkd, "tiny", 2);
  const [first = 0, second = 0] = processesOf(dataDir);
  process.kill(first, "SIGSTOP");
  process.kill(second, "SIGSTOP");
  const sandbox = await forkd.create("tiny");
  assert.ok(![first, second].includes(sandbox.info.pid ?? 0));
  assert.equal(await sh(sandbox, "echo ok"), "ok");
  await until("the stopped ones are gone", () => !processExists(first) && !processExists(second));
  await ready(forkd, "tiny", 2);
  const [third = 0] = processesOf(dataDir).filter((pid) => pid !== sandbox.info.pid);
  process.kill(third, "SIGKILL");
  const [a, b] = await forkAll(forkd, "tiny", 2);
  assert.ok(a && b);
  assert.equal(await sh(b, "echo ok"), "ok");
});

test("removing a snapshot while its children are being made leaves nothing of them", async () => {
  const source = await daemon.forkd.create("tiny");
  await source.branch({ tag: "short-lived" });
  await source.kill();
  // Children of other snapshots must not come and go meanwhile.
  for (const tag of ["python", "node", "tiny"]) await daemon.forkd.pool.set(tag, 0);
  const before = new Set(processesOf(daemon.dataDir));
  await daemon.forkd.pool.set("short-lived", 4);
  await until("one is being made", () => processesOf(daemon.dataDir).some((pid) => !before.has(pid)));
  await daemon.forkd.snapshots.remove("short-lived");
  await until("nothing is left", () => processesOf(daemon.dataDir).every((pid) => before.has(pid)));
  const { snapshots } = await daemon.forkd.pool.get();
  assert.ok(!snapshots.some(({ tag }) => tag === "short-lived"));
});

test("a full disk stops the filling, and forks work again when there is space", async () => {
  await using dir = await testDir();
  await using disk = await ownDisk(dir.path, { tmpfs: "120m" }, ["tiny"]);
  await using own = await startDaemon({ dataDir: disk.dataDir, env: { ...on, FORKD_DISK_RESERVE_MIB: "0" } });
  // The size is set with the last space, which a child does not fit into.
  const filler = await fillUp(disk.dataDir, 64 * 1024);
  await own.forkd.pool.set("tiny", 3);
  await until("it could not be made", () => own.log().includes('"event":"pool.fill"'));
  assert.deepEqual(readdirSync(join(disk.dataDir, "sandboxes")), []);
  await rm(filler);
  const next = await own.forkd.create("tiny");
  assert.equal(await sh(next, "echo ok"), "ok");
});

test(`${kills} kills of the daemon while the pool fills and hands out leak, lose and duplicate nothing (seed ${seed})`, async () => {
  const random = new Random(seed);
  await withDaemons(["tiny"], async (start, dataDir) => {
    let own = await start(on);
    await own.forkd.pool.set("tiny", 3);
    const mine = new Set<string>();
    for (let round = 0; round < kills; round++) {
      const { forkd } = own;
      // The size that was set is kept by every daemon, so it fills on its own.
      await until("one child is ready", async () => ((await forkd.status()).pool["tiny"] ?? 0) > 0);
      let answered: string[] = [];
      const forking = forkAll(forkd, "tiny", 2, { labels: { round: String(round) } }).then(
        (made) => (answered = made.map(({ id }) => id)),
        () => undefined,
      );
      await sleep(random.next() * 60);
      const had = [...answered];
      await endDaemon(own, "SIGKILL");
      await forking;
      own = await start(on);
      const found = await own.forkd.sandboxes.list().all();
      for (const id of [...mine, ...had])
        assert.ok(
          found.some((each) => each.id === id),
          `round ${round}: ${id} is lost`,
        );
      for (const sandbox of found) {
        assert.equal(await sh(sandbox, "cat /etc/hostname"), sandbox.id);
        mine.add(sandbox.id);
      }
      assertDistinct(found.map(({ info }) => info.pid));
      for (const id of [...mine].slice(0, -3)) {
        await own.forkd.sandboxes.kill(id);
        mine.delete(id);
      }
    }
    await own.forkd.call("killAll", {});
    assert.deepEqual(readdirSync(join(dataDir, "sandboxes")), []);
    await until("no VMM is left", () => processesOf(dataDir).length === 0);
  });
});
