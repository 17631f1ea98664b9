/** Every public method of the SDK against a real daemon and real guests, and bad input on the way there. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { after, before, test } from "node:test";
import * as sdk from "@forkd/sdk";
import { connect, Forkd, isForkdError, nodeTransport, outputBytes, Sandbox, wireOf } from "@forkd/sdk/node";
import { rejectsWith, until } from "@forkd/test-support";
import { endDaemon, startDaemon, withDaemons, type TestDaemon } from "../support/daemon.ts";
import { sh } from "../support/sandboxes.ts";

/** Names of the public methods that were called, such as "Files.read". */
const called = new Set<string>();
/** Other files test these with their own snapshots, because they take long. */
const elsewhere = ["Snapshots.build", "Snapshots.verify", "Evals.attach"];

type Methods = Record<string, unknown>;

/** Notes each call and passes it on. */
function note(owner: Methods, name: string, key: string): void {
  const method = owner[key];
  if (typeof method !== "function" || key === "constructor") return;
  owner[key] = function (this: unknown, ...args: unknown[]): unknown {
    called.add(`${name}.${key}`);
    return (method as (...all: unknown[]) => unknown).apply(this, args);
  };
  known.add(`${name}.${key}`);
}
const known = new Set<string>();
for (const [name, value] of Object.entries(sdk)) {
  if (typeof value !== "function" || !/^[A-Z]/.test(name) || name.endsWith("Error")) continue;
  const { prototype } = value as { prototype: Methods };
  for (const [key, descriptor] of Object.entries(Object.getOwnPropertyDescriptors(prototype)))
    if ("value" in descriptor) note(prototype, name, key);
}
for (const key of ["create", "connect", "list"]) note(Sandbox as unknown as Methods, "Sandbox", key);

let daemon: TestDaemon;
let forkd: Forkd;
let sandbox: Sandbox;
before(async () => {
  daemon = await startDaemon({ snapshots: ["python", "tiny"], env: { FORKD_LISTEN: "127.0.0.1:0" } });
  ({ forkd } = daemon);
  sandbox = await Sandbox.create("python", { forkd, labels: { job: "1" }, env: { SEED: "7" } });
});
after(() => daemon[Symbol.asyncDispose]());

async function all<T>(items: AsyncIterable<T>): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) found.push(item);
  return found;
}

test("sandboxes are created, found, listed, changed and killed", async () => {
  const found = await Sandbox.connect(sandbox.id, { forkd });
  assert.deepEqual(
    [found.id, found.info.snapshotTag, found.info.labels],
    [sandbox.id, "python", { job: "1" }],
  );
  assert.ok(found.info.createdAt instanceof Date);
  const other = await forkd.create("tiny", {
    ttlMs: 3_600_000,
    limits: { bestEffort: true, memoryMib: 512 },
  });
  const listed = await Sandbox.list({ label: "job=1" }, { forkd }).all();
  assert.deepEqual(
    listed.map(({ id }) => id),
    [sandbox.id],
  );
  const pages = forkd.sandboxes.list({ limit: 1 });
  assert.deepEqual([(await pages.page()).length, pages.hasNext], [1, false]);
  assert.equal((await all(forkd.sandboxes.list())).length, 2);
  const changed = await other.setTimeouts({ ttlMs: null, idleTimeoutMs: 1_800_000, onTimeout: "pause" });
  assert.deepEqual(
    [changed.expiresAt, changed.idleTimeoutMs, changed.onTimeout],
    [undefined, 1_800_000, "pause"],
  );
  assert.equal((await other.refresh()).idleTimeoutMs, 1_800_000);
  assert.equal((await other.ping()).ok, true);
  assert.deepEqual(await other.services(), []);
  await sh(other, "echo seen > /dev/console");
  await until("the console has it", async () => Buffer.concat(await all(other.logs())).includes("seen"));
  assert.equal((await other.pause()).state, "paused");
  assert.equal((await other.resume()).state, "running");
  await other.kill();
  const [third] = await forkd.fork("tiny", 1, { vary: [{ env: { A: "1" } }] });
  assert.ok(third instanceof Sandbox);
  await forkd.sandboxes.kill(third.id);
  assert.equal((await forkd.sandboxes.get(sandbox.id)).id, sandbox.id);
  const [fourth] = await forkd.fork("tiny");
  assert.deepEqual(await forkd.sandboxes.killAll({ tag: "tiny" }), [(fourth as Sandbox).id]);
});

