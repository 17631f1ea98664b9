/** The public classes against a plain HTTP server that speaks the wire: runs, lists, deadlines, proxies. */
import assert from "node:assert/strict";
import type http from "node:http";
import { test } from "node:test";
import { inspect } from "node:util";
import { CommandError, ForkError, Forkd, ForkdError, isForkdError, Sandbox, wireOf } from "../src/index.ts";
import { outputBytes } from "../src/output.ts";
import { readBody, startServer } from "./support.ts";

const id = "sb-aa0000000000000000000001";
const info = { id, snapshot_tag: "py", state: "running", created_at_unix: 7 };
const started = { type: "started", exec_id: 3, pid: 9 };
const exit = (exit_code: number) => ({ type: "exit", exit_code, timed_out: false, duration_ms: 1 });
const text = (type: string, offset: number, data: string) => ({ type, offset, data, encoding: "utf8" });
const bytes = (type: string, offset: number, data: string) => ({ type, offset, data, encoding: "base64" });
const lines = (...values: unknown[]) => values.map((value) => `${JSON.stringify(value)}\n`).join("");

type Asked = { key: string; body: string };
type Handler = (outgoing: http.ServerResponse, asked: Asked) => void;

async function open(handlers: Record<string, Handler>) {
  const asked: Asked[] = [];
  const server = await startServer((incoming, outgoing) => {
    void readBody(incoming).then((body) => {
      const [path] = (incoming.url ?? "").split("?");
      const request = { key: `${incoming.method} ${path}`, body };
      asked.push(request);
      const handler = handlers[request.key];
      if (handler) return handler(outgoing, request);
      if (request.key === `GET /v1/sandboxes/${id}`) return void outgoing.end(JSON.stringify(info));
      outgoing.writeHead(404).end(JSON.stringify({ error: "no", code: "not_found", details: {} }));
    });
  });
  const forkd = new Forkd({ transport: server.transports.unix });
  return { ...server, asked, forkd, sandbox: () => Sandbox.connect(id, { forkd }) };
}

const execPath = `POST /v1/sandboxes/${id}/exec`;
const evalPath = `POST /v1/sandboxes/${id}/eval`;
const bodyOf = (asked: readonly Asked[], key: string) =>
  asked.filter((each) => each.key === key).map(({ body }) => JSON.parse(body) as Record<string, unknown>);

test("commands.run() takes a line for the shell or a list, and is awaited, iterated or checked", async () => {
  await using daemon = await open({
    [execPath]: (outgoing) => outgoing.end(lines(started, text("stdout", 0, "out"), exit(2))),
  });
  const sandbox = await daemon.sandbox();
  const result = await sandbox.commands.run("ls -l | wc");
  assert.deepEqual([result.exitCode, result.stdout, result.execId], [2, "out", 3]);
  const types: string[] = [];
  for await (const event of sandbox.commands.run(["ls", "-l"], { timeoutMs: 0 })) types.push(event.type);
  assert.deepEqual(types, ["started", "stdout", "exit"]);
  await assert.rejects(sandbox.commands.run("x", { check: true }), (error) => {
    assert.ok(error instanceof CommandError && error instanceof ForkdError);
    assert.match(error.message, /Command "x" failed: exit code 2/);
    return true;
  });
  const both = sandbox.commands.run("x");
  await both;
  assert.throws(() => both[Symbol.asyncIterator](), TypeError);
  assert.equal(await sandbox.commands.run("x").then(({ stdout }) => stdout), "out");
  await assert.rejects(sandbox.commands.run("x", { timeout: 5 } as object), {
    code: "invalid_request",
    message: /"timeout" of exec/,
  });
  const [shell, list] = bodyOf(daemon.asked, execPath);
  assert.deepEqual(shell, { args: ["/bin/sh", "-c", "ls -l | wc"], stream: true, timeout_secs: 30 });
  assert.deepEqual(list, { args: ["ls", "-l"], stream: true, timeout_secs: 0 });
});

