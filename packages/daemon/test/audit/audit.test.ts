import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { copyFile, mkdir, readFile, rename, rm, stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { createLogger, nullLogger, Scope } from "@forkd/base";
import type { SandboxInfo } from "@forkd/contract";
import { AuditLog } from "../../src/audit/audit-log.ts";
import { open, post, readLines, sandboxId, send, startServer, temporaryDir, token } from "../support.ts";

const run = promisify(execFile);
const bearer = { authorization: `Bearer ${token}` };
const other = "sb-ffffffffffffffffffffffff";
const sha256 = (text: string) => createHash("sha256").update(text).digest("hex");
const execPath = `/v1/sandboxes/${sandboxId}/exec`;
const result = {
  exec_id: 1,
  stdout: "",
  stderr: "",
  exit_code: 0,
  timed_out: false,
  truncated: false,
  duration_ms: 1,
};
/** Only what the audit looks at. */
const made = (id: string) => ({ id, snapshot_tag: "py" }) as unknown as SandboxInfo;

test("a line says who did what to which objects, with which outcome", async () => {
  await using server = await startServer({
    health: () => ({ ok: true }),
    fork: async () => [made(sandboxId), { index: 1, error: "no", code: "engine_failed", details: {} }],
    branch: async () => ({ tag: "b1", children: [made(other)] }) as never,
    killAll: async () => ({ killed: [sandboxId, other] }),
    createWorkspace: async () => ({ id: sandboxId, name: "dev" }) as never,
  });
  await post(
    server.url,
    "/v1/sandboxes",
    { snapshot_tag: "py", n: 2 },
    {
      ...bearer,
      "x-request-id": "r1",
      "user-agent": "test/1",
    },
  );
  await post(server.socket, `/v1/sandboxes/${sandboxId}/branch`, { n: 1 });
  await send(server.socket, "/v1/sandboxes?tag=py", { method: "DELETE" });
  await post(server.socket, "/v1/workspaces", { name: "dev", snapshot_tag: "py" });
  await post(server.socket, "/v1/keys", { name: "ci" });
  await send(server.url, "/v1/status");
  await send(server.url, "/healthz");
  await send(server.socket, "/v1/nothing?verify=1");
  const lines = await server.audited();
  const [first, ...rest] = lines;
  const { time, duration_ms: duration, ...facts } = first ?? {};
  assert.match(String(time), /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  assert.equal(typeof duration, "number");
  assert.deepEqual(facts, {
    event: "request",
    request_id: "r1",
    principal: "token",
    scope: "admin",
    via: "tcp",
    peer: "127.0.0.1",
    method: "POST",
    route: "fork",
    path: "/v1/sandboxes",
    objects: { sandboxes: [sandboxId], snapshots: ["py"] },
    status: 201,
    user_agent: "test/1",
  });
  const brief = rest.map(({ principal, via, route, objects, status, code }) => ({
    principal,
    via,
    route,
    objects,
    status,
    code,
  }));
  const local = { principal: "local", via: "unix", code: undefined };
  assert.deepEqual(brief, [
    { ...local, route: "branch", objects: { sandboxes: [sandboxId, other], snapshots: ["b1"] }, status: 201 },
    {
      ...local,
      route: "killAll",
      objects: { sandboxes: [sandboxId, other], snapshots: ["py"] },
      status: 200,
    },
    {
      ...local,
      route: "createWorkspace",
      objects: { sandboxes: [sandboxId], snapshots: ["py"], workspaces: ["dev"] },
      status: 201,
    },
    { ...local, route: "createKey", objects: { keys: ["ci"] }, status: 201 },
    {
      principal: null,
      via: "tcp",
      route: "status",
      objects: undefined,
      status: 401,
      code: "unauthenticated",
    },
    { ...local, route: "none", objects: undefined, status: 404, code: "not_found" },
  ]);
  const text = await readFile(server.auditFile, "utf8");
  assert.ok(!text.includes("fk_") && !text.includes(token), "no key and no token");
  assert.equal((await stat(server.auditFile)).mode & 0o777, 0o600);
});

test("commands and code are written as digests, in full only on request", async () => {
  for (const commands of [false, true]) {
    await using server = await startServer(
      { exec: async () => result, eval: async () => ({}) as never },
      nullLogger(),
      { audit: { commands } },
    );
    await post(server.socket, execPath, { args: ["sh", "-c", "echo SECRET"] });
    await post(server.socket, `/v1/sandboxes/${sandboxId}/eval`, { code: "SECRET" });
    const [exec, evaluation] = await server.audited();
    assert.equal(exec?.["argv_sha256"], sha256("sh\0-c\0echo SECRET"));
    assert.equal(evaluation?.["code_sha256"], sha256("SECRET"));
    assert.deepEqual(exec?.["argv"], commands ? ["sh", "-c", "echo SECRET"] : undefined);
    assert.equal((await readFile(server.auditFile, "utf8")).includes("SECRET"), commands);
  }
});

test("audit_reads false leaves out reads, but not refused ones", async () => {
  await using server = await startServer({ listSnapshots: async () => [] }, nullLogger(), {
    audit: { reads: false },
  });
  await send(server.socket, "/v1/snapshots");
  await send(server.url, "/v1/snapshots");
  await post(server.socket, "/v1/keys", { name: "a" });
  assert.deepEqual(
    (await server.audited()).map(({ route, status }) => [route, status]),
    [
      ["listSnapshots", 401],
      ["createKey", 201],
    ],
  );
});

test("unknown clients can neither break a line nor make it long", async () => {
  await using server = await startServer({});
  await send(server.url, `/v1/${"x".repeat(5000)}`, {
    headers: { "user-agent": `"}\\u2028 ${"u".repeat(5000)}` },
  });
  const [line] = await server.audited();
  assert.equal(String(line?.["path"]).length, 1024);
  assert.equal(String(line?.["user_agent"]).length, 256);
});

test("a request that the client aborted is written with its outcome", async () => {
  await using server = await startServer({
    doctor: (_, { signal }) =>
      new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason as Error))),
  });
  const request = open(server.socket, "/v1/doctor");
  request.on("error", () => undefined);
  request.end();
  await once(request, "socket");
  await new Promise<void>((resolve) => request.once("finish", resolve));
  // Answered only after the request above was accepted.
  await send(server.socket, "/nothing");
  request.destroy();
  for (;;) {
    const found = (await server.audited()).find(({ route }) => route === "doctor");
    if (found) {
      assert.equal(found["status"], 499);
      break;
    }
    await new Promise((resolve) => setImmediate(resolve));
  }
});