test("commands are awaited, iterated, left running and attached to", async () => {
  const { commands } = sandbox;
  const { exitCode, stdout, stderr } = await commands.run("echo $SEED; echo oops >&2; exit 3");
  assert.deepEqual([exitCode, stdout, stderr], [3, "7\n", "oops\n"]);
  assert.equal((await commands.run(["echo", "$SEED"])).stdout, "$SEED\n");
  const types = (await all(commands.run("echo x"))).map(({ type }) => type);
  assert.deepEqual(types, ["started", "stdout", "exit"]);
  assert.equal(await commands.run("echo y").then((result) => result.stdout), "y\n");
  assert.equal(
    await commands.run("x", { nope: 1 } as object).catch((error: unknown) => (error as Error).name),
    "ForkdError",
  );
  await commands.run("true").finally(() => undefined);
  const handle = await commands.run(
    "read line; echo got $line; trap 'exit 5' TERM; echo ready; sleep 600 & wait",
    {
      background: true,
      stdinOpen: true,
    },
  );
  await handle.write("hello\n");
  await handle.closeStdin();
  assert.ok(
    (await commands.list()).some(({ execId, state }) => execId === handle.execId && state === "running"),
  );
  const seen: string[] = [];
  const attached = await commands.attach(handle);
  for await (const event of attached) {
    if (event.type === "stdout") seen.push(event.data);
    if (seen.join("").includes("ready")) break;
  }
  await handle.signal("SIGTERM");
  const ended = await handle.wait();
  assert.deepEqual([ended.exitCode, ended.stdout], [5, "got hello\nready\n"]);
  const endless = await commands.start("sleep 600");
  const reading = endless.wait();
  await endless.kill();
  assert.equal((await reading).signal, "SIGKILL");
  const unread = await commands.run("sleep 600", { background: true });
  await unread.detach();
  await unread.kill();
});

test("a terminal has a size, input and an exit code", async () => {
  let shown = "";
  const terminal = await sandbox.pty.create({
    rows: 30,
    cols: 100,
    shell: ["/bin/sh"],
    onData: (bytes) => void (shown += Buffer.from(bytes).toString()),
  });
  await terminal.resize(40, 120);
  await terminal.write("stty size; exit 4\n");
  assert.equal((await terminal.wait()).exitCode, 4);
  assert.match(shown, /40 120/);
});

test("code has a value, output, displays and contexts", async () => {
  const shown: unknown[] = [];
  const cell = await sandbox.runCode("print('hi'); {'snake_key': [1]}", {
    onResult: (each) => void shown.push(each),
  });
  assert.deepEqual([cell.stdout, cell.resultJson, cell.error], ["hi\n", { snake_key: [1] }, null]);
  assert.deepEqual([cell.results.length, shown.length, cell.results[0]?.isMainResult], [1, 1, true]);
  const events = await all(sandbox.eval("1 + 1"));
  assert.equal(events.at(-1)?.type, "result");
  const made = await sandbox.contexts.create("own", { cwd: "/tmp", env: { MODE: "test" } });
  assert.deepEqual([made.name, made.language], ["own", "python"]);
  const context = { context: "own" };
  assert.equal(
    (await sandbox.eval("import os; y = 1; (os.getcwd(), os.environ['MODE'])", context)).result,
    "('/tmp', 'test')",
  );
  await sandbox.contexts.restart("own");
  assert.match((await sandbox.eval("y", context)).error ?? "", /NameError/);
  assert.ok((await sandbox.contexts.list()).some(({ name }) => name === "own"));
  await sandbox.contexts.drop("own");
  const running = sandbox.eval("import time\nprint('on', flush=True)\nfor _ in range(600): time.sleep(0.1)", {
    timeoutMs: 0,
  });
  const iterator = running[Symbol.asyncIterator]();
  await iterator.next();
  assert.equal((await sandbox.evals.list()).length, 1);
  await sandbox.interrupt();
  for await (const event of iterator)
    if (event.type === "result") assert.equal(event.result.interrupted, true);
});