test("callbacks get text whose characters and lines are whole, also around U+2028 and bad bytes", async () => {
  const euro = Buffer.from("€");
  await using daemon = await open({
    [execPath]: (outgoing) => {
      const first = bytes("stdout", 0, euro.subarray(0, 1).toString("base64"));
      const rest = bytes("stdout", 1, euro.subarray(1).toString("base64"));
      outgoing.end(
        lines(
          started,
          first,
          rest,
          text("stdout", 3, "a\u2028b\u2029c\r\n"),
          bytes("stderr", 0, "/w=="),
          exit(0),
        ),
      );
    },
  });
  const sandbox = await daemon.sandbox();
  const heard = { out: [] as string[], err: [] as string[] };
  const result = await sandbox.commands.run("x", {
    onStdout: (each) => void heard.out.push(each),
    onStderr: async (each) => void heard.err.push(each),
  });
  assert.deepEqual(heard, { out: ["€", "a\u2028b\u2029c\r\n"], err: ["\ufffd"] });
  assert.equal(result.stdout, "€a\u2028b\u2029c\r\n");
  const seen: Uint8Array[] = [];
  for await (const event of sandbox.commands.run("x"))
    if (event.type === "stderr") seen.push(outputBytes(event));
  assert.deepEqual(seen, [Uint8Array.of(0xff)]);
});

test("leaving the loop over a run closes its request, which kills the command", async () => {
  let closed: Promise<void> | undefined;
  await using daemon = await open({
    [execPath]: (outgoing) => {
      closed = new Promise((resolve) => outgoing.once("close", resolve));
      outgoing.write(lines(started, text("stdout", 0, "x")));
    },
  });
  const sandbox = await daemon.sandbox();
  for await (const event of sandbox.commands.run("yes")) if (event.type === "stdout") break;
  await closed;
});

test("run() with background returns a handle that attaches when it is read, and detaches", async () => {
  const stream = `GET /v1/sandboxes/${id}/execs/3/stream`;
  let ended: Promise<void> | undefined;
  await using daemon = await open({
    [execPath]: (outgoing) => outgoing.end(JSON.stringify({ exec_id: 3, pid: 9 })),
    [stream]: (outgoing) => {
      ended = new Promise((resolve) => outgoing.once("close", resolve));
      outgoing.write(lines(text("stdout", 0, "x")));
    },
  });
  const sandbox = await daemon.sandbox();
  const handle = await sandbox.commands.run("serve", { background: true });
  assert.deepEqual([handle.execId, handle.pid, wireOf(handle)], [3, 9, { exec_id: 3, pid: 9 }]);
  assert.equal(daemon.asked.filter(({ key }) => key === stream).length, 0);
  const waiting = assert.rejects(handle.wait(), { code: "cancelled" });
  while (ended === undefined) await new Promise(setImmediate);
  await handle.detach();
  await waiting;
  await ended;
  assert.deepEqual(bodyOf(daemon.asked, execPath), [{ args: ["/bin/sh", "-c", "serve"], background: true }]);
  const checked = sandbox.commands.run("x", { background: true, check: true } as never);
  await assert.rejects(checked, { code: "invalid_request", message: /"check"/ });
});

