/** Ports of real guests: by host name, by path and as raw connections. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import http from "node:http";
import net from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Duplex } from "node:stream";
import { after, before, test } from "node:test";
import type { OpenedPort, Sandbox } from "@forkd/sdk";
import { connect } from "@forkd/sdk/node";
import { rejectsWith, until } from "@forkd/test-support";
import { endDaemon, startDaemon, withDaemons, type TestDaemon } from "../support/daemon.ts";
import { guestPorts, startServers } from "../support/guest-servers.ts";
import { cliPath } from "../support/places.ts";
import { residentBytes } from "../support/sandboxes.ts";

let daemon: TestDaemon;
let sandbox: Sandbox;
let url: string;
let token: string;

async function addressOf({ dataDir }: TestDaemon): Promise<{ url: string; token: string }> {
  const record = JSON.parse(await readFile(join(dataDir, "daemon.json"), "utf8")) as Record<string, string>;
  return { url: record["url"] ?? "", token: (await readFile(record["token_file"] ?? "", "utf8")).trim() };
}

before(async () => {
  daemon = await startDaemon({ snapshots: ["python"], env: { FORKD_LISTEN: "127.0.0.1:0" } });
  ({ url, token } = await addressOf(daemon));
  sandbox = await daemon.forkd.create("python");
  await startServers(sandbox);
});
after(() => daemon[Symbol.asyncDispose]());

type Answer = { status: number; headers: http.IncomingHttpHeaders; text: string };
type Ask = { method?: string; headers?: Record<string, string>; body?: Buffer; base?: string };

function ask(path: string, { method = "GET", headers = {}, body, base = url }: Ask = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const request = http.request(base + path, { method, headers, agent: false });
    request.once("error", reject);
    request.once("response", (response) => {
      const chunks: Buffer[] = [];
      response.on("data", (chunk: Buffer) => chunks.push(chunk));
      response.once("error", reject);
      response.once("end", () => {
        const text = Buffer.concat(chunks).toString();
        resolve({ status: response.statusCode ?? 0, headers: response.headers, text });
      });
    });
    request.end(body);
  });
}

const hostOf = (opened: { url?: string | undefined }) =>
  new URL(opened.url ?? assert.fail("no address")).host;
const codeOf = ({ text }: Answer) => (JSON.parse(text) as { code: string }).code;
type Seen = { path: string; headers: Record<string, string> };

test("a port is open from open() to close(), and its events say so", async () => {
  const events: string[] = [];
  const listening = new AbortController();
  const heard = (async () => {
    for await (const { type, port } of daemon.forkd.events({ types: ["port.*"], signal: listening.signal })) {
      events.push(`${type} ${port}`);
      if (events.length === 2) return;
    }
  })();
  await until("the stream is open", async () => /forkd_event_streams 1/.test((await daemonMetrics()).text));
  const opened = await sandbox.ports.open(guestPorts.http);
  assert.match(opened.url ?? "", new RegExp(`^http://8000-${sandbox.id}\\.localhost:\\d+/$`));
  assert.match(opened.token ?? "", /^[\w-]{43}$/);
  assert.equal((await sandbox.ports.open(guestPorts.http)).token, opened.token);
  const [listed] = await sandbox.ports.list();
  assert.deepEqual([listed?.port, listed?.public, "token" in (listed ?? {})], [8000, false, false]);
  const headers = { host: hostOf(opened), "x-forkd-port-token": opened.token ?? "" };
  assert.equal((await ask("/", { headers })).status, 200);
  await sandbox.ports.close(guestPorts.http);
  const closed = await ask("/", { headers });
  assert.deepEqual([closed.status, codeOf(closed)], [404, "port_not_open"]);
  await rejectsWith(sandbox.ports.close(guestPorts.http), "port_not_open");
  await heard.finally(() => listening.abort());
  assert.deepEqual(events.slice(0, 1), ["port.opened 8000"]);
});

const daemonMetrics = () => ask("/metrics", { headers: { authorization: `Bearer ${token}` } });

test("a browser comes with the token once and keeps it as a cookie that the guest does not see", async () => {
  const { token: secret = "", ...opened } = await sandbox.ports.open(guestPorts.http);
  const host = hostOf(opened);
  assert.equal((await ask("/", { headers: { host } })).status, 401);
  const visit = await ask(`/app?x=1&forkd_token=${secret}`, { headers: { host } });
  assert.deepEqual([visit.status, visit.headers.location], [303, "/app?x=1"]);
  const cookie = visit.headers["set-cookie"]?.[0]?.split(";")[0] ?? "";
  const page = await ask("/app?x=1", { headers: { host, cookie, authorization: "Basic of-the-guest" } });
  assert.equal(page.status, 200);
  assert.deepEqual(page.headers["set-cookie"], ["guest=1"]);
  const { path, headers } = JSON.parse(page.text) as Seen;
  assert.equal(path, "/app?x=1");
  assert.deepEqual(
    [headers["cookie"], headers["authorization"], headers["host"]],
    [undefined, "Basic of-the-guest", host],
  );
  assert.equal(headers["x-forwarded-for"], "127.0.0.1");
  // Over the unix socket too.
  const local = await new Promise<number | undefined>((resolve, reject) =>
    http
      .get({ socketPath: daemon.socket, path: "/", headers: { host, cookie }, agent: false }, (response) =>
        resolve(response.resume().statusCode),
      )
      .once("error", reject),
  );
  assert.equal(local, 200);
});

test("by the path a caller reaches every port, and the guest gets neither token nor cookies", async () => {
  const base = `/v1/sandboxes/${sandbox.id}/ports/${guestPorts.http}/proxy`;
  const headers = { authorization: `Bearer ${token}`, cookie: "a=1" };
  assert.equal((await ask(`${base}/`)).status, 401);
  const { text } = await ask(`${base}/deep/path?q=1`, { headers });
  const seen = JSON.parse(text) as Seen;
  assert.equal(seen.path, "/deep/path?q=1");
  assert.deepEqual([seen.headers["authorization"], seen.headers["cookie"]], [undefined, undefined]);
  assert.doesNotMatch(text, new RegExp(token));
  const body = Buffer.alloc(3_000_000, "body");
  const digest = await ask(`${base}/`, { method: "POST", headers, body });
  assert.equal(digest.text, createHash("sha256").update(body).digest("hex"));
  const files = `/v1/sandboxes/${sandbox.id}/ports/${guestPorts.files}/proxy`;
  assert.equal((await ask(`${files}/file.txt`, { headers })).text, "content of a file\n");
  const away = await rawRequest(`GET ${files}/../../../../../v1/keys HTTP/1.1`, {
    authorization: `Bearer ${token}`,
  });
  assert.match(
    away,
    /^HTTP\/1.1 404 File not found/,
    "dots lead out of neither the guest's directory nor the path",
  );
  const nobody = await ask(`/v1/sandboxes/${sandbox.id}/ports/9/proxy/`, { headers });
  assert.deepEqual([nobody.status, codeOf(nobody)], [502, "port_refused"]);
  const unknown = await ask(`/v1/sandboxes/sb-${"0".repeat(24)}/ports/9/proxy/`, { headers });
  assert.deepEqual([unknown.status, codeOf(unknown)], [404, "sandbox_not_found"]);
});

async function rawRequest(line: string, headers: Record<string, string>): Promise<string> {
  const socket = net.connect(Number(new URL(url).port), "127.0.0.1");
  const all = { host: "localhost", connection: "close", ...headers };
  socket.write(
    `${line}\r\n${Object.entries(all)
      .map(([name, value]) => `${name}: ${value}\r\n`)
      .join("")}\r\n`,
  );
  const chunks: Buffer[] = [];
  for await (const chunk of socket) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString();
}

test("a page of a guest cannot call the API with the rights of its visitor", async () => {
  await using open = await startDaemon({
    env: { FORKD_LISTEN: "127.0.0.1:0", FORKD_AUTH: "off", FORKD_ALLOWED_HOSTS: "*.localhost" },
  });
  const { url: base } = await addressOf(open);
  const { port } = new URL(base);
  const origin = `http://3000-${sandbox.id}.localhost:${port}`;
  for (const host of [`127.0.0.1:${port}`, `localhost:${port}`, `x.localhost:${port}`]) {
    for (const headers of [{ origin }, { "sec-fetch-site": "same-site" }, { origin: "null" }]) {
      const answer = await ask("/v1/sandboxes", { base, headers: { host, ...headers } });
      assert.deepEqual(
        [answer.status, codeOf(answer)],
        [403, "forbidden"],
        JSON.stringify({ host, ...headers }),
      );
    }
  }
  const asPage = await ask("/v1/sandboxes", { base, headers: { host: new URL(origin).host } });
  assert.equal(asPage.status, 404, "the API has no such name");
  assert.equal((await ask("/v1/sandboxes", { base })).status, 200);
});

test("server-sent events arrive one by one", async () => {
  const { url: address } = await sandbox.ports.open(guestPorts.http, { public: true });
  const request = http.get(`${url}/events`, { headers: { host: hostOf({ url: address }) }, agent: false });
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  const ended = once(response, "end");
  let text = "";
  response.on("data", (chunk: Buffer) => (text += chunk.toString()));
  for (let nth = 0; nth < 3; nth++) {
    await until(`event ${nth}`, () => text.includes(`data: ${nth}\n\n`));
    assert.ok(!text.includes(`data: ${nth + 1}`));
    await sandbox.files.write(`/tmp/event-${nth}`, "");
  }
  await ended;
});

/** A text frame as clients send it. */
function frame(text: string): Buffer {
  const mask = Buffer.from([1, 2, 3, 4]);
  const data = Buffer.from(text).map((byte, at) => byte ^ (mask[at % 4] ?? 0));
  return Buffer.concat([Buffer.from([0x81, 0x80 | data.length]), mask, data]);
}