test("files are written, read, listed, watched and removed", async () => {
  const { files } = sandbox;
  await files.mkdir("/srv/a/b");
  await using watcher = await files.watch("/srv/a", { recursive: true });
  const entry = await files.write("/srv/a/b/f", "é\n", { mode: "0640" });
  assert.ok(entry.mtime instanceof Date && Math.abs(entry.mtime.getTime() - Date.now()) < 86_400_000);
  const first = await watcher.next();
  assert.ok(first.value !== undefined && "path" in first.value);
  assert.equal(await files.readText("/srv/a/b/f"), "é\n");
  assert.deepEqual(await files.read("/srv/a/b/f", { offset: 1, limit: 1 }), Uint8Array.of(0xa9));
  assert.equal(Buffer.concat(await all(files.readStream("/srv/a/b/f"))).toString(), "é\n");
  assert.deepEqual((await files.list("/srv/a", { depth: 2 })).map(({ path }) => path).sort(), [
    "/srv/a/b",
    "/srv/a/b/f",
  ]);
  await files.chmod("/srv/a/b/f", "0600");
  await files.move("/srv/a/b/f", "/srv/a/g");
  assert.equal((await files.stat("/srv/a/g")).mode, "0600");
  assert.deepEqual([await files.exists("/srv/a/g"), await files.exists("/srv/a/b/f")], [true, false]);
  await files.remove("/srv/a", { recursive: true });
  async function* chunks() {
    for (let index = 0; index < 3; index++) yield Buffer.from(`${index}\n`);
  }
  await files.write("/srv/stream", chunks());
  assert.equal(await files.readText("/srv/stream"), "0\n1\n2\n");
});

test("branches, children, rewinds and snapshots", async () => {
  await sandbox.eval("state = 'before'");
  const branch = await sandbox.branch({ tag: "kept", n: 1, labels: { of: "branch" } });
  const [child] = branch.children;
  assert.ok(child instanceof Sandbox && branch.pauseMs > 0 && branch.snapshotTag === "kept");
  assert.equal((await child.eval("state")).result, "'before'");
  await sandbox.eval("state = 'after'");
  const children = await sandbox.fork(2, { vary: [{ values: 1 }, { values: { deep_key: 2 } }] });
  const values = await Promise.all(
    children.map(async (each) => (each instanceof Sandbox ? sh(each, "cat /run/forkd/values.json") : "")),
  );
  assert.deepEqual(
    values.map((text) => JSON.parse(text) as unknown),
    [1, { deep_key: 2 }],
  );
  const unnamed = (children[0] as Sandbox).info.snapshotTag;
  for (const each of children) await (each as Sandbox).kill();
  assert.ok(
    (await forkd.snapshots.list().all()).every(({ tag }) => tag !== unnamed),
    "it is removed with its children",
  );
  await sandbox.rewind("kept");
  assert.equal((await sandbox.eval("state")).result, "'before'");
  await child.kill();
  const later = await sandbox.branch({ wait: false });
  assert.equal((await forkd.snapshots.ready(later.tag)).status, "ready");
  await forkd.snapshots.remove(later.tag);
  assert.ok((await forkd.snapshots.info("kept")).ancestors.includes("python"));
  const derived = await forkd.snapshots.derive({
    from: "tiny",
    tag: "derived",
    command: "echo made > /root/x",
  });
  assert.equal(derived.tag, "derived");
  assert.equal((await forkd.snapshots.compact("derived", "flat")).parentTag, undefined);
  const packed = await forkd.snapshots.pack("flat", { level: 1 });
  const copied = await forkd.snapshots.unpack(forkd.snapshots.archive("flat", { level: 1 }), {
    tag: "copied",
  });
  assert.equal(copied.chain[0]?.id, packed.id);
  await forkd.snapshots.remove("copied");
  await forkd.snapshots.remove("flat");
  await forkd.snapshots.remove("derived");
  const { snapshots } = await forkd.tree();
  assert.ok(snapshots.find(({ tag }) => tag === "kept")?.createdAt instanceof Date);
  assert.equal((await forkd.gc({ dryRun: true })).dryRun, true);
  assert.equal((await forkd.cleanup({ dryRun: true })).dryRun, true);
});