test("refusals by a rate limit are counted, not each written", async () => {
  await using server = await startServer({ listSnapshots: async () => [] }, nullLogger(), {
    gate: { rate: { perSecond: 0.001, burst: 1 } },
  });
  for (let at = 0; at < 30; at++) await send(server.url, "/v1/snapshots", { headers: bearer });
  await send(server.socket, "/v1/snapshots");
  const lines = await server.audited();
  const refused = lines.filter(({ status }) => status === 429).length;
  const counted = lines
    .filter(({ event }) => event === "audit.suppressed")
    .reduce((sum, { count }) => sum + Number(count), 0);
  assert.equal(refused + counted, 29);
  assert.ok(refused >= 1 && counted >= 1, `${refused} ${counted}`);
  assert.equal(lines[1]?.["code"], "rate_limited");
});

async function openLog(scope: Scope, path: string, options: { maxLines?: number; retryMs?: number } = {}) {
  return scope.use(await AuditLog.open({ path, log: nullLogger(), ...options }));
}
const numbers = async (file: string) => (await readLines(file)).map(({ n, event }) => n ?? event);

test("a file that was moved away is replaced, with or without reopen(); a truncated one is filled again", async () => {
  await using scope = new Scope();
  const file = join(await temporaryDir(scope), "audit.jsonl");
  const audit = await openLog(scope, file);
  const write = async (n: number) => {
    audit.write({ n });
    await audit.settled();
  };
  await write(1);
  await rename(file, `${file}.1`);
  audit.reopen();
  await write(2);
  await rename(file, `${file}.2`);
  await write(3);
  await rm(file);
  await write(4);
  await copyFile(file, `${file}.4`);
  await truncate(file);
  await write(5);
  assert.deepEqual(
    [await numbers(`${file}.1`), await numbers(`${file}.2`), await numbers(`${file}.4`), await numbers(file)],
    [[1], [2], [4], [5]],
  );
});

test("while writing fails, lines wait, then are counted; nothing blocks, and a line reports the loss", async () => {
  await using scope = new Scope();
  const dir = join(await temporaryDir(scope), "logs");
  await mkdir(dir);
  const file = join(dir, "audit.jsonl");
  const audit = await openLog(scope, file, { maxLines: 3, retryMs: 3_600_000 });
  await rename(dir, `${dir}-away`);
  for (let n = 1; n <= 5; n++) audit.write({ n });
  await audit.settled();
  for (let n = 6; n <= 10; n++) audit.write({ n });
  await audit.settled();
  const { ok, dropped, error } = audit.status();
  assert.deepEqual([ok, dropped], [false, 7]);
  assert.match(error ?? "", /ENOENT/);
  await mkdir(dir);
  audit.reopen();
  await audit.settled();
  assert.deepEqual(await numbers(file), [1, 2, 3, "audit.dropped"]);
  assert.equal((await readLines(file))[3]?.["count"], 7);
  assert.deepEqual(audit.status(), { ok: true, dropped: 7 });
});