test("a WebSocket works by host name and by path", async () => {
  const opened = await sandbox.ports.open(guestPorts.webSocket, { public: true });
  const webSocket = { connection: "Upgrade", upgrade: "websocket", "sec-websocket-version": "13" };
  for (const [path, headers] of [
    ["/", { host: hostOf(opened) }],
    [opened.path, { authorization: `Bearer ${token}` }],
  ] as const) {
    const all = { ...webSocket, "sec-websocket-key": "dGhlIHNhbXBsZSBub25jZQ==", ...headers };
    const request = http.request(url + path, { headers: all, agent: false });
    request.end();
    const [response, socket] = (await once(request, "upgrade")) as [http.IncomingMessage, net.Socket];
    assert.equal(response.headers["sec-websocket-accept"], "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    for (const text of ["hello", "again"]) {
      socket.write(frame(text));
      const [answer] = (await once(socket, "data")) as [Buffer];
      assert.equal(answer.subarray(2).toString(), text);
    }
    socket.destroy();
  }
});

const textOf = async (stream: AsyncIterable<Uint8Array>) => {
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  return Buffer.concat(chunks).toString();
};

test("ports.connect() carries raw bytes and passes on the end of each direction, on both sockets", async () => {
  const remote = await connect({ url, token });
  for (const each of [sandbox, await remote.sandboxes.get(sandbox.id)]) {
    const stream = await each.ports.connect(guestPorts.echo);
    stream.end("bytes ");
    assert.equal(await textOf(stream), "bytes end");
  }
  await rejectsWith(sandbox.ports.connect(9), "port_refused");
  const { key } = await daemon.forkd.keys.create("viewer", { scope: "read" });
  const viewer = await (await connect({ url, token: key })).sandboxes.get(sandbox.id);
  await rejectsWith(viewer.ports.connect(guestPorts.echo), "forbidden");
  const size = 4 * 1024 * 1024;
  const stream = (await sandbox.ports.connect(guestPorts.echo)) as unknown as Duplex;
  const sent = Buffer.alloc(size, "0123456789");
  stream.end(sent);
  const got = await textOf(stream);
  assert.ok(got === `${sent.toString()}end`);
});