test("eval() fills in output and displays, and reports each as it arrives", async () => {
  const display = { is_main_result: true, text: "2", data: { snake_key: [1] } };
  const result = { result: "2", result_json: { a_b: 2 }, results: [], stdout: "", stderr: "", exit_code: 0 };
  await using daemon = await open({
    [evalPath]: (outgoing) =>
      outgoing.end(lines(text("stdout", 0, "hi"), { type: "display", display }, { type: "result", result })),
  });
  const sandbox = await daemon.sandbox();
  const shown: unknown[] = [];
  const value = await sandbox.runCode("1+1", { timeoutMs: 5000, onResult: (each) => void shown.push(each) });
  assert.deepEqual([value.stdout, value.resultJson, value.exitCode], ["hi", { a_b: 2 }, 0]);
  assert.deepEqual(value.results, [{ isMainResult: true, text: "2", data: { snake_key: [1] } }]);
  assert.deepEqual(shown, value.results);
  assert.deepEqual(wireOf(value), { ...result, results: [display], stdout: "hi" });
  const types: string[] = [];
  for await (const event of sandbox.eval("1+1")) types.push(event.type);
  assert.deepEqual(types, ["stdout", "display", "result"]);
  assert.deepEqual(bodyOf(daemon.asked, evalPath)[0], { code: "1+1", stream: true, timeout_secs: 5 });
});

test("timeoutMs ends a call, a stream and a list with deadline_exceeded; abort with cancelled", async () => {
  await using daemon = await open({
    "GET /v1/status": () => undefined,
    "GET /v1/snapshots": () => undefined,
    [`GET /v1/sandboxes/${id}/logs`]: (outgoing) => void outgoing.write("x"),
    "GET /v1/events": (outgoing) => outgoing.flushHeaders(),
  });
  const { forkd } = daemon;
  const late = { code: "deadline_exceeded", details: { timeout_ms: 20 } };
  await assert.rejects(forkd.status({ timeoutMs: 20 }), late);
  await assert.rejects(forkd.snapshots.list({}, { timeoutMs: 20 }).all(), late);
  const sandbox = await daemon.sandbox();
  const read = async (stream: AsyncIterable<unknown>) => {
    for await (const _ of stream);
  };
  await assert.rejects(read(sandbox.logs({ follow: true, timeoutMs: 20 })), late);
  await assert.rejects(read(forkd.events({ timeoutMs: 20 })), late);
  await assert.rejects(forkd.status({ signal: AbortSignal.abort() }), { code: "cancelled" });
  await assert.rejects(forkd.status({ timeoutMs: -1 }), { code: "invalid_request", message: /timeoutMs/ });
  // Longer than a timer can be: it must not fire at once.
  const stop = new AbortController();
  const waiting = forkd.status({ timeoutMs: 2 ** 40, signal: stop.signal });
  setTimeout(() => stop.abort(), 20);
  await assert.rejects(waiting, { code: "cancelled" });
});

test("a stream that waits is closed by `await using` and by return()", async () => {
  let closed: Promise<void> | undefined;
  await using daemon = await open({
    "GET /v1/events": (outgoing) => {
      closed = new Promise((resolve) => outgoing.once("close", resolve));
      outgoing.flushHeaders();
    },
  });
  const events = daemon.forkd.events();
  const next = events.next();
  while (closed === undefined) await new Promise(setImmediate);
  await events[Symbol.asyncDispose]();
  assert.deepEqual(await next, { done: true, value: undefined });
  await closed;
});

test("a paginator reads page by page, once, and stops at its limit", async () => {
  let reads = 0;
  await using daemon = await open({
    "GET /v1/sandboxes": (outgoing) => {
      reads += 1;
      if (reads < 3) outgoing.setHeader("x-next-cursor", `c${reads}`);
      outgoing.end(JSON.stringify([{ ...info, id: `${id.slice(0, -1)}${reads}` }]));
    },
  });
  const pages = Sandbox.list({ label: ["a", "b=1"] }, { forkd: daemon.forkd });
  const [first, second] = await Promise.all([pages.page(), pages.page()]);
  assert.deepEqual([first[0]?.id.at(-1), second[0]?.id.at(-1), pages.hasNext], ["1", "2", true]);
  assert.deepEqual(first[0]?.info.createdAt, new Date(7000));
  assert.equal((await pages.all()).length, 1);
  assert.deepEqual([await pages.page(), pages.hasNext, reads], [[], false, 3]);
  const wrong = daemon.forkd.sandboxes.list({ lable: "x" } as object);
  await assert.rejects(wrong.all(), { code: "invalid_request", message: /"lable" of listSandboxes/ });
  await assert.rejects(daemon.forkd.sandboxes.list({ cursor: "c1" } as object).all(), {
    message: /"cursor"/,
  });
});

