/** Bytes that are not a request get an error with a body, in order, and end only their own connection. */
import assert from "node:assert/strict";
import net from "node:net";
import { test } from "node:test";
import { AppError } from "@forkd/contract";
import { deferred, startServer } from "../support.ts";

type Reply = { status: number; headers: string; body: string };

/** Everything that comes back until the server closes. */
function exchange(
  socket: string,
  text: string,
  after: (client: net.Socket) => void = () => undefined,
): Promise<Reply[]> {
  return new Promise((resolve, reject) => {
    const client = net.connect(socket);
    let received = "";
    client.on("data", (chunk: Buffer) => (received += chunk.toString("latin1")));
    client.once("error", reject);
    client.once("end", () => client.end());
    client.once("close", () => resolve(repliesIn(received)));
    client.write(Buffer.from(text, "latin1"), () => after(client));
  });
}

function repliesIn(text: string): Reply[] {
  const replies: Reply[] = [];
  for (let rest = text; rest !== "";) {
    const end = rest.indexOf("\r\n\r\n");
    assert.notEqual(end, -1, rest);
    const headers = rest.slice(0, end);
    const length = Number(/^content-length: (\d+)/im.exec(headers)?.[1]);
    const body = rest.slice(end + 4, end + 4 + length);
    assert.equal(body.length, length, headers);
    replies.push({ status: Number(headers.split(" ")[1]), headers, body });
    rest = rest.slice(end + 4 + length);
  }
  return replies;
}

function assertError({ status, headers, body }: Reply, code: string, message: RegExp, due = 400): void {
  assert.equal(status, due, body);
  const error = JSON.parse(body) as { error: string; code: string; details: object; request_id: string };
  assert.equal(error.code, code);
  assert.match(error.error, message);
  assert.deepEqual(error.details, {});
  assert.ok(headers.toLowerCase().includes(`x-request-id: ${error.request_id}`), headers);
}

const post = "POST /v1/gc HTTP/1.1\r\nHost: x\r\n";

test("bytes that are not a request get invalid_request", async () => {
  await using server = await startServer({});
  const table: [string, RegExp][] = [
    ["hello\r\n\r\n", /not HTTP/],
    ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", /not HTTP/],
    [`GET /${"x".repeat(20_000)} HTTP/1.1\r\nHost: x\r\n\r\n`, /longer than 16 KiB/],
    [`GET / HTTP/1.1\r\nHost: x\r\nA: ${"x".repeat(20_000)}\r\n\r\n`, /longer than 16 KiB/],
    [`${post}Content-Length: -1\r\n\r\n`, /not HTTP/],
    [`${post}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`, /not HTTP/],
    [`${post}Transfer-Encoding: chunked\r\n\r\nzz\r\n`, /not HTTP/],
    [`${post}Expect: miracles\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}`, /miracles/],
    ["GET / HTTP/1.1\r\nHost: evil:99999\r\nConnection: close\r\n\r\n", /bad URL or Host/],
  ];
  for (const [text, message] of table) {
    const replies = await exchange(server.socket, text);
    assert.equal(replies.length, 1, text.slice(0, 100));
    if (replies[0]) assertError(replies[0], "invalid_request", message);
  }
});

test("a client that sends far too much can still read the error", async () => {
  await using server = await startServer({});
  const [reply] = await exchange(server.socket, `GET /${"x".repeat(2_000_000)} HTTP/1.1\r\nHost: x\r\n\r\n`);
  assert.ok(reply);
  assertError(reply, "invalid_request", /longer than 16 KiB/);
});

test("CONNECT is refused, even if the client does not wait for the answer", async () => {
  await using server = await startServer({ health: () => ({ ok: true }) });
  const [reply] = await exchange(server.socket, "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n");
  assert.ok(reply);
  assertError(reply, "method_not_allowed", /no tunnels/, 405);
  await exchange(server.socket, "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", (client) => client.destroy());
  const again = await exchange(
    server.socket,
    "GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n",
  );
  assert.equal(again[0]?.status, 200);
});

test("a fault after good requests is answered after their answers", async () => {
  const goOn = deferred();
  await using server = await startServer({
    health: async () => {
      await goOn.promise;
      return { ok: true };
    },
  });
  const good = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n";
  const replies = await exchange(server.socket, `${good}${good}garbage\r\n\r\n`, () =>
    setImmediate(goOn.resolve),
  );
  assert.deepEqual(
    replies.map(({ status }) => status),
    [200, 200, 400],
  );
});

test("a client that disconnects in the middle of its body gets cancelled, not internal", async () => {
  const failed = deferred<unknown>();
  await using server = await startServer({
    writeFile: async (_input, { content }) => {
      try {
        for await (const bytes of content) void bytes;
      } catch (error) {
        failed.resolve(error);
        throw error;
      }
      throw new Error("the content has an end");
    },
  });
  const put = "PUT /v1/sandboxes/sb-0123456789abcdef01234567/files?path=/x HTTP/1.1\r\nHost: x\r\n";
  await exchange(server.socket, `${put}Content-Length: 100\r\n\r\nsome`, (client) => client.destroy());
  const error = await failed.promise;
  assert.ok(error instanceof AppError);
  assert.equal(error.code, "cancelled");
});

test("a request that names two hosts is refused", async () => {
  await using server = await startServer({ version: () => ({}) as never });
  const ask = async (target: string, ...hosts: string[]) => {
    const headers = hosts.map((host) => `Host: ${host}\r\n`).join("");
    const [reply] = await exchange(
      server.socket,
      `GET ${target} HTTP/1.1\r\n${headers}Connection: close\r\n\r\n`,
    );
    return [reply?.status, /"error":"([^"]*)"/.exec(reply?.body ?? "")?.[1]];
  };
  assert.deepEqual(await ask("/version", "localhost", "evil.example"), [
    400,
    "Invalid request: the header Host is given twice",
  ]);
  assert.equal((await ask("/version", "localhost", "localhost"))[0], 400);
  assert.deepEqual(await ask("http://evil.example/version", "localhost"), [
    400,
    "Invalid request: its URL and its header Host name different hosts",
  ]);
  assert.equal((await ask("http://localhost:81/version", "localhost"))[0], 400);
  assert.equal((await ask("http://LocalHost:80/version", "localhost"))[0], 200);
  assert.equal((await ask("http://localhost:9/version", "localhost:9"))[0], 200);
});