test("forkd forward listens locally, serves many connections and ends with Ctrl-C", async () => {
  const args = ["forward", sandbox.id, `0:${guestPorts.echo}`, `0:${guestPorts.http}`, "--json"];
  const child = spawn(process.execPath, [cliPath, ...args], {
    env: daemon.env,
    stdio: ["ignore", "pipe", "inherit"],
  });
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  const next = async () =>
    JSON.parse((await lines.next()).value ?? "") as { port: number; sandbox_port: number };
  const [echo, web] = [await next(), await next()];
  assert.deepEqual([echo.sandbox_port, web.sandbox_port], [guestPorts.echo, guestPorts.http]);
  const texts = Array.from({ length: 8 }, (_, at) => `connection ${at} `);
  const answers = texts.map((text) => {
    const socket = net.connect({ port: echo.port, host: "127.0.0.1", allowHalfOpen: true });
    socket.end(text);
    return textOf(socket);
  });
  assert.deepEqual(
    await Promise.all(answers),
    texts.map((text) => `${text}end`),
  );
  assert.equal((await ask("/", { base: `http://127.0.0.1:${web.port}` })).status, 200);
  const exited = once(child, "exit");
  child.kill("SIGINT");
  assert.deepEqual(await exited, [130, null]);
});

test("a hostile guest costs its own clients an error, and the daemon no memory", async () => {
  const opened = await sandbox.ports.open(guestPorts.hostile, { public: true });
  const headers = { host: hostOf(opened) };
  for (const path of ["/garbage", "/headers", "/smuggle", "/nothing"]) {
    const answer = await ask(path, { headers });
    assert.deepEqual([answer.status, codeOf(answer)], [502, "port_failed"], path);
  }
  await assert.rejects(ask("/half", { headers }));
  const before = residentBytes(daemon.process.pid);
  const request = http.get(`${url}/flood`, { headers, agent: false });
  const [response] = (await once(request, "response")) as [http.IncomingMessage];
  response.pause();
  await new Promise((resolve) => setTimeout(resolve, 2000));
  assert.ok(residentBytes(daemon.process.pid) - before < 64 * 1024 * 1024);
  request.destroy();
  await until("its connection is closed", async () => {
    const found = (await sandbox.ports.list()).find(({ port }) => port === guestPorts.hostile);
    return found?.connections === 0;
  });
  assert.equal((await sandbox.ping()).ok, true);
});

