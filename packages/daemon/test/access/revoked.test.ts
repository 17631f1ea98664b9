import assert from "node:assert/strict";
import { once } from "node:events";
import { writeFile } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { join } from "node:path";
import { test } from "node:test";
import { nullLogger, Scope } from "@forkd/base";
import { EventBus } from "@forkd/runtime";
import { KeyStore } from "../../src/access/key-store.ts";
import { loadConfig } from "../../src/settings/load.ts";
import { openAccess } from "../../src/access/open-access.ts";
import type { Handlers } from "../../src/http/handlers.ts";
import { deferred, open, post, sandboxId, send, startServer, temporaryDir, token } from "../support.ts";

const bearer = (text: string) => ({ authorization: `Bearer ${text}` });
const streamPath = `/v1/sandboxes/${sandboxId}/execs/1/stream`;
const until = (signal: AbortSignal) =>
  new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));

/** Answers that end only when their caller is gone or may not have them any more. */
function endless(aborted: () => void = () => {}): Partial<Handlers> {
  const bus = new EventBus();
  return {
    attachExec: async (_, { signal }) =>
      (async function* () {
        yield { type: "started", exec_id: 1, pid: 1 } as const;
        await until(signal);
        aborted();
      })(),
    logs: async (_, { signal }) =>
      (async function* () {
        yield Buffer.from("console");
        await until(signal);
      })(),
    events: (filter, { signal }) => bus.listen(filter, { signal }),
    listSnapshots: async () => [],
  };
}

type Stream = { response: IncomingMessage; text: () => string; closed: Promise<unknown> };

async function openStream(url: string, key: string, path = streamPath): Promise<Stream> {
  const request = open(url, path, { headers: bearer(key) });
  request.on("error", () => undefined);
  request.end();
  const [response] = (await once(request, "response")) as [IncomingMessage];
  let text = "";
  response.on("error", () => undefined);
  response.on("data", (chunk: Buffer) => (text += chunk.toString()));
  const closed = new Promise((resolve) => response.once("close", resolve));
  await once(response, "data");
  return { response, text: () => text, closed };
}

const lastLine = (stream: Stream) => JSON.parse(stream.text().trim().split("\n").at(-1) ?? "") as unknown;

test(
  "removing a key ends its streams at once with the reason, and no other's",
  { timeout: 60_000 },
  async () => {
    const aborted = deferred();
    await using server = await startServer(endless(aborted.resolve));
    const { key } = await server.keys.create({ name: "ci", scope: "run" });
    const other = await server.keys.create({ name: "other", scope: "run" });
    const cut = await openStream(server.url, key);
    const kept = await openStream(server.url, other.key);
    assert.equal((await send(server.socket, "/v1/keys/ci", { method: "DELETE" })).status, 204);
    await Promise.all([cut.closed, aborted.promise]);
    const { type, code, error } = lastLine(cut) as Record<string, string>;
    assert.deepEqual([type, code], ["error", "unauthenticated"]);
    assert.match(error ?? "", /The key "ci" was removed/);
    assert.equal(cut.response.complete, true);
    assert.equal(kept.response.closed, false);
    assert.equal((await send(server.url, "/v1/snapshots", { headers: bearer(key) })).status, 401);
    assert.equal((await send(server.url, "/v1/snapshots", { headers: bearer(other.key) })).status, 200);
    assert.deepEqual(
      (await KeyStore.open(server.dir)).list().map(({ name }) => name),
      ["other"],
    );
    const line = (await server.audited()).find(({ route }) => route === "attachExec");
    assert.deepEqual([line?.["status"], line?.["code"]], [200, "unauthenticated"]);
    kept.response.destroy();
  },
);

test(
  "events end with `revoked`, raw bytes with a cut, and calls that wait with 401",
  { timeout: 60_000 },
  async () => {
    const begun = deferred();
    await using server = await startServer({
      ...endless(),
      compact: async (_, { signal }) => {
        begun.resolve();
        await until(signal);
        throw new Error("given up");
      },
    });
    const { key } = await server.keys.create({ name: "ci", scope: "run" });
    const events = await openStream(server.url, key, "/v1/events");
    const bytes = await openStream(server.url, key, `/v1/sandboxes/${sandboxId}/logs?follow=true`);
    const waiting = post(server.url, "/v1/snapshots/a/compact", { to: "b" }, bearer(key));
    await begun.promise;
    await server.keys.remove("ci");
    await Promise.all([events.closed, bytes.closed]);
    assert.match(events.text(), /\nevent: revoked\ndata: \{[^\n]*The key \\"ci\\" was removed[^\n]*\}\n\n$/);
    assert.equal(bytes.response.complete, false);
    const { status, json } = await waiting;
    assert.deepEqual([status, json.code], [401, "unauthenticated"]);
    assert.match(json.error, /was removed/);
  },
);

test("a stream ends when its key expires", { timeout: 60_000 }, async () => {
  await using server = await startServer(endless());
  const expires = Math.floor(Date.now() / 1000) + 2;
  const { key } = await server.keys.create({ name: "brief", scope: "run", expires_at_unix: expires });
  const stream = await openStream(server.url, key);
  await stream.closed;
  assert.match((lastLine(stream) as { error: string }).error, /The key "brief" expired at /);
  assert.ok(Date.now() >= expires * 1000);
});

test(
  "a changed token ends the streams of the old one; the same token again does not",
  { timeout: 60_000 },
  async () => {
    await using server = await startServer(endless());
    const { key } = await server.keys.create({ name: "ci", scope: "run" });
    const cut = await openStream(server.url, token);
    const kept = await openStream(server.url, key);
    server.gate.changeToken(token);
    assert.equal((await send(server.url, "/v1/snapshots", { headers: bearer(token) })).status, 200);
    assert.equal(cut.response.closed, false);
    server.gate.changeToken("fedcba9876543210fedcba9876543210");
    await cut.closed;
    assert.match((lastLine(cut) as { error: string }).error, /The daemon's token was changed/);
    assert.equal(kept.response.closed, false);
    kept.response.destroy();
  },
);

test("reload() of the access reads the token again and ends requests with the old one", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const config = await loadConfig({ data_dir: dir, runtime_dir: join(dir, "run") }, {});
  const old = "k3Jq9-wz7Lx0VbT2mNfR";
  await writeFile(join(dir, "token"), `${old}\n`, { mode: 0o600 });
  const access = scope.use(await openAccess(config.values, nullLogger()));
  const incoming = { headers: { host: "localhost", ...bearer(old) }, socket: {} } as IncomingMessage;
  const cut = deferred<string>();
  access.gate.identify(incoming, "tcp", "read")?.hold(({ message }) => cut.resolve(message));
  await writeFile(join(dir, "token"), "Zr8u-4HcYp6SgD1eXoKa\n");
  await access.reload();
  assert.match(await cut.promise, /token was changed/);
});
