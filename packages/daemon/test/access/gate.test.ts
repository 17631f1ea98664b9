import assert from "node:assert/strict";
import { chmod, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { nullLogger, Scope } from "@forkd/base";
import { openToken } from "../../src/access/token.ts";
import { send, startServer, temporaryDir, token } from "../support.ts";

const handlers = { health: () => ({ ok: true }), listSnapshots: async () => [] };
const bearer = { authorization: `Bearer ${token}` };

test("the gate asks for no token on the unix socket", async () => {
  await using server = await startServer(handlers);
  assert.equal((await send(server.socket, "/v1/snapshots")).status, 200);
});

test("the gate asks for the token on TCP, except for /healthz", async () => {
  await using server = await startServer(handlers);
  assert.equal((await send(server.url, "/healthz")).status, 200);
  for (const headers of [
    {},
    { authorization: "Bearer wrong" },
    { authorization: token },
    { authorization: "Bearer" },
  ]) {
    const answer = await send(server.url, "/v1/snapshots", { headers: headers as Record<string, string> });
    assert.equal(answer.status, 401);
    assert.equal(answer.json.code, "unauthenticated");
    assert.equal(answer.headers["www-authenticate"], "Bearer");
  }
  assert.equal((await send(server.url, "/nowhere")).status, 401);
  assert.equal((await send(server.url, "/openapi.json")).status, 401);
  assert.equal((await send(server.url, "/v1/snapshots", { headers: bearer })).status, 200);
});

test("the gate refuses a foreign Host on TCP", async () => {
  await using server = await startServer(handlers);
  for (const host of ["evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8889", "10.0.0.1"]) {
    const answer = await send(server.url, "/healthz", { headers: { host, ...bearer } });
    assert.equal(answer.status, 403, host);
    assert.equal(answer.json.code, "forbidden");
  }
  for (const host of ["localhost", "LOCALHOST:1", "127.0.0.1:8889", "[::1]:8889"]) {
    assert.equal((await send(server.url, "/healthz", { headers: { host } })).status, 200, host);
  }
});

test("the gate refuses a foreign Origin on TCP", async () => {
  await using server = await startServer(handlers);
  for (const origin of ["https://evil.example", "null", "http://localhost:3000"]) {
    const answer = await send(server.url, "/v1/snapshots", { headers: { origin, ...bearer } });
    assert.equal(answer.status, 403, origin);
  }
  const own = await send(server.url, "/v1/snapshots", { headers: { origin: server.url, ...bearer } });
  assert.equal(own.status, 200);
});

test("a Host that is not a host gets invalid_request", async () => {
  await using server = await startServer(handlers);
  const answer = await send(server.url, "/healthz", { headers: { host: "a b/c" } });
  assert.ok([400, 403].includes(answer.status));
});

test("openToken() makes a token once and keeps the file private", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const made = await openToken({ dataDir: dir });
  assert.match(made, /^[0-9a-f]{64}$/);
  assert.equal((await stat(join(dir, "token"))).mode & 0o777, 0o600);
  await chmod(join(dir, "token"), 0o644);
  assert.equal(await openToken({ dataDir: dir }), made);
  assert.equal((await stat(join(dir, "token"))).mode & 0o777, 0o600);
  assert.equal((await readFile(join(dir, "token"), "utf8")).trim(), made);
});

test("openToken() refuses tokens that can be guessed and says what to do", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  for (const text of [
    "",
    "abc",
    "changeme",
    "changeme-changeme-please",
    "CHANGE_ME_1234567890",
    "REPLACE_ME_WITH_A_REAL_TOKEN",
    "your-token-goes-here-1",
    "aaaaaaaaaaaaaaaaaaaaaaaa",
    "abababababababababab",
    "0123456789abcdef0123456789abcdef",
    "abcdefghijklmnopqrstuvwxyz",
    "1234567890123456",
    "two words of a token 12",
    "correct-horse-password-9",
  ]) {
    await writeFile(join(dir, "token"), `${text}\n`);
    await assert.rejects(
      openToken({ dataDir: dir }),
      {
        code: "host_not_ready",
        message: /^Cannot use the token in .*: ./s,
        remedy: { action: "advice", text: "Remove the file to get a new token." },
      },
      text,
    );
  }
  for (const text of ["f3c9a17e5b20d846", "a-Long.Human~made+Token/17"]) {
    await writeFile(join(dir, "token"), text);
    assert.equal(await openToken({ dataDir: dir }), text);
  }
});

test("openToken() does not make a file that the operator named", async () => {
  await using scope = new Scope();
  const dir = await temporaryDir(scope);
  const file = join(dir, "secret");
  await assert.rejects(openToken({ dataDir: dir, file }), {
    message: /^Cannot read the token: ENOENT/,
    remedy: { action: "change_setting", setting: "token_file", to: "a file that the daemon can read" },
  });
  await assert.rejects(stat(file), { code: "ENOENT" });
});

test("with auth off TCP asks for no token, but still for the right Host and Origin", async () => {
  await using server = await startServer(handlers, nullLogger(), { gate: { token: undefined } });
  assert.equal((await send(server.url, "/v1/snapshots")).status, 200);
  assert.equal((await send(server.url, "/v1/snapshots", { headers: { host: "evil.example" } })).status, 403);
  const origin = "https://evil.example";
  assert.equal((await send(server.url, "/v1/snapshots", { headers: { origin } })).status, 403);
  assert.deepEqual(
    (await server.audited()).map(({ principal }) => principal),
    ["anonymous", null, null],
  );
});