test("sandbox.fork() removes the snapshot behind its children when the last one is gone", async () => {
  const child = (index: number) => ({ ...info, id: `sb-bb000000000000000000000${index}`, index });
  const failure = { index: 2, error: "no room", code: "capacity_exhausted", details: {} };
  const gone = { error: "gone", code: "sandbox_not_found", details: {} };
  let children: unknown[] = [child(0), child(1), failure];
  const removed: string[] = [];
  await using daemon = await open({
    [`POST /v1/sandboxes/${id}/branch`]: (outgoing) =>
      outgoing.writeHead(201).end(JSON.stringify({ tag: "auto", children })),
    "DELETE /v1/sandboxes/sb-bb0000000000000000000000": (outgoing) => outgoing.writeHead(204).end(),
    "DELETE /v1/sandboxes/sb-bb0000000000000000000001": (outgoing) =>
      outgoing.writeHead(404).end(JSON.stringify(gone)),
    "DELETE /v1/snapshots/auto": (outgoing) => {
      removed.push("auto");
      outgoing.end(JSON.stringify({ removed: [{ tag: "auto" }], freed_bytes: 1, dry_run: false }));
    },
  });
  const sandbox = await daemon.sandbox();
  const [a, b, c] = await sandbox.fork(3, { vary: [{ values: 1 }] });
  assert.ok(a instanceof Sandbox && b instanceof Sandbox && c instanceof ForkError);
  assert.deepEqual(bodyOf(daemon.asked, `POST /v1/sandboxes/${id}/branch`), [
    { n: 3, vary: [{ values: 1 }] },
  ]);
  await a.kill();
  assert.deepEqual(removed, []);
  await b[Symbol.asyncDispose]();
  assert.deepEqual(removed, ["auto"]);
  children = [{ ...failure, index: 0 }];
  await assert.rejects(sandbox.fork(1), { code: "capacity_exhausted", index: 0 });
  assert.deepEqual(removed, ["auto", "auto"]);
  await assert.rejects(sandbox.fork(0), { code: "invalid_request" });
  await assert.rejects(sandbox.fork(2, { tag: "x" } as object), { message: /"tag"/ });
  await assert.rejects(daemon.forkd.fork("py", { count: 3 } as never), {
    code: "invalid_request",
    message: /"n" must be a whole number.*count/,
  });
});

test("Sandbox.create() without a client says what to do where no daemon can be found", async () => {
  // The root entry registers no way to find one; the entry for Node does, in another process.
  const { execFile } = await import("node:child_process");
  const { promisify } = await import("node:util");
  const entry = new URL("../src/index.js", import.meta.url).href;
  const program = `import { Sandbox, remedyText } from ${JSON.stringify(entry)};
    Sandbox.create("x").catch((error) => console.log(error.name, error.code, remedyText(error)));`;
  const run = promisify(execFile)(process.execPath, ["--input-type=module", "-e", program]);
  assert.match((await run).stdout, /^ForkdError unsupported Give a client as the option `forkd`/);
});

