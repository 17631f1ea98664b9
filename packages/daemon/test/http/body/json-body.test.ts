import assert from "node:assert/strict";
import { once } from "node:events";
import net from "node:net";
import { test } from "node:test";
import { nullLogger } from "@forkd/base";
import { contentBodyBytes, usualBodyBytes } from "@forkd/contract";
import { maxJsonDepth, maxJsonValues } from "../../../src/http/body/json-scan.ts";
import { deferred, open, post, sandboxId, send, startServer } from "../../support.ts";

const execPath = `/v1/sandboxes/${sandboxId}/exec`;
const result = {
  exec_id: 1,
  stdout: "",
  stderr: "",
  exit_code: 0,
  timed_out: false,
  truncated: false,
  duration_ms: 0,
};
const cleanup = () => ({ removed: [], bytes: 0, dry_run: true });
const pace = { ms: 30_000, msPerPiece: 1000, pieceBytes: 65_536, lingerMs: 10_000 };

/** `{"dry_run": …}` with as many spaces as it takes */
function cleanupOf(bytes: number): Buffer {
  const body = Buffer.alloc(bytes, " ");
  body.write('{"dry_run":true');
  body.write("}", bytes - 1);
  return body;
}

test("a JSON body over the limit of its route is refused, announced or not", async () => {
  await using server = await startServer({ cleanup });
  const ask = (bytes: number, headers: Record<string, string> = {}) =>
    send(server.socket, "/v1/cleanup", { method: "POST", body: cleanupOf(bytes), headers });
  assert.equal((await ask(usualBodyBytes)).status, 200);
  const announced = await ask(usualBodyBytes + 1);
  assert.deepEqual([announced.status, announced.json.code], [413, "body_too_large"]);
  assert.match(announced.json.error, /1048576 bytes/);
  const chunked = await ask(usualBodyBytes + 1, { "transfer-encoding": "chunked" });
  assert.equal(chunked.status, 413);
});

test("routes that carry content take more, also up to a limit", async () => {
  const lengths: number[] = [];
  await using server = await startServer({
    exec: ({ stdin = "" }) => {
      lengths.push(stdin.length);
      return result;
    },
  });
  const stdin = "é".repeat(1_000_000);
  assert.equal((await post(server.socket, execPath, { args: ["cat"], stdin })).status, 200);
  assert.deepEqual(lengths, [stdin.length]);
  const body = Buffer.alloc(contentBodyBytes + 1, " ");
  const refused = await send(server.socket, execPath, { method: "POST", body });
  assert.equal(refused.status, 413);
});

test("many small values are refused before they are parsed, wherever they are", async () => {
  await using server = await startServer({ exec: () => result });
  const ask = (body: string) => send(server.socket, execPath, { method: "POST", body });
  const members = (count: number) => Array.from({ length: count }, (_, at) => `"v${at}":"1"`).join(",");
  // Parsed, it would be refused for its unknown fields.
  for (const body of [
    `{${members(maxJsonValues + 1)}}`,
    `{"args":["a"],"env":{${members(maxJsonValues)}}}`,
    `{"args":[${"1,".repeat(maxJsonValues)}1]}`,
    `{"args":[${"[],".repeat(maxJsonValues)}1]}`,
  ]) {
    const { status, json } = await ask(body);
    assert.deepEqual([status, json.code], [413, "body_too_large"]);
    assert.match(json.error, new RegExp(`more than ${maxJsonValues} values`));
  }
  const { status, json } = await ask(`{${members(maxJsonValues - 1)}}`);
  assert.deepEqual([status, json.code], [400, "invalid_request"]);
  assert.match(json.error, /is not a known field/);
});

test("the content of strings is not counted, however it is escaped and cut into pieces", async () => {
  const seen: string[] = [];
  await using server = await startServer({
    exec: ({ stdin = "" }) => {
      seen.push(stdin);
      return result;
    },
  });
  const stdin = '\\",[{☃'.repeat(maxJsonValues);
  const body = Buffer.from(JSON.stringify({ args: ["cat"], stdin }));
  const request = open(server.socket, execPath, { method: "POST" });
  const answered = once(request, "response");
  // Pieces of an odd length end in escapes and in the middle of characters.
  for (let at = 0; at < body.length; at += 4093) {
    if (!request.write(body.subarray(at, at + 4093))) await once(request, "drain");
  }
  request.end();
  const [response] = (await answered) as [{ statusCode: number; resume: () => void }];
  response.resume();
  assert.equal(response.statusCode, 200);
  assert.ok(seen[0] === stdin);
});