test("workspaces, keys, secrets, presets, ports, network and the daemon itself", async () => {
  const made = await forkd.workspaces.create("dev", "tiny", { labels: { w: "1" } });
  assert.deepEqual([made.name, made.sourceSnapshotTag], ["dev", "tiny"]);
  assert.equal((await forkd.workspaces.list({ label: "w=1" }).all()).length, 1);
  assert.equal((await forkd.workspaces.suspend("dev")).status, "suspended");
  assert.equal((await forkd.workspaces.resume("dev")).status, "running");
  assert.equal((await forkd.workspaces.sandbox("dev")).id, (await forkd.workspaces.get("dev")).id);
  await forkd.workspaces.remove("dev");

  const expiresAt = new Date(Math.ceil(Date.now() / 1000) * 1000 + 60_000);
  const { key, ...facts } = await forkd.keys.create("ci", { scope: "read", expiresAt });
  assert.deepEqual(facts.expiresAt, expiresAt);
  assert.equal((await forkd.keys.list()).length, 1);
  assert.match(key, /^\S{16,}$/);
  await forkd.keys.remove("ci");
  await forkd.secrets.set("API_KEY", { value: "s3cret", hosts: ["api.example.com"] });
  assert.deepEqual(
    (await forkd.secrets.list()).map(({ name }) => name),
    ["API_KEY"],
  );
  await forkd.secrets.remove("API_KEY");
  await forkd.network.presets.set("mine", ["allow api.example.com:443"]);
  assert.ok((await forkd.network.presets.list()).some(({ name }) => name === "mine"));
  await forkd.network.presets.remove("mine");

  const port = await sandbox.ports.open(8080, { ttlMs: 60_000 });
  assert.ok(port.expiresAt instanceof Date);
  assert.equal((await sandbox.ports.list()).length, 1);
  await rejectsWith(sandbox.ports.connect(8080), "port_refused");
  await sandbox.ports.close(8080);
  assert.equal((await sandbox.network.info()).mode, sandbox.info.network?.mode);
  await sandbox.network.set({ mode: "filtered" });
  await sandbox.network.allow(["api.example.com:443"]);
  await sandbox.network.deny("10.0.0.0/8");
  const { rules } = await sandbox.network.remove("allow api.example.com:443");
  assert.ok(rules.some(({ rule }) => rule === "deny 10.0.0.0/8"));
  await all(sandbox.network.log());

  const stats = await forkd.stats({ label: "job=1" });
  assert.ok((stats.sandboxes[0]?.uptimeMs ?? 0) > 0 && stats.sampledAt instanceof Date);
  assert.ok((await forkd.status()).uptimeMs > 0);
  assert.equal((await forkd.version()).pid, daemon.process.pid);
  assert.ok((await forkd.config()).settings.length > 10);
  assert.ok((await forkd.doctor()).checks.length > 5);
  assert.deepEqual(await forkd.call("health", {}), { ok: true });
  await using events = forkd.events({ types: ["port.*"] });
  const next = events.next();
  // The stream may not be open yet, so the port is opened until it is heard of.
  const { value } = await Promise.race([
    next,
    until("the event arrives", async () => {
      await sandbox.ports.open(9090);
      await sandbox.ports.close(9090);
      return false;
    }).then(() => next),
  ]);
  assert.ok(value?.type === "port.opened" || value?.type === "port.closed");
});

test("bad input gets the right code", async () => {
  const { url = "" } = JSON.parse(
    await (await import("node:fs/promises")).readFile(`${daemon.dataDir}/daemon.json`, "utf8"),
  ) as { url?: string };
  const stranger = new Forkd({ transport: nodeTransport({ url, token: "wrong-wrong-wrong-wrong" }) });
  await rejectsWith(Sandbox.create("tiny", { forkd: stranger }), "unauthenticated");
  await rejectsWith(Sandbox.create("absent", { forkd }), "snapshot_not_found");
  await rejectsWith(Sandbox.connect("sb-000000000000000000000000", { forkd }), "sandbox_not_found");
  await rejectsWith(forkd.create("tiny", { ttlSecs: 5 } as object), "invalid_request", /"ttlSecs"/);
  await rejectsWith(connect({ sokcet: "/x" } as object), "invalid_request", /"sokcet"/);
  const dead = await forkd.create("tiny");
  process.kill(dead.info.pid ?? 0, "SIGKILL");
  await until("it is dead", async () => (await dead.refresh()).state === "dead");
  await rejectsWith(dead.commands.run("true"), "sandbox_dead");
  await dead.kill();
  await rejectsWith(sandbox.files.read("/no/such/file"), "file_not_found");
  const late = await sandbox.commands.run("sleep 60", { timeoutMs: 300 });
  assert.deepEqual([late.timedOut, late.signal], [true, "SIGKILL"]);
  await rejectsWith(
    forkd.snapshots.derive({ from: "tiny", tag: "late", command: "sleep 600", timeoutMs: 2000 }),
    "deadline_exceeded",
  );
  await until(
    "its sandbox is gone",
    async () => (await forkd.sandboxes.list({ tag: "tiny" }).all()).length === 0,
  );
});