test("proxies that answer for the daemon, cut a stream or send it in pieces get the right error", async () => {
  let answer: Handler = (outgoing) => outgoing.writeHead(502).end("<html>Bad Gateway</html>");
  await using daemon = await open({
    "GET /v1/status": (outgoing, asked) => answer(outgoing, asked),
    [evalPath]: (outgoing, asked) => answer(outgoing, asked),
  });
  await assert.rejects(daemon.forkd.status(), (error) => {
    assert.ok(isForkdError(error, "internal"));
    assert.deepEqual([error.details["status"], error.details["body"]], [502, "<html>Bad Gateway</html>"]);
    return true;
  });
  answer = (outgoing) => outgoing.end("<html>Sign in</html>\n");
  await assert.rejects(daemon.forkd.status(), { code: "internal", message: /not JSON/ });
  const sandbox = await daemon.sandbox();
  await assert.rejects(sandbox.eval("1"), { code: "internal", message: /not JSON/ });
  answer = (outgoing) => void outgoing.write(lines(text("stdout", 0, "x")), () => outgoing.destroy());
  await assert.rejects(sandbox.eval("1"), { code: "daemon_unreachable" });
  answer = (outgoing) => outgoing.end(lines(text("stdout", 0, "x")));
  await assert.rejects(sandbox.eval("1"), { code: "daemon_unreachable", message: /without a result/ });
  // A proxy that buffers sends everything at once, or byte by byte.
  const whole = Buffer.from(lines(text("stdout", 0, "\u2028é"), { type: "result", result: { result: "1" } }));
  const sendSlowly = async (outgoing: http.ServerResponse) => {
    for (const byte of whole) {
      outgoing.write(Buffer.of(byte));
      await new Promise(setImmediate);
    }
    outgoing.end();
  };
  answer = (outgoing) => void sendSlowly(outgoing);
  assert.equal((await sandbox.eval("1")).stdout, "\u2028é");
});

test("isForkdError() narrows by code, and errors are known by one name", async () => {
  const error: unknown = new ForkdError("sandbox_dead", "gone");
  assert.ok(isForkdError(error) && isForkdError(error, "sandbox_dead"));
  assert.ok(!isForkdError(error, "internal") && !isForkdError(new Error("x")) && !isForkdError(undefined));
  assert.equal(String(error), "ForkdError: gone");
});

test("a run that no code awaits does not end the process when it fails", async () => {
  await using server = await open({});
  const sandbox = await server.sandbox();
  const unhandled: unknown[] = [];
  const note = (error: unknown) => unhandled.push(error);
  process.on("unhandledRejection", note);
  try {
    void sandbox.commands.run("true");
    void sandbox.eval("1");
    // The same failure again, this time seen, and one turn for the report of the others.
    await assert.rejects(sandbox.commands.run("true"), { code: "not_found" });
    await assert.rejects(sandbox.eval("1"), { code: "not_found" });
    await new Promise((resolve) => setImmediate(resolve));
  } finally {
    process.off("unhandledRejection", note);
  }
  assert.deepEqual(unhandled, []);
});

test("values of a wrong type are refused before a request is sent", async () => {
  await using server = await open({});
  const sandbox = await server.sandbox();
  const before = server.asked.length;
  for (const wrong of [undefined, null, 3, {}] as unknown as string[]) {
    await assert.rejects(
      sandbox.files.write("/srv/a", wrong),
      (error) => isForkdError(error, "invalid_request") && /content of "[/]srv[/]a"/.test(error.message),
    );
    await assert.rejects(
      (async () => sandbox.commands.run(wrong))(),
      (error) => isForkdError(error, "invalid_request") && error.message.startsWith("The command must be"),
    );
  }
  await assert.rejects(
    sandbox.setTimeouts({ ttlMs: -3 }),
    (error) => isForkdError(error, "invalid_request") && error.details["option"] === "ttlMs",
  );
  assert.equal(server.asked.length, before);
});

test("an option that two sources know is suggested once", async () => {
  await using server = await open({});
  const sandbox = await server.sandbox();
  await assert.rejects(
    (async () => sandbox.commands.run("true", { timeout: 5 } as object))(),
    (error) => isForkdError(error) && String(error.details["similar"]) === "timeoutMs",
  );
});

test("a sandbox is shown with its id", async () => {
  await using server = await open({});
  assert.equal(inspect(await server.sandbox()), `Sandbox ${id} of py (running)`);
});
