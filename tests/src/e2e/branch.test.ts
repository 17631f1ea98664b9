/** Branches of busy sandboxes: what continues, what is separate in each child, concurrent branches. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import type { Sandbox } from "@forkd/sdk";
import { assertClockAfter, assertConsecutive, branchInto, identityOf, Lines } from "../support/branches.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { until, rejectsWith } from "@forkd/test-support";
import { sh } from "../support/sandboxes.ts";

let daemon: TestDaemon;
before(async () => {
  daemon = await startDaemon({ snapshots: ["python", "tiny"] });
});
/** ids of sandboxes that subtests share */
const kept = new Set<string>();
// A test that fails must not leave sandboxes to the next tests. This also runs after every subtest.
afterEach(async () => {
  for (const { id } of await daemon.forkd.sandboxes.list().all())
    if (!kept.has(id)) await daemon.forkd.sandboxes.kill(id);
});
after(() => daemon[Symbol.asyncDispose]());

const loop = `
import os, random, time
log = open('/root/loop.log', 'w')
count = 0
while not os.path.exists('/root/stop'):
    count += 1
    log.write(f'{random.random()} {os.urandom(8).hex()} {float(numpy.random.rand())} {count}\\n')
    log.flush()
    time.sleep(0.004)
['ended', count]
`;

function keepDuringSubtests(sandboxes: readonly Sandbox[]): Disposable {
  for (const { id } of sandboxes) kept.add(id);
  return { [Symbol.dispose]: () => kept.clear() };
}

/** The lines that the loop has logged, one for each turn. */
async function turns(sandbox: Sandbox): Promise<string[]> {
  const lines = (await sandbox.files.readText("/root/loop.log")).split("\n");
  return lines.slice(0, -1);
}

async function moreTurns(sandbox: Sandbox, count: number): Promise<void> {
  const wanted = (await turns(sandbox)).length + count;
  await until(`${count} more turns`, async () => (await turns(sandbox)).length >= wanted);
}

function allDiffer(values: readonly unknown[], what: string): void {
  assert.equal(new Set(values).size, values.length, `${what} repeats: ${JSON.stringify(values)}`);
}

/** The numbers of turns that each sandbox has logged. */
function turnCounts(sandboxes: readonly Sandbox[]): Promise<number[]> {
  return Promise.all(sandboxes.map(async (sandbox) => (await turns(sandbox)).length));
}

/** Stops the loop of a child and returns its last count. */
async function stopLoop(child: Sandbox): Promise<number> {
  await child.files.write("/root/stop", "");
  await until("the loop ends", async () => (await child.eval("count")).error === null);
  return (await child.eval("count")).resultJson as number;
}

test("children of a branch continue in the middle of a Python loop", async (t) => {
  await using source = await daemon.forkd.create("python");
  const running = source.eval(loop, { timeoutMs: 600_000 });
  // If a step fails, the source is killed before the loop ends.
  running.catch(() => undefined);
  await until("the loop has started", () =>
    turns(source).then(
      (lines) => lines.length > 5,
      () => false,
    ),
  );
  const { branch, children } = await branchInto(source, { tag: "loop", n: 3 });
  const all = [source, ...children];
  using _all = keepDuringSubtests(all);
  // Random numbers that a child drew before the fork returned may be those of the others.
  const turnsAtFork = Math.max(...(await turnCounts(all)));
  const ends: number[] = [];

  await t.test("branch() returns status, mode, parent and source", () => {
    assert.deepEqual([branch.status, branch.mode, branch.parentTag], ["ready", "live", "python"]);
    assert.equal(branch.branchedFrom, source.id);
  });

  await t.test("the loop keeps running in the source and in every child", () =>
    until("40 more turns in each", async () => Math.min(...(await turnCounts(all))) >= turnsAtFork + 40),
  );

  await t.test("the loop of one child ends without an effect on the source", async () => {
    for (const child of children) {
      const count = await stopLoop(child);
      ends.push(count);
      await moreTurns(source, 5);
      assert.equal((await child.eval("count += 1000; count")).resultJson, count + 1000);
    }
    await source.files.write("/root/stop", "");
    const result = await running;
    assert.deepEqual([result.error, (result.resultJson as unknown[])[0]], [null, "ended"]);
    ends.push((result.resultJson as number[])[1] ?? 0);
  });

  const logs = await Promise.all(all.map(turns));
  await t.test("no log loses or repeats a turn", () => {
    for (const [index, lines] of logs.entries()) {
      assertConsecutive(lines, 1);
      assert.equal(lines.length, ends.at(index - 1), `turns of ${index}`);
    }
  });

  await t.test("the logs are equal up to the branch, and their random numbers differ after it", () =>
    assertLogsDiverge(logs, turnsAtFork),
  );

  await t.test("every sandbox has its own random numbers and identity", () => assertOwnIdentity(all));

  await t.test("every sandbox has its own disk", async () => {
    const [first, ...others] = children;
    assert.ok(first);
    await sh(first, "echo mine > /root/own; sync");
    for (const other of [source, ...others])
      await rejectsWith(other.files.read("/root/own"), "file_not_found");
  });
  await Promise.all(children.map((child) => child.kill()));
});

