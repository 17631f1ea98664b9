import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile, rename, writeFile } from "node:fs/promises";
import net from "node:net";
import { join } from "node:path";
import { Writable } from "node:stream";
import { test } from "node:test";
import tls from "node:tls";
import { createLogger, nullLogger, Scope } from "@forkd/base";
import { connect } from "@forkd/sdk/node";
import { loadConfig } from "../../src/settings/load.ts";
import { runDaemon } from "../../src/daemon.ts";
import { Tls } from "../../src/access/tls.ts";
import { deferred, handlersWith, startServer, temporaryDir, token } from "../support.ts";
import { makePair } from "./certificate.ts";

const handlers = { health: () => ({ ok: true }), listSnapshots: async () => [] };

function peerName(url: string, options: tls.ConnectionOptions = {}): Promise<string> {
  const { hostname, port } = new URL(url);
  return new Promise((resolve, reject) => {
    const socket = tls.connect({ host: hostname, port: Number(port), rejectUnauthorized: false, ...options });
    socket.once("error", reject);
    socket.once("secureConnect", () => {
      resolve(String(socket.getPeerCertificate().subject.CN));
      socket.destroy();
    });
  });
}

/** Log records with an event, as they come. */
function watchLog(): {
  log: ReturnType<typeof createLogger>;
  next: (event: string) => Promise<Record<string, unknown>>;
} {
  const seen: Record<string, unknown>[] = [];
  let wake = () => {};
  const destination = new Writable({
    write(chunk: Buffer, _, done) {
      seen.push(JSON.parse(chunk.toString()) as Record<string, unknown>);
      wake();
      done();
    },
  });
  return {
    log: createLogger({ level: "info", destination }),
    next: async (event) => {
      for (;;) {
        const at = seen.findIndex((record) => record["event"] === event);
        if (at >= 0) return seen.splice(at, 1)[0] ?? {};
        await new Promise<void>((resolve) => (wake = resolve));
      }
    },
  };
}

test("the SDK talks TLS to a daemon whose certificate it is given, and to no other", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const pair = await makePair(dir, "own");
  const other = await makePair(dir, "other");
  using secure = await Tls.open(pair, nullLogger());
  await using server = await startServer(handlers, nullLogger(), { server: { tls: secure } });
  assert.match(server.url, /^https:/);
  const trusting = await connect({ url: server.url, token, caFile: pair.cert });
  assert.deepEqual(await trusting.snapshots.list().all(), []);
  const byName = await connect({
    url: server.url.replace("127.0.0.1", "localhost"),
    token,
    caFile: pair.cert,
  });
  assert.deepEqual(await byName.snapshots.list().all(), []);
  for (const caFile of [undefined, other.cert]) {
    const strange = await connect({ url: server.url, token, caFile });
    await assert.rejects(strange.snapshots.list().all(), {
      code: "daemon_unreachable",
      remedy: { action: "trust_certificate" },
    });
  }
  await assert.rejects(connect({ url: server.url, token, caFile: join(dir, "none") }), {
    remedy: { action: "advice", text: "Set FORKD_CA or `caFile` to a PEM file." },
  });
});

test("TLS below 1.2 and plain HTTP are refused", async () => {
  await using scope = new Scope();
  const pair = await makePair(await temporaryDir(scope), "own");
  using secure = await Tls.open(pair, nullLogger());
  await using server = await startServer(handlers, nullLogger(), { server: { tls: secure } });
  assert.equal(await peerName(server.url, { maxVersion: "TLSv1.2" }), "own");
  const old = { minVersion: "TLSv1", maxVersion: "TLSv1.1", ciphers: "ALL:@SECLEVEL=0" } as const;
  await assert.rejects(peerName(server.url, old));
  const plain = await connect({ url: server.url.replace("https", "http"), token });
  await assert.rejects(plain.snapshots.list().all(), { code: "daemon_unreachable" });
});

test("a new pair is used when the files change; a pair that does not match leaves the old one in use", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const pair = await makePair(dir, "first");
  const elsewhere = await temporaryDir(scope);
  const second = await makePair(elsewhere, "second");
  const { log, next } = watchLog();
  using secure = await Tls.open(pair, log);
  await using server = await startServer(handlers, nullLogger(), { server: { tls: secure } });
  assert.equal(await peerName(server.url), "first");

  // The certificate alone does not fit the old key.
  await rename(second.cert, pair.cert);
  assert.equal((await next("tls.reload"))["outcome"], "failed");
  assert.equal(await peerName(server.url), "first");
  await rename(second.key, pair.key);
  let record = await next("tls.reload");
  while (record["outcome"] === "failed") record = await next("tls.reload");
  assert.equal(record["outcome"], "ok");
  assert.equal(await peerName(server.url), "second");

  await writeFile(pair.cert, "no certificate");
  record = await next("tls.reload");
  assert.deepEqual([record["outcome"], record["level"]], ["failed", "error"]);
  assert.equal(await peerName(server.url), "second");
});