test("a request resumes a paused sandbox that has auto-resume, and its ports stay open", async () => {
  const opened = await sandbox.ports.open(guestPorts.http);
  const headers = { host: hostOf(opened), "x-forkd-port-token": opened.token ?? "" };
  await sandbox.pause();
  const refused = await ask("/", { headers });
  assert.deepEqual([refused.status, codeOf(refused)], [409, "sandbox_paused"]);
  await rejectsWith(sandbox.ports.connect(guestPorts.echo), "sandbox_paused");
  await daemon.forkd.call("setTimeouts", { id: sandbox.id, auto_resume: true });
  const [first, second] = await Promise.all([ask("/", { headers }), ask("/", { headers })]);
  assert.deepEqual([first.status, second.status], [200, 200]);
  assert.equal((await daemon.forkd.sandboxes.get(sandbox.id)).info.state, "running");
});

test("requests keep a sandbox from its idle timeout, and a silent connection does not", async () => {
  const idle = await daemon.forkd.create("python", { idleTimeoutMs: 4000, onTimeout: "pause" });
  await startServers(idle);
  const { url: address } = await idle.ports.open(guestPorts.http, { public: true });
  const waiting = http.get(`${url}/wait`, { headers: { host: hostOf({ url: address }) }, agent: false });
  waiting.on("error", () => undefined);
  await new Promise((resolve) => setTimeout(resolve, 6000));
  assert.equal((await daemon.forkd.sandboxes.get(idle.id)).info.state, "running");
  const silent = (await idle.ports.connect(guestPorts.echo)) as unknown as Duplex;
  const closed = once(silent.resume(), "end");
  waiting.destroy();
  await closed;
  await until(
    "it is paused",
    async () => (await daemon.forkd.sandboxes.get(idle.id)).info.state === "paused",
  );
  await idle.kill();
});

test("a killed sandbox takes its open connections with it", async () => {
  const other = await daemon.forkd.create("python");
  await startServers(other);
  const { url: address } = await other.ports.open(guestPorts.http, { public: true });
  const headers = { host: hostOf({ url: address }) };
  const answer = ask("/wait", { headers });
  const stream = (await other.ports.connect(guestPorts.echo)) as unknown as Duplex;
  const closed = once(stream.on("error", () => undefined).resume(), "end");
  await other.kill();
  const failed = await answer;
  assert.ok([404, 409, 502].includes(failed.status), String(failed.status));
  await closed;
  assert.equal(codeOf(await ask("/", { headers })), "sandbox_not_found");
});

test("a restarted daemon keeps ports and tokens, and a port closes when its time is over", async () => {
  await withDaemons(["python"], async (start) => {
    const env = { FORKD_LISTEN: "127.0.0.1:0", FORKD_ON_STOP: "keep" };
    const first = await start(env);
    const kept = await first.forkd.create("python");
    await startServers(kept);
    const opened: OpenedPort = await kept.ports.open(guestPorts.http);
    await kept.ports.open(guestPorts.echo, { ttlMs: 3000 });
    await endDaemon(first, "SIGKILL");
    const second = await start({ ...env, FORKD_ON_STOP: "stop" });
    const { url: base } = await addressOf(second);
    const host = hostOf(opened).replace(/:\d+$/, "");
    const answer = await ask("/", { base, headers: { host, "x-forkd-port-token": opened.token ?? "" } });
    assert.equal(answer.status, 200);
    assert.equal((await ask("/", { base, headers: { host } })).status, 401);
    const again = await second.forkd.sandboxes.get(kept.id);
    await until("the time of the port is over", async () => (await again.ports.list()).length === 1);
  });
});