function assertLogsDiverge(logs: readonly string[][], turnsAtFork: number): void {
  const shared = logs[0]?.findIndex((line, at) => logs.slice(1).some((lines) => lines[at] !== line)) ?? -1;
  assert.ok(shared > 5, `the logs differ from turn ${shared}`);
  for (let at = turnsAtFork + 1; at < turnsAtFork + 40; at++) {
    const drawn = logs.map((lines) => lines[at]?.split(" ") ?? []);
    for (const column of [0, 1, 2])
      allDiffer(
        drawn.map((values) => values[column]),
        `number ${column} of turn ${at}`,
      );
  }
}

async function assertOwnIdentity(sandboxes: readonly Sandbox[]): Promise<void> {
  const randoms = await Promise.all(sandboxes.map((each) => each.eval("os.urandom(16).hex()")));
  allDiffer(
    randoms.map((each) => each.result),
    "os.urandom",
  );
  const identities = await Promise.all(sandboxes.map(identityOf));
  for (const column of [0, 1, 2])
    allDiffer(
      identities.map((values) => values[column]),
      `identity ${column}`,
    );
}

const talk = `
import os, socket, threading
server = socket.create_server(('127.0.0.1', 0))
def serve():
    peer, _ = server.accept()
    stream = peer.makefile('rw')
    for line in stream:
        stream.write(f'{int(line) + 1}\\n'); stream.flush()
threading.Thread(target=serve, daemon=True).start()
client = socket.create_connection(server.getsockname())
stream = client.makefile('rw')
said = 0
while not (os.path.exists('/root/stop') and said > int(open('/root/stop').read())):
    stream.write(f'{said}\\n'); stream.flush()
    heard = int(stream.readline())
    assert heard == said + 1, (heard, said)
    said = heard
said
`;

test("a TCP connection inside the guest stays open in source and children", async () => {
  await using source = await daemon.forkd.create("python");
  const running = source.eval(talk, { timeoutMs: 600_000 });
  await until("the connection is open", async () => / 01 /.test(await sh(source, "cat /proc/net/tcp")));
  const children: Sandbox[] = [];
  for (const mode of ["live", "diff", "full"] as const)
    children.push(...(await branchInto(source, { tag: `tcp-${mode}`, mode, n: 1 })).children);
  const heard: unknown[] = [];
  for (const child of children) {
    await child.files.write("/root/stop", "0");
    heard.push((await child.eval("said", { timeoutMs: 600_000 })).resultJson);
    await child.kill();
  }
  // The connection of the source continues beyond the last number of the first child.
  await source.files.write("/root/stop", String(heard[0]));
  const result = await running;
  assert.equal(result.error, null);
  assert.ok(
    heard.every((number) => typeof number === "number" && number > 0),
    JSON.stringify(heard),
  );
  assert.ok(Number(result.resultJson) > Number(heard[0]));
});

const count = (prefix: string) =>
  `i=0; while [ ! -e /root/stop ]; do i=$((i+1)); echo ${prefix} $i >> /root/${prefix}.log; echo ${prefix} $i; sleep 0.01; done`;