test("on a full disk requests are answered, whole lines stay, and writing resumes automatically", async (t) => {
  if (process.getuid?.() !== 0) return t.skip("needs root to mount a small file system");
  await using scope = new Scope();
  const dir = join(await temporaryDir(scope), "small");
  await mkdir(dir);
  try {
    await run("mount", ["-t", "tmpfs", "-o", "size=64k", "tmpfs", dir]);
  } catch (error) {
    return t.skip(`cannot mount: ${String(error)}`);
  }
  scope.defer(async () => void (await run("umount", ["-l", dir])));
  const file = join(dir, "audit.jsonl");
  const audit = await openLog(scope, file, { retryMs: 20 });
  const filler = "x".repeat(1000);
  for (let n = 1; n <= 100; n++) {
    audit.write({ n, filler });
    await audit.settled();
  }
  assert.equal(audit.status().ok, false);
  assert.match(audit.status().error ?? "", /ENOSPC/);
  const written = await numbers(file);
  assert.ok(written.length > 10 && written.length < 100);
  assert.deepEqual(
    written,
    written.map((_, index) => index + 1),
  );
  await rename(file, `${dir}-moved`).catch(async () => {
    // Across file systems a rename is a copy, as logrotate makes it.
    await copyFile(file, `${dir}-moved`);
    await rm(file);
  });
  while (!audit.status().ok) await new Promise((resolve) => setTimeout(resolve, 5));
  await audit.settled();
  const all = [...(await numbers(`${dir}-moved`)), ...(await numbers(file))];
  assert.deepEqual(
    all,
    Array.from({ length: 100 }, (_, index) => index + 1),
  );
});

test("a daemon answers while its audit log cannot be written, and says so in its status", async () => {
  await using server = await startServer({ listSnapshots: async () => [] });
  await rename(server.dir, `${server.dir}-away`);
  try {
    for (let at = 0; at < 50; at++)
      assert.equal((await send(server.url, "/v1/snapshots", { headers: bearer })).status, 200);
    await server.auditLog.settled();
    assert.equal(server.auditLog.status().ok, false);
  } finally {
    await rename(`${server.dir}-away`, server.dir);
  }
  server.auditLog.reopen();
  assert.equal((await server.audited()).length, 50);
  assert.equal(server.auditLog.status().ok, true);
});

test("AuditLog.open() refuses a path that can never be written", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  await writeFile(join(dir, "file"), "");
  await run("mkfifo", [join(dir, "pipe")]);
  for (const path of [dir, join(dir, "none", "a"), join(dir, "file", "a"), join(dir, "pipe"), "/dev/null"]) {
    await assert.rejects(AuditLog.open({ path, log: nullLogger() }), {
      code: "host_not_ready",
      message: /^Cannot open the audit log /,
      remedy: { action: "change_setting", setting: "audit_log", to: 'another path, or to "off"' },
    });
  }
});

test("a HEAD touches no object", async () => {
  await using server = await startServer({ listSandboxes: () => [{ id: sandboxId }] as never });
  await send(server.socket, "/v1/sandboxes", { method: "HEAD" });
  const [line] = await server.audited();
  assert.deepEqual([line?.["method"], line?.["objects"]], ["HEAD", undefined]);
});

test("a command in full has a bounded length", async () => {
  const exec = async () => ({ exec_id: 1, pid: 2 });
  await using server = await startServer({ exec }, nullLogger(), { audit: { commands: true } });
  const args = Array.from({ length: 100 }, () => "x".repeat(100_000));
  await post(server.socket, `/v1/sandboxes/${sandboxId}/exec`, { args, background: true });
  const [line] = await server.audited();
  assert.ok(JSON.stringify(line).length < 100_000);
  assert.match(String(line?.["argv_sha256"]), /^[0-9a-f]{64}$/);
});

test("reopen() in the middle of writing loses nothing and does not fail", async () => {
  await using scope = new Scope();
  const path = join(await temporaryDir(scope), "audit.jsonl");
  const failures: string[] = [];
  const log = createLogger({ level: "warn", destination: { write: (line) => void failures.push(line) } });
  const audit = await AuditLog.open({ path, log });
  for (let n = 0; n < 200; n++) {
    audit.write({ n });
    audit.reopen();
    for (let turn = n % 4; turn > 0; turn--) await new Promise(setImmediate);
  }
  await audit[Symbol.asyncDispose]();
  assert.deepEqual(failures, []);
  assert.deepEqual(
    (await readLines(path)).map(({ n }) => n),
    Array.from({ length: 200 }, (_, n) => n),
  );
});

test("refused requests for metrics are written; successful ones are not", async () => {
  await using server = await startServer({ metrics: () => "" });
  await send(server.url, "/metrics", { headers: { authorization: "Bearer wrong" } });
  await send(server.url, "/metrics", { headers: { authorization: `Bearer ${token}` } });
  assert.deepEqual(
    (await server.audited()).map(({ route, status }) => [route, status]),
    [["metrics", 401]],
  );
});