test("bodies that are nested too deeply or are not UTF-8 are refused, in one piece and in many", async () => {
  await using server = await startServer({ fork: () => [] });
  const nested = (depth: number) =>
    `{"snapshot_tag":"a","vary":[{"values":${"[".repeat(depth)}${"]".repeat(depth)}}]}`;
  const ask = (body: string | Buffer) => send(server.socket, "/v1/sandboxes", { method: "POST", body });
  assert.equal((await ask(nested(maxJsonDepth - 3))).status, 201);
  const deep = await ask(nested(maxJsonDepth - 2));
  assert.match(deep.json.error, /nested too deeply: more than 64 levels/);
  for (const before of [0, 300_000]) {
    const body = Buffer.from(`{"snapshot_tag":"${"a".repeat(before)}\u00e9"}`, "latin1");
    assert.match((await ask(body)).json.error, /not UTF-8/, String(before));
  }
});

test("a body that trickles in is refused and its connection ended", { timeout: 60_000 }, async () => {
  await using server = await startServer({ cleanup }, nullLogger(), { pace: { ...pace, ms: 100 } });
  const socket = net.connect(server.socket);
  let text = "";
  socket.on("data", (chunk: Buffer) => (text += chunk.toString()));
  socket.on("error", () => undefined);
  socket.write("POST /v1/cleanup HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{");
  const drip = setInterval(() => socket.write(" "), 20);
  await once(socket, "close");
  clearInterval(drip);
  assert.match(text, /^HTTP\/1\.1 400 /);
  assert.match(text, /its body did not come in time/);
});

test("a body that arrives steadily may take longer", { timeout: 60_000 }, async () => {
  await using server = await startServer({ cleanup }, nullLogger(), {
    pace: { ...pace, ms: 100, pieceBytes: 16 },
  });
  const request = open(server.socket, "/v1/cleanup", { method: "POST" });
  const answered = once(request, "response");
  request.write('{"dry_run":true');
  for (let at = 0; at < 20; at++) {
    request.write(" ".repeat(32));
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  request.end("}");
  const [response] = (await answered) as [{ statusCode: number; resume: () => void }];
  response.resume();
  assert.equal(response.statusCode, 200);
});

test("waiting for the rest of a refused body has an end", { timeout: 60_000 }, async () => {
  await using server = await startServer({ cleanup }, nullLogger(), { pace: { ...pace, lingerMs: 50 } });
  const socket = net.connect(server.socket);
  let text = "";
  socket.on("data", (chunk: Buffer) => (text += chunk.toString()));
  socket.on("error", () => undefined);
  socket.write("POST /v1/cleanup HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10000000\r\n\r\n{");
  await once(socket, "close");
  assert.match(text, /^HTTP\/1\.1 413 /);
});

test("large bodies of all running calls share one limit", { timeout: 120_000 }, async () => {
  const release = deferred();
  let under = 0;
  const enough = deferred();
  await using server = await startServer({
    exec: async () => {
      if (++under === 8) enough.resolve();
      await release.promise;
      return result;
    },
    cleanup,
  });
  const body = Buffer.alloc(31 * 1024 * 1024, " ");
  body.write('{"args":["a"]');
  body.write("}", body.length - 1);
  const ask = () => send(server.socket, execPath, { method: "POST", body });
  const held = Array.from({ length: 8 }, ask);
  await enough.promise;
  const refused = await ask();
  assert.deepEqual([refused.status, refused.json.code], [429, "capacity_exhausted"]);
  assert.equal(refused.json.details.which, "large requests");
  assert.equal((await post(server.socket, "/v1/cleanup", {})).status, 200);
  release.resolve();
  for (const answer of await Promise.all(held)) assert.equal(answer.status, 200);
  assert.equal((await ask()).status, 200);
});

test("a label given thousands of times is refused for its count before it costs work", async () => {
  await using server = await startServer({});
  const many = (name: string, value: string) =>
    Array.from({ length: 2000 }, () => `${name}=${value}`).join("&");
  const labels = await send(server.socket, `/v1/sandboxes?${many("label", "")}`);
  assert.deepEqual([labels.status, labels.json.code], [400, "invalid_request"]);
  const types = await send(server.socket, `/v1/events?type=${"sandbox.*,".repeat(64)}sandbox.*`);
  assert.match(types.json.error, /type: must be at most 64/);
});
