/** Commands: streams, input, limits, terminals, background commands, and hostile commands. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import type { CommandEvent, Sandbox } from "@forkd/sdk";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { until, rejectsWith } from "@forkd/test-support";
import { rawRequest, type RawAnswer } from "../support/raw-http.ts";
import { residentBytes, sh } from "../support/sandboxes.ts";

let daemon: TestDaemon;
let sandbox: Sandbox;
before(async () => {
  daemon = await startDaemon({ snapshots: ["tiny"] });
  sandbox = await daemon.forkd.create("tiny");
});
after(() => daemon[Symbol.asyncDispose]());

test("run() returns output, exit code and signal", async () => {
  const result = await sandbox.commands.run(["sh", "-c", "echo out; echo err >&2; exit 7"]);
  assert.deepEqual(
    [result.stdout, result.stderr, result.exitCode, result.timedOut],
    ["out\n", "err\n", 7, false],
  );
  const killed = await sandbox.commands.run(["sh", "-c", "kill -TERM $$"]);
  assert.deepEqual([killed.exitCode, killed.signal], [143, "SIGTERM"]);
});

test("run() honours stdin, env, cwd and user", async () => {
  assert.equal((await sandbox.commands.run(["cat"], { stdin: "hello\n" })).stdout, "hello\n");
  assert.equal(
    (await sandbox.commands.run(["sh", "-c", "echo $A; pwd"], { env: { A: "b c" }, cwd: "/etc" })).stdout,
    "b c\n/etc\n",
  );
  assert.match((await sandbox.commands.run(["id"], { user: "user" })).stdout, /uid=1000\(user\) gid=1000/);
  assert.match((await sandbox.commands.run(["id"], { user: "12:34" })).stdout, /uid=12 gid=34/);
});

test("run() reports why a command cannot start", async () => {
  await rejectsWith(sandbox.commands.run(["no-such-program"]), "guest_refused", /no-such-program/);
  await rejectsWith(
    sandbox.commands.run(["true"], { cwd: "/nowhere" }),
    "guest_refused",
    /nowhere|cwd|directory/i,
  );
  await rejectsWith(sandbox.commands.run(["true"], { user: "nobody-here" }), "guest_refused", /user/i);
  await rejectsWith(sandbox.commands.run([]), "invalid_request", /args/);
  await rejectsWith(sandbox.commands.run(["a\0b"]), "invalid_request", /args/);
});

test("run() kills a command and its children at the timeout", async () => {
  for (const timeoutMs of [1000, 5000, 60_000]) {
    const args = ["sh", "-c", "echo begun; sleep 1000 & sleep 1000"];
    const result = await sandbox.commands.run(args, { timeoutMs });
    assert.deepEqual([result.timedOut, result.signal], [true, "SIGKILL"]);
    // A slow guest may not have printed yet after a second.
    if (result.stdout === "" && timeoutMs < 60_000) continue;
    assert.equal(result.stdout, "begun\n");
    break;
  }
  await until(
    "its children are gone",
    async () => (await sh(sandbox, "ps | grep -c '[s]leep 1000' || true")) === "0",
  );
});

test("an aborted run() kills the command in the guest", async () => {
  const abort = new AbortController();
  const pending = sandbox.commands.run(["sleep", "777"], { timeoutMs: 0, signal: abort.signal });
  await until("it runs", async () => (await sh(sandbox, "ps | grep -c '[s]leep 777' || true")) === "1");
  abort.abort();
  await rejectsWith(pending, "cancelled");
  await until("it is gone", async () => (await sh(sandbox, "ps | grep -c '[s]leep 777' || true")) === "0");
});

test("start() streams output at once and accepts input and signals", async () => {
  const handle = await sandbox.commands.start(
    ["sh", "-c", "while read line; do echo got $line; done; echo end"],
    { stdinOpen: true },
  );
  const seen: CommandEvent[] = [];
  for await (const event of handle) {
    seen.push(event);
    if (event.type === "started") await handle.write("one\n");
    if (event.type === "stdout" && event.data.includes("one")) {
      await handle.write("two\n");
      await handle.closeStdin();
    }
  }
  const text = seen.map((event) => (event.type === "stdout" ? event.data : "")).join("");
  assert.equal(text, "got one\ngot two\nend\n");
  assert.deepEqual(seen.at(-1)?.type, "exit");
  const sleeper = await sandbox.commands.start(["sleep", "500"]);
  await sleeper.signal("SIGINT");
  assert.equal((await sleeper.wait()).signal, "SIGINT");
});

test("a PTY is a terminal whose size can change", async () => {
  const handle = await sandbox.commands.start(
    ["sh", "-c", "stty size; read x; stty size; test -t 0 && echo tty"],
    { pty: { rows: 30, cols: 100 }, stdinOpen: true },
  );
  let text = "";
  let resized = false;
  for await (const event of handle) {
    if (event.type !== "stdout") continue;
    text += event.data;
    if (resized || !text.includes("30 100")) continue;
    resized = true;
    await handle.resize(50, 120);
    await handle.write("\n");
  }
  assert.match(text, /30 100[\s\S]*50 120[\s\S]*tty/);
});

test("a background command outlives its caller and can be followed from an offset", async () => {
  const { execId: id } = await sandbox.commands.run("echo 0123456789; read x; echo after $x", {
    background: true,
    stdinOpen: true,
  });
  await until(
    "it has written",
    async () => (await sandbox.commands.list()).find((each) => each.execId === id)?.stdoutBytes === 11,
  );
  const handle = await sandbox.commands.attach(id, { stdoutOffset: 5 });
  let text = "";
  for await (const event of handle) {
    if (event.type !== "stdout") continue;
    if (text === "") assert.equal(event.offset, 5);
    text += event.data;
    if (text === "56789\n") await handle.write("input\n");
  }
  assert.equal(text, "56789\nafter input\n");
  await rejectsWith(sandbox.commands.attach(999_999), "exec_not_found");
});

test("several clients follow one command, each from its own offset, also after its exit", async () => {
  const path = `/v1/sandboxes/${sandbox.id}/exec`;
  const args = [
    "sh",
    "-c",
    "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; read x; echo got $x",
  ];
  using owner = await rawRequest(daemon.socket, {
    path,
    body: { args, stdin_open: true, stream: true, background: true },
  });
  const first = await owner.next();
  assert.equal(first?.["type"], "started");
  const id = String(first?.["exec_id"]);
  const follow = (offset: number) =>
    rawRequest(daemon.socket, { path: `${path}s/${id}/stream?stdout_offset=${offset}` });
  const textOf = async (answer: RawAnswer) => {
    const events = await answer.rest();
    assert.equal(events.at(-1)?.["type"], "exit", JSON.stringify(events.at(-1)));
    return events.map(({ data }) => (typeof data === "string" ? data : "")).join("");
  };
  using one = await follow(0);
  using two = await follow(14);
  {
    using _gone = await follow(0);
  }
  const texts = [owner, one, two].map(textOf);
  await rawRequest(daemon.socket, { path: `${path}s/${id}/input`, body: { data: "it\n", eof: true } });
  const whole = `${Array.from({ length: 2000 }, (_, i) => `line ${i}\n`).join("")}got it\n`;
  assert.deepEqual(await Promise.all(texts), [whole, whole, whole.slice(14)]);
  using late = await follow(0);
  assert.equal(await textOf(late), whole, "the guest keeps the output of a finished command");
});

test("a command in the background outlives its stream; input after its end is refused", async () => {
  const path = `/v1/sandboxes/${sandbox.id}/exec`;
  let id: unknown;
  {
    const body = { args: ["sh", "-c", "cat; sleep 1000"], stdin_open: true, stream: true, background: true };
    using owner = await rawRequest(daemon.socket, { path, body });
    id = (await owner.next())?.["exec_id"];
  }
  const call = async (route: string, body: unknown) => {
    using answer = await rawRequest(daemon.socket, { path: `${path}s/${String(id)}/${route}`, body });
    return [answer.status, (await answer.next())?.["code"]];
  };
  assert.deepEqual(await call("input", { data: "first" }), [204, undefined]);
  assert.deepEqual(await call("input", { eof: true }), [204, undefined]);
  assert.deepEqual(await call("input", { data: "late" }), [409, "wrong_state"]);
  assert.deepEqual(await call("input", { eof: true }), [204, undefined], "closed already");
  using followed = await rawRequest(daemon.socket, { path: `${path}s/${String(id)}/stream` });
  const output = await followed.next();
  assert.deepEqual([output?.["type"], output?.["data"]], ["stdout", "first"]);
  assert.deepEqual(await call("input", { data: "late" }), [409, "wrong_state"]);
  assert.deepEqual(await call("signal", { signal: "SIGTERM" }), [204, undefined]);
  assert.equal((await followed.rest()).at(-1)?.["signal"], "SIGTERM");
  assert.deepEqual(await call("signal", { signal: "SIGTERM" }), [404, "exec_not_found"]);
  id = (await sandbox.commands.run(["sleep", "1000"], { background: true })).execId;
  assert.deepEqual(await call("input", { data: "never open" }), [409, "wrong_state"]);
  await call("signal", { signal: "SIGKILL" });
});

test("long output is truncated when buffered and throttled when streamed", async () => {
  const result = await sandbox.commands.run(["sh", "-c", "head -c 100000000 /dev/zero; echo done >&2"], {
    timeoutMs: 600_000,
  });
  assert.equal(result.truncated, true);
  assert.equal(result.stdout.length, 8 * 1024 * 1024);
  assert.deepEqual([result.stderr, result.exitCode], ["done\n", 0]);
  const handle = await sandbox.commands.start(["yes"]);
  let bytes = 0;
  for await (const event of handle) {
    if (event.type === "stdout") bytes += event.data.length;
    if (bytes > 4_000_000) break;
  }
  await until(
    "the command exits after its reader stops",
    async () => (await sh(sandbox, "ps | grep -c '[y]es' || true")) === "0",
  );
  const rss = residentBytes(daemon.process.pid) / 1024 ** 2;
  assert.ok(rss < 400, `daemon RSS ${rss} MiB`);
});

test("500 commands, 20 at a time, leave no process in the guest", async () => {
  const lanes = Array.from({ length: 20 }, async (_, lane) => {
    for (let i = 0; i < 25; i++) {
      const { stdout } = await sandbox.commands.run(["echo", `${lane}.${i}`], { timeoutMs: 600_000 });
      assert.equal(stdout, `${lane}.${i}\n`);
    }
  });
  await Promise.all(lanes);
  assert.deepEqual(
    (await sandbox.commands.list()).filter(({ state }) => state === "running"),
    [],
  );
  assert.equal(await sh(sandbox, "ps | grep -c ' [Z] ' || true"), "0");
});

test("logs() returns the console", async () => {
  await sh(sandbox, "echo console-marker > /dev/console");
  // The guest's kernel writes to the console with a delay.
  await until("the console has the marker", async () => {
    let text = "";
    for await (const bytes of sandbox.logs()) text += Buffer.from(bytes).toString();
    return text.includes("console-marker");
  });
});
