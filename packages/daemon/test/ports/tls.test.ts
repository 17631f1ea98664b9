import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import https from "node:https";
import type { Duplex } from "node:stream";
import { test } from "node:test";
import tls from "node:tls";
import { nullLogger, Scope } from "@forkd/base";
import type { SandboxInfo } from "@forkd/contract";
import { fetchTransport, Forkd } from "@forkd/sdk";
import { connect } from "@forkd/sdk/node";
import { rejectsWith } from "@forkd/test-support";
import { Tls } from "../../src/access/tls.ts";
import { makePair } from "../access/certificate.ts";
import { deferred, sandboxId, temporaryDir, token } from "../support.ts";
import { hostOf, httpGuest, portToken, rawGuest, startPorts } from "./support.ts";

test("tunnels, host names and requests with an unknown Upgrade work over TLS", async (t) => {
  await using scope = new Scope();
  const pair = await makePair(await temporaryDir(scope), "own");
  using secure = await Tls.open(pair, nullLogger());
  const server = await startPorts(t, { server: { tls: secure } });
  assert.match(server.url, /^https:/);

  const echo = await rawGuest(t, (socket) => void socket.pipe(socket));
  const forkd = await connect({ url: server.url, token, caFile: pair.cert });
  const sandbox = await forkd.sandboxes.get(sandboxId);
  const stream = await sandbox.ports.connect(echo.port);
  stream.end("over TLS");
  const chunks: Uint8Array[] = [];
  for await (const chunk of stream) chunks.push(chunk);
  assert.equal(Buffer.concat(chunks).toString(), "over TLS");
  const speaker = await rawGuest(t, (socket) => {
    socket.end("bye");
    socket.on("data", (chunk: Buffer) => heard.resolve(chunk.toString()));
  });
  const heard = deferred<string>();
  const plain = await connect({ socket: server.socket });
  const other = await (await plain.sandboxes.get(sandboxId)).ports.connect(speaker.port);
  const ended: Uint8Array[] = [];
  for await (const chunk of (other as unknown as Duplex).iterator({ destroyOnReturn: false }))
    ended.push(chunk as Uint8Array);
  assert.equal(Buffer.concat(ended).toString(), "bye");
  other.end("still here");
  assert.equal(await heard.promise, "still here");
  await rejectsWith(sandbox.ports.connect(1), "port_refused");
  const distrusting = await connect({ url: server.url, token });
  await rejectsWith(distrusting.call("listSandboxes", {}), "daemon_unreachable", /certificate/);

  const { port } = await httpGuest(t, ({ headers }, response) => response.end(headers["x-forwarded-proto"]));
  server.open.set(port, { public: false, token: portToken });
  const ca = await readFile(pair.cert);
  const visit = await new Promise<string>((resolve, reject) =>
    https
      .get(
        `${server.url}/?forkd_token=${portToken}`,
        { ca, agent: false, servername: "localhost", headers: { host: hostOf(port) } },
        (answer) => resolve(String(answer.resume().headers["set-cookie"])),
      )
      .once("error", reject),
  );
  assert.match(visit, /; Secure$/);

  const socket = tls.connect({ port: Number(new URL(server.url).port), host: "127.0.0.1", ca });
  socket.write(
    `GET / HTTP/1.1\r\nHost: ${hostOf(port)}\r\nX-Forkd-Port-Token: ${portToken}\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n` +
      `GET /v1/sandboxes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer ${token}\r\nConnection: close\r\n\r\n`,
  );
  const text = (await socket.toArray()).join("");
  assert.match(text, /^HTTP\/1.1 200 [^]*https[^]*HTTP\/1.1 200 [^]*\[\]/);
});

test("ports.connect() says what is missing where the transport carries only requests", async () => {
  const info = { id: sandboxId } as SandboxInfo;
  const answer = async () => new Response(JSON.stringify(info), { status: 200 });
  const forkd = new Forkd({ transport: fetchTransport({ url: "http://unused.test", fetch: answer }) });
  const sandbox = await forkd.sandboxes.get(sandboxId);
  await rejectsWith(sandbox.ports.connect(3000), "unsupported", /carries only requests/);
});