test("output that is huge, not UTF-8, or has odd line ends arrives whole; names that are not UTF-8 are shown", async () => {
  const huge = await sandbox.commands.run("head -c 20000000 /dev/zero | tr '\\0' a", { timeoutMs: 300_000 });
  assert.deepEqual([huge.truncated, huge.stdout.length], [true, 8 * 1024 * 1024]);
  let size = 0;
  for await (const event of sandbox.commands.run("head -c 20000000 /dev/zero", { timeoutMs: 300_000 }))
    if (event.type === "stdout") size += outputBytes(event).length;
  assert.equal(size, 20_000_000);
  const odd = await sandbox.commands.run(["printf", "\\377a\\342\\200\\250b\\r\\n"]);
  assert.equal(odd.stdout, "\ufffda\u2028b\r\n");
  const said = await sandbox.eval("print('a\\u2028b', end='')");
  assert.equal(said.stdout, "a\u2028b");
  await sandbox.commands.run("mkdir -p /srv/odd && touch \"$(printf '/srv/odd/\\377')\" /srv/odd/é", {
    check: true,
  });
  const names = (await sandbox.files.list("/srv/odd")).map(({ name }) => name).sort();
  assert.equal(names.length, 2);
  assert.ok(names.includes("é"));
});

test("a client that leaves in the middle of a stream ends its command, and no other", async () => {
  for await (const event of sandbox.commands.run("echo $$ > /run/left; yes", { timeoutMs: 0 }))
    if (event.type === "stdout") break;
  await until(
    "the command is gone",
    async () => (await sh(sandbox, "kill -0 $(cat /run/left) 2>/dev/null && echo on || echo off")) === "off",
  );
  assert.equal((await sandbox.commands.run("echo still")).stdout, "still\n");
});

test("a run and a handle lose nothing while the daemon is killed and started again", async () => {
  await withDaemons(["tiny"], async (start) => {
    const first = await start();
    const one = await Sandbox.create("tiny", { forkd: first.forkd });
    const script =
      "i=0; while [ $i -lt 400 ]; do echo line $i; i=$((i+1)); [ $((i % 20)) = 0 ] && sleep 0.1; done";
    const awaited = one.commands.run(script, { timeoutMs: 0 }).then((result) => result);
    const background = await one.commands.run(script, { background: true });
    const lines: string[] = [];
    let restarted: Promise<TestDaemon> | undefined;
    for await (const event of background) {
      if (event.type === "stdout") lines.push(event.data);
      restarted ??= endDaemon(first, "SIGKILL").then(() => start());
    }
    await restarted;
    const expected = Array.from({ length: 400 }, (_, index) => `line ${index}\n`).join("");
    assert.equal(lines.join(""), expected);
    const { stdout, exitCode } = await awaited;
    assert.deepEqual([stdout, exitCode], [expected, 0]);
  });
});

test("pool.get() reports a pool that is off, and pool.set() how to switch it on", async () => {
  assert.deepEqual(await daemon.forkd.pool.get(), { budgetMib: 0, usedMib: 0, snapshots: [] });
  await rejectsWith(daemon.forkd.pool.set("tiny", 1), "wrong_state");
});

test("hub.push(), hub.pull(), hub.sign() and hub.search() refuse what names no snapshot or no registry", async () => {
  const { hub } = daemon.forkd;
  await rejectsWith(hub.push("none", "registry.example/x"), "snapshot_not_found");
  await rejectsWith(hub.push("tiny", "x"), "invalid_request", /names no registry/);
  await rejectsWith(hub.pull("x", { tag: "y" }), "invalid_request", /names no registry/);
  const made = { signature: "AAAA", publicKey: "no key" };
  await rejectsWith(hub.sign("x", `sha256:${"0".repeat(64)}`, made), "invalid_request", /names no registry/);
  await rejectsWith(hub.search(), "invalid_request", /registry/);
});

test("trust.pin() makes a signature required, and snapshots.sbom() keeps the names of SPDX", async () => {
  const { trust, snapshots } = daemon.forkd;
  const { publicKey } = generateKeyPairSync("ed25519");
  const repository = "registry.example.com/python";
  const entry = await trust.pin(repository, String(publicKey.export({ format: "pem", type: "spki" })));
  assert.deepEqual([entry.policy, entry.isSet], ["require", false]);
  assert.equal((await trust.setPolicy(repository, "warn")).policy, "warn");
  const [key] = entry.keys;
  await trust.unpin(repository, key?.fingerprint ?? "");
  assert.deepEqual((await trust.list())[0]?.keys, []);
  await trust.remove(repository);
  assert.deepEqual(await trust.list(), []);
  assert.equal((await snapshots.sbom("tiny"))["spdxVersion"], "SPDX-2.3");
});

test("the tests above call every public method", async () => {
  await sandbox.refresh();
  assert.deepEqual(wireOf(sandbox), await forkd.call("getSandbox", { id: sandbox.id }));
  await forkd.shutdown({ sandboxes: "stop" });
  assert.ok(isForkdError(await forkd.status().catch((error: unknown) => error)));
  const missing = [...known].filter((name) => !called.has(name) && !elsewhere.includes(name));
  assert.deepEqual(missing, []);
});
