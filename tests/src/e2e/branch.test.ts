/** BRANCH of sandboxes in the middle of their work: what goes on, what is the child's own, how many at once. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { after, afterEach, before, test } from "node:test";
import type { AppError, Sandbox } from "@forkd/sdk";
import { assertClockAfter, assertConsecutive, branchInto, identityOf, Lines } from "../support/branches.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { until, rejectsWith } from "@forkd/test-support";
import { sh } from "../support/sandboxes.ts";

let daemon: TestDaemon;
before(async () => {
  daemon = await startDaemon({ snapshots: ["python", "tiny"] });
});
// A test that failed half-way is no reason for the next ones to fail.
afterEach(() => daemon.forkd.call("killAll", {}));
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

test("children go on in the middle of a Python loop, each by itself; the source notices nothing", async () => {
  await using source = await daemon.forkd.forkOne("python");
  const running = source.eval(loop, { timeoutSecs: 600 });
  await until("the loop has begun", () =>
    turns(source).then(
      (lines) => lines.length > 5,
      () => false,
    ),
  );
  const { branch, children } = await branchInto(source, { tag: "loop", n: 3 });
  assert.deepEqual([branch.status, branch.mode, branch.parent_tag], ["ready", "live", "python"]);
  assert.equal(branch.branched_from, source.id);
  const everyone = [source, ...children];
  // What was drawn before a child was handed out may be what the others drew.
  const handedOut = Math.max(
    ...(await Promise.all(everyone.map(async (each) => (await turns(each)).length))),
  );
  await until("everyone goes on", async () => {
    const lengths = await Promise.all(everyone.map(async (each) => (await turns(each)).length));
    return Math.min(...lengths) >= handedOut + 40;
  });

  // Each is told to end at another time.
  const ends: number[] = [];
  for (const child of children) {
    await child.files.write("/root/stop", "");
    await until("the loop ends", async () => (await child.eval("count")).error === null);
    const { result_json: count } = await child.eval("count");
    ends.push(count as number);
    // Only what was told to end has ended.
    await moreTurns(source, 5);
    assert.equal((await child.eval("count += 1000; count")).result_json, (count as number) + 1000);
  }
  await source.files.write("/root/stop", "");
  const result = await running;
  assert.deepEqual([result.error, (result.result_json as unknown[])[0]], [null, "ended"]);
  ends.push((result.result_json as number[])[1] ?? 0);

  const logs = await Promise.all(everyone.map(turns));
  for (const [index, lines] of logs.entries()) {
    assertConsecutive(lines, 1);
    assert.equal(lines.length, ends.at(index - 1), `turns of ${index}`);
  }
  const shared = logs[0]?.findIndex((line, at) => logs.slice(1).some((lines) => lines[at] !== line)) ?? -1;
  assert.ok(shared > 5, `the logs part at ${shared}`);
  for (let at = handedOut + 1; at < handedOut + 40; at++) {
    const drawn = logs.map((lines) => lines[at]?.split(" ") ?? []);
    for (const column of [0, 1, 2])
      allDiffer(
        drawn.map((values) => values[column]),
        `number ${column} of turn ${at}`,
      );
  }
  const randoms = await Promise.all(everyone.map((each) => each.eval("os.urandom(16).hex()")));
  allDiffer(
    randoms.map((each) => each.result),
    "os.urandom",
  );
  const identities = await Promise.all(everyone.map(identityOf));
  for (const column of [0, 1, 2])
    allDiffer(
      identities.map((values) => values[column]),
      `identity ${column}`,
    );

  await sh(everyone[1]!, "echo mine > /root/own; sync");
  for (const other of [everyone[0]!, everyone[2]!, everyone[3]!])
    await rejectsWith(other.files.read("/root/own"), "file_not_found");
  await Promise.all(children.map((child) => child.kill()));
});

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
  await using source = await daemon.forkd.forkOne("python");
  const running = source.eval(talk, { timeoutSecs: 600 });
  await until("it talks", async () => / 01 /.test(await sh(source, "cat /proc/net/tcp")));
  const children: Sandbox[] = [];
  for (const mode of ["live", "diff", "full"] as const)
    children.push(...(await branchInto(source, { tag: `tcp-${mode}`, mode, n: 1 })).children);
  const heard: unknown[] = [];
  for (const child of children) {
    await child.files.write("/root/stop", "0");
    heard.push((await child.eval("said", { timeoutSecs: 600 })).result_json);
    await child.kill();
  }
  // Its own connection goes on beyond what the first child has heard.
  await source.files.write("/root/stop", String(heard[0]));
  const result = await running;
  assert.equal(result.error, null);
  assert.ok(
    heard.every((number) => typeof number === "number" && number > 0),
    JSON.stringify(heard),
  );
  assert.ok(Number(result.result_json) > Number(heard[0]));
});

const count = (prefix: string) =>
  `i=0; while [ ! -e /root/stop ]; do i=$((i+1)); echo ${prefix} $i >> /root/${prefix}.log; echo ${prefix} $i; sleep 0.01; done`;

test("streams, terminals and background commands lose and double nothing over ten branches", async () => {
  await using source = await daemon.forkd.forkOne("tiny");
  const piped = new Lines(await source.commands.start(["sh", "-c", count("pipe")]));
  const pty = new Lines(
    await source.commands.start(["sh", "-c", count("pty")], { pty: { rows: 24, cols: 80 } }),
  );
  const { exec_id: background } = await source.commands.background(["sh", "-c", count("back")]);
  await Promise.all([piped.more(5), pty.more(5)]);
  for (let index = 0; index < 10; index++) {
    await source.branch({ tag: `lines-${index}` });
    await Promise.all([piped.more(3), pty.more(3)]);
  }
  const child = await daemon.forkd.forkOne("lines-9");
  const listed = (await child.commands.list()).find(({ exec_id: id }) => id === background);
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

test("clocks of source and children are right after many branches", async () => {
  await using source = await daemon.forkd.forkOne("tiny");
  await assertClockAfter(
    async () => {
      for (let index = 0; index < 5; index++) await source.branch({ tag: `clock-${index}` });
      return source;
    },
    (sandbox) => sandbox,
  );
  await assertClockAfter(
    () => daemon.forkd.forkOne("clock-0"),
    (child) => child,
  );
});

test("a branch of a branch of a branch has what each of them had", async () => {
  let sandbox = await daemon.forkd.forkOne("python");
  const path: string[] = [];
  for (const name of ["one", "two", "three"]) {
    await sandbox.eval(`${name} = '${name}'; open('/root/${name}', 'w').write('${name}'); None`);
    const { branch, children } = await branchInto(sandbox, { tag: `deep-${name}`, n: 1 });
    assert.equal(branch.parent_tag, path.at(-1) ?? "python");
    path.push(branch.tag);
    await sandbox.eval(`lost_${name} = 1`);
    await sandbox.kill();
    assert.ok(children[0]);
    [sandbox] = children as [Sandbox];
  }
  const seen = await sandbox.eval(
    "[one, two, three, *(open('/root/' + n).read() for n in ('one', 'two', 'three')), [n for n in globals() if n.startswith('lost')]]",
  );
  assert.deepEqual(seen.result_json, ["one", "two", "three", "one", "two", "three", []]);
  const info = await daemon.forkd.snapshots.info("deep-three");
  assert.deepEqual([info.chain_depth, info.ancestors], [3, ["deep-two", "deep-one", "python"]]);
  await sandbox.kill();
});

test("one sandbox twice and two sandboxes at once: every branch is there, and each is of its own source", async () => {
  await using a = await daemon.forkd.forkOne("tiny", { labels: { name: "a" } });
  await using b = await daemon.forkd.forkOne("tiny");
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
    infos.map(({ info }) => info.branch_count),
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

test("one branch more than may be under way is refused at once, with what to do", async () => {
  await using small = await startDaemon({ snapshots: ["tiny"], env: { FORKD_BRANCH_CONCURRENCY: "1" } });
  const [a, b] = await Promise.all([small.forkd.forkOne("tiny"), small.forkd.forkOne("tiny")]);
  // A machine that stands still keeps its branch under way.
  process.kill(a.info.pid ?? 0, "SIGSTOP");
  const first = a.branch({ tag: "one" });
  try {
    await until("the first is under way", async () =>
      (await small.forkd.snapshots.list()).some(({ tag, status }) => tag === "one" && status === "writing"),
    );
    const { remedy } = await rejectsWith(
      b.branch({ tag: "two" }),
      "capacity_exhausted",
      /1 branches are in progress and the limit is 1$/,
    );
    assert.deepEqual(remedy, { action: "retry_later", setting: "branch_concurrency" });
  } finally {
    process.kill(a.info.pid ?? 0, "SIGCONT");
  }
  await first;
  await b.branch({ tag: "three" });
  assert.deepEqual(
    (await small.forkd.snapshots.list()).map(({ tag, status }) => [tag, status]),
    [
      ["one", "ready"],
      ["three", "ready"],
      ["tiny", "ready"],
    ],
  );
});

test("a branch that is not waited for is unusable until it is ready", async () => {
  await using source = await daemon.forkd.forkOne("python");
  await source.eval("x = 'early'");
  const branch = await source.branch({ tag: "later", wait: false });
  assert.deepEqual([branch.status, branch.bootable, branch.children], ["writing", false, []]);
  // Unless it is complete already, whoever asks for it is told.
  const early = await daemon.forkd.fork("later").catch((error: unknown) => error);
  if (!Array.isArray(early)) {
    await rejectsWith(Promise.reject(early as Error), "snapshot_writing", /later/);
    const { code } = await source.branch({ tag: "later" }).then(
      () => assert.fail("there are two of one tag"),
      (error: unknown) => error as AppError,
    );
    assert.ok(["snapshot_writing", "snapshot_exists"].includes(code), code);
  }
  await source.eval("x = 'late'");
  assert.equal((await daemon.forkd.snapshots.ready("later")).status, "ready");
  const child = await daemon.forkd.forkOne("later");
  assert.equal((await child.eval("x")).result_json, "early");
});

const modes = ["live", "diff", "full"] as const;

test("all modes give the same children, and full needs no parent", async () => {
  await using own = await startDaemon({ snapshots: ["python"] });
  const { forkd } = own;
  const source = await forkd.forkOne("python");
  await source.eval("import hashlib\nx = list(range(100_000)); big = bytes(range(256)) * 20_000");
  await sh(source, "head -c 3000000 /dev/urandom > /root/data; sync");
  const digest =
    "[sum(x), hashlib.sha256(big).hexdigest(), hashlib.sha256(open('/root/data', 'rb').read()).hexdigest()]";
  const { result_json: expected } = await source.eval(digest);
  const children: Sandbox[] = [];
  for (const mode of modes) children.push(...(await branchInto(source, { tag: mode, mode, n: 1 })).children);
  for (const child of children) {
    await sh(child, "sync; echo 3 > /proc/sys/vm/drop_caches");
    assert.deepEqual((await child.eval(digest)).result_json, expected);
  }
  const infos = await Promise.all(modes.map((mode) => forkd.snapshots.info(mode)));
  assert.deepEqual(
    infos.map(({ parent_tag: tag, chain_depth: depth }) => [tag, depth]),
    [
      ["python", 1],
      ["python", 1],
      [undefined, 0],
    ],
  );
  await forkd.call("killAll", {});
  await rejectsWith(forkd.snapshots.remove("python"), "snapshot_in_use", /diff, live would be orphaned/);
  await forkd.snapshots.remove("python", { force: true });
  await forkd.gc();
  await rejectsWith(forkd.fork("live"), "snapshot_corrupt", /"live".*"python" is missing/);
  const survivor = await forkd.forkOne("full");
  assert.deepEqual((await survivor.eval(digest)).result_json, expected);
});

function diskLayers(info: { manifest: Record<string, unknown> }): number {
  return (info.manifest["files"] as { disks: unknown[] }).disks.length;
}

test("a disk layer is frozen only when there are writes, and many are collapsed without loss", async () => {
  await using source = await daemon.forkd.forkOne("tiny");
  const layersOf = async (tag: string) => diskLayers(await daemon.forkd.snapshots.info(tag));
  await sh(source, "sync");
  const quiet: number[] = [];
  for (let index = 0; index < 3; index++) {
    const { tag } = await source.branch({ tag: `quiet-${index}` });
    quiet.push(await layersOf(tag));
  }
  const [first = 0] = quiet;
  assert.ok((quiet[2] ?? 0) - first <= 1, `layers without writes: ${quiet.join()}`);
  const sums: string[] = [];
  const layers: number[] = [];
  for (let index = 0; index < 20; index++) {
    sums.push(
      await sh(source, `head -c 40000 /dev/urandom > /root/f${index}; sync; sha256sum /root/f${index}`),
    );
    const { tag } = await source.branch({ tag: `busy-${index}` });
    layers.push(await layersOf(tag));
  }
  assert.equal(layers[1], (layers[0] ?? 0) + 1, layers.join());
  assert.ok(Math.max(...layers) <= 18, `never collapsed: ${layers.join()}`);
  assert.ok(
    layers.some((count, at) => count < (layers[at - 1] ?? 0)),
    `never collapsed: ${layers.join()}`,
  );
  const child = await daemon.forkd.forkOne("busy-19");
  const early = await daemon.forkd.forkOne("busy-9");
  const drop = "sync; echo 3 > /proc/sys/vm/drop_caches; sha256sum";
  const names = (count: number) => Array.from({ length: count }, (_, index) => `/root/f${index}`).join(" ");
  for (const sandbox of [source, child])
    assert.equal(await sh(sandbox, `${drop} ${names(20)}`), sums.join("\n"));
  assert.equal(await sh(early, `${drop} ${names(10)}`), sums.slice(0, 10).join("\n"));
  await rejectsWith(early.files.read("/root/f10"), "file_not_found");
  await Promise.all([child.kill(), early.kill()]);
});