test("Tls.open() refuses files that are missing, broken or do not belong together", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const one = await makePair(dir, "one");
  const two = await makePair(dir, "two");
  for (const files of [
    { cert: join(dir, "none"), key: one.key },
    { cert: one.cert, key: two.key },
    { cert: one.key, key: one.key },
  ]) {
    await assert.rejects(Tls.open(files, nullLogger()), (error: Error & { code: string }) => {
      assert.equal(error.code, "host_not_ready");
      assert.ok(error.message.includes(files.cert));
      return true;
    });
  }
});

test("SIGHUP makes a daemon read certificate and token again and reopen the audit log", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  // In a separate directory, and changed in place through another name, so that the watch alone could
  // miss it.
  const pair = await makePair(dir, "first");
  const second = await makePair(dir, "second");
  const tokenPath = join(dir, "secret");
  const [before, after] = ["d2f1c07b9ae34856b1", "7c61f0a3e98b2d54ff"];
  await writeFile(tokenPath, before);
  const audit = join(dir, "audit.jsonl");
  const flags = { tls_cert: pair.cert, tls_key: pair.key, token_file: tokenPath, audit_log: audit };
  const config = await loadConfig(
    { data_dir: join(dir, "data"), runtime_dir: join(dir, "run"), listen: "127.0.0.1:0", ...flags },
    {},
  );
  const { log, next } = watchLog();
  const ready = deferred<{ url: string | undefined }>();
  const stop = new AbortController();
  const ended = runDaemon({
    config,
    log,
    version: "1",
    signal: stop.signal,
    open: async () => ({ handlers: handlersWith(handlers), [Symbol.asyncDispose]: async () => undefined }),
    onReady: ready.resolve,
  });
  const { url = "" } = await ready.promise;
  const record = JSON.parse(await readFile(join(dir, "data", "daemon.json"), "utf8")) as Record<
    string,
    unknown
  >;
  assert.deepEqual([record["url"], record["token_file"]], [url, tokenPath]);
  // The client finds the token through the daemon's record.
  const local = await connect({ url, dataDir: join(dir, "data"), caFile: pair.cert });
  assert.deepEqual(await local.snapshots.list().all(), []);

  await rename(audit, `${audit}.1`);
  await writeFile(pair.cert, await readFile(second.cert));
  await writeFile(pair.key, await readFile(second.key));
  await writeFile(tokenPath, after);
  process.kill(process.pid, "SIGHUP");
  await next("daemon.reload");
  let reloaded = await next("tls.reload");
  while (reloaded["outcome"] !== "ok") reloaded = await next("tls.reload");
  assert.equal(await peerName(url), "second");
  const call = async (bearer: string) =>
    (await connect({ url, token: bearer, caFile: pair.cert })).snapshots.list().all();
  // The token is read after the certificate; until then the old one counts.
  for (;;) {
    const answer = await call(after).catch((error: Error & { code: string }) => error.code);
    if (typeof answer !== "string") break;
    assert.equal(answer, "unauthenticated");
  }
  await assert.rejects(call(before), { code: "unauthenticated" });
  stop.abort();
  await ended;
  const lines = async (file: string) =>
    (await readFile(file, "utf8"))
      .trim()
      .split("\n")
      .map((line) => JSON.parse(line) as Record<string, unknown>);
  assert.equal((await lines(`${audit}.1`))[0]?.["event"], "daemon.start");
  assert.equal((await lines(audit)).at(-1)?.["event"], "daemon.stop");
});

test("close() does not wait for a connection without a TLS handshake", { timeout: 60_000 }, async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  using pair = await Tls.open(await makePair(dir, "one"), nullLogger());
  const server = scope.use(
    await startServer(handlers, nullLogger(), { server: { tls: pair, limits: { headersMs: 3_600_000 } } }),
  );
  const silent = net.connect(Number(new URL(server.url).port), "127.0.0.1");
  await once(silent, "connect");
  const closed = once(silent, "close");
  await server.close(0);
  await closed;
});