test("streams, terminals and background commands lose and repeat no line over ten branches", async () => {
  await using source = await daemon.forkd.create("tiny");
  const piped = new Lines(await source.commands.start(["sh", "-c", count("pipe")]));
  const pty = new Lines(
    await source.commands.start(["sh", "-c", count("pty")], { pty: { rows: 24, cols: 80 } }),
  );
  const background = await source.commands.run(count("back"), { background: true });
  await Promise.all([piped.more(5), pty.more(5)]);
  for (let index = 0; index < 10; index++) {
    await source.branch({ tag: `lines-${index}` });
    await Promise.all([piped.more(3), pty.more(3)]);
  }
  const child = await daemon.forkd.create("lines-9");
  const listed = (await child.commands.list()).find(({ execId: id }) => id === background.execId);
  assert.equal(listed?.state, "running");
  const attached = new Lines(await child.commands.attach(background));
  await attached.more(20);
  await child.files.write("/root/stop", "");
  await attached.done;
  assertConsecutive(attached.all, 1);
  assert.deepEqual(attached.all, (await sh(child, "cat /root/back.log")).split("\n"));
  await child.kill();

  await source.files.write("/root/stop", "");
  await Promise.all([piped.done, pty.done]);
  for (const [lines, name] of [
    [piped, "pipe"],
    [pty, "pty"],
  ] as const) {
    assertConsecutive(lines.all, 1);
    assert.deepEqual(lines.all, (await sh(source, `cat /root/${name}.log`)).split("\n"));
  }
  for (let index = 0; index < 10; index++) await daemon.forkd.snapshots.remove(`lines-${index}`);
});

test("the clocks of source and children are correct after several branches", async () => {
  await using source = await daemon.forkd.create("tiny");
  await assertClockAfter(
    async () => {
      for (let index = 0; index < 5; index++) await source.branch({ tag: `clock-${index}` });
      return source;
    },
    (sandbox) => sandbox,
  );
  await assertClockAfter(
    () => daemon.forkd.create("clock-0"),
    (child) => child,
  );
});

test("a branch of a branch of a branch has the state of all three", async () => {
  let sandbox = await daemon.forkd.create("python");
  const path: string[] = [];
  for (const name of ["one", "two", "three"]) {
    await sandbox.eval(`${name} = '${name}'; open('/root/${name}', 'w').write('${name}'); None`);
    const { branch, children } = await branchInto(sandbox, { tag: `deep-${name}`, n: 1 });
    assert.equal(branch.parentTag, path.at(-1) ?? "python");
    path.push(branch.tag);
    await sandbox.eval(`lost_${name} = 1`);
    await sandbox.kill();
    assert.ok(children[0]);
    [sandbox] = children as [Sandbox];
  }
  const seen = await sandbox.eval(
    "[one, two, three, *(open('/root/' + n).read() for n in ('one', 'two', 'three')), [n for n in globals() if n.startswith('lost')]]",
  );
  assert.deepEqual(seen.resultJson, ["one", "two", "three", "one", "two", "three", []]);
  const info = await daemon.forkd.snapshots.info("deep-three");
  assert.deepEqual([info.chainDepth, info.ancestors], [3, ["deep-two", "deep-one", "python"]]);
  await sandbox.kill();
});

test("concurrent branches of one or two sandboxes have the state of their own source", async () => {
  await using a = await daemon.forkd.create("tiny", { labels: { name: "a" } });
  await using b = await daemon.forkd.create("tiny");
  await Promise.all([sh(a, "echo a > /root/who"), sh(b, "echo b > /root/who")]);
  const branches = await Promise.all([
    branchInto(a, { tag: "many-a1", n: 1 }),
    branchInto(a, { tag: "many-a2", n: 1, mode: "diff" }),
    branchInto(b, { tag: "many-b1", n: 1 }),
    branchInto(b, { n: 1, mode: "full" }),
  ]);
  assert.match(branches[3].branch.tag, /^branch-[0-9a-f]{8}-/);
  for (const [index, who] of ["a", "a", "b", "b"].entries()) {
    const [child] = branches[index]?.children ?? [];
    assert.ok(child);
    assert.equal(await sh(child, "cat /root/who"), who);
    await child.kill();
  }
  const infos = await Promise.all([a, b].map(({ id }) => daemon.forkd.sandboxes.get(id)));
  assert.deepEqual(
    infos.map(({ info }) => info.branchCount),
    [2, 2],
  );
  await rejectsWith(a.branch({ tag: "many-b1" }), "snapshot_exists", /many-b1/);
  await rejectsWith(a.branch({ tag: "x", wait: false, n: 1 }), "invalid_request", /wait/);
  await rejectsWith(
    daemon.forkd.call("branch", { id: a.id, tag: "x", parent_tag: "python" }),
    "invalid_request",
    /parent_tag/,
  );
});
