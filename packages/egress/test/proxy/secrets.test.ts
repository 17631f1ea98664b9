import assert from "node:assert/strict";
import http from "node:http";
import https from "node:https";
import type net from "node:net";
import test from "node:test";
import tls from "node:tls";
import { temporaryDirectory } from "@forkd/test-support";
import { InstallationCa } from "../../src/tls/ca.ts";
import { TlsInterceptor } from "../../src/tls/interceptor.ts";
import { fixture } from "../support/fixture.ts";
import { once, patient, received } from "../support/sockets.ts";

const placeholder = `forkd-secret-${"ab".repeat(16)}`;
const value = "sk-the-real-value";

function bodyOf(request: http.ClientRequest): Promise<{ status: number; body: string }> {
  const work = new Promise<{ status: number; body: string }>((resolve, reject) => {
    request.on("error", reject);
    request.on("response", (response) => {
      let body = "";
      response.setEncoding("utf8").on("data", (text: string) => (body += text));
      response.on("end", () => resolve({ status: response.statusCode ?? 0, body }));
    });
    request.end();
  });
  return patient(work, "a response");
}

test("a secret reaches its host by interception and by the gateway, and no other host", async (t) => {
  const ca = await InstallationCa.open(await temporaryDirectory(t));
  const seen: (string | undefined)[] = [];
  const server = https.createServer({ ...ca.leaf("api.example") }, (request, response) => {
    seen.push(`${request.url} ${request.headers.authorization}`);
    response.end(`you sent ${request.headers.authorization}`);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const { port } = server.address() as net.AddressInfo;
  const interceptor = new TlsInterceptor({ ca, roots: [ca.certificatePem()] });
  t.after(() => interceptor[Symbol.dispose]());
  const { guest, proxy } = await fixture(t, {
    records: { "api.example": ["127.0.0.1"], "other.example": ["127.0.0.1"] },
    rules: [`allow *:${port}`, `allow 127.0.0.1:${port}`],
    secrets: [
      {
        name: "API_KEY",
        placeholder,
        value,
        hosts: [`api.example:${port}`],
        header: "authorization",
        format: "Bearer {}",
      },
    ],
    interceptor,
  });
  const socket = await guest.dial("api.example", port);
  const secure = tls.connect({ socket, servername: "api.example", ca: ca.certificatePem() });
  const { body } = await bodyOf(
    http.request({
      createConnection: () => secure,
      path: "/tls",
      headers: { Host: "api.example", Authorization: `Bearer ${placeholder}` },
    }),
  );
  assert.equal(seen.at(-1), `/tls Bearer ${value}`);
  assert.ok(!body.includes(value), body);

  assert.equal(await guest.resolve("secrets.internal"), "10.0.2.2");
  const gateway = await guest.dial("secrets.internal", 80);
  const reply = await bodyOf(
    http.request({
      createConnection: () => gateway,
      path: "/API_KEY/v1?x=1",
      headers: { Host: "secrets.internal" },
    }),
  );
  assert.equal(reply.status, 200);
  assert.equal(seen.at(-1), `/v1?x=1 Bearer ${value}`);
  assert.ok(!reply.body.includes(value), reply.body);

  const plain = await guest.dial("other.example", port);
  plain.write(`GET / HTTP/1.1\r\nHost: other.example\r\nAuthorization: Bearer ${placeholder}\r\n\r\n`);
  assert.match(await received(plain), /^HTTP\/1\.1 403 /);
  assert.equal(seen.length, 2);

  await proxy.update("m1", { secrets: [] });
  assert.equal(await guest.resolve("secrets.internal"), 3);
});
