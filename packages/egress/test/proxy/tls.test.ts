import assert from "node:assert/strict";
import type net from "node:net";
import test, { type TestContext } from "node:test";
import tls from "node:tls";
import { temporaryDirectory } from "@forkd/test-support";
import { InstallationCa } from "../../src/tls/ca.ts";
import { fixture, type Fixture } from "../support/fixture.ts";
import { once, patient, received } from "../support/sockets.ts";

const names = ["a.example", "b.example", "evil.example"];
const records = Object.fromEntries(names.map((name) => [name, ["127.0.0.1"]]));

/** A TLS server that says which name it was asked for. */
async function secureServer(t: TestContext): Promise<{ port: number; asked: unknown[] }> {
  const ca = await InstallationCa.open(await temporaryDirectory(t));
  const asked: unknown[] = [];
  const server = tls.createServer({ ...ca.leaf("a.example") }, (socket) => {
    asked.push(socket.servername);
    socket.on("error", () => undefined);
    socket.end(`hello ${String(socket.servername)}`);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => server.close());
  return { port: (server.address() as net.AddressInfo).port, asked };
}

type Secure = Fixture & {
  port: number;
  asked: unknown[];
  hello: (host: string, servername?: string) => Promise<string>;
};

async function secureFixture(t: TestContext): Promise<Secure> {
  const { port, asked } = await secureServer(t);
  const rules = [`allow a.example:${port}`, `allow b.example:${port}`, `allow 127.0.0.1:${port}`];
  const all = await fixture(t, { records, rules });
  const hello = async (host: string, servername?: string): Promise<string> => {
    const socket = await all.guest.dial(host, port);
    return sayHello(socket, servername);
  };
  return { ...all, port, asked, hello };
}

async function sayHello(socket: net.Socket, servername: string | undefined): Promise<string> {
  const options = servername === undefined ? {} : { servername };
  const secure = tls.connect({ socket, rejectUnauthorized: false, ...options });
  return patient(received(secure), "the end of TLS");
}

test("TLS passes unopened to the host that the hello names", async (t) => {
  const { hello, logged } = await secureFixture(t);
  assert.equal(await hello("a.example", "a.example"), "hello a.example");
  assert.equal(await hello("b.example", "B.EXAMPLE"), "hello B.EXAMPLE");
  const entry = await logged(({ event }) => event === "connected");
  assert.deepEqual([entry.via, entry.name], ["tls", "a.example"]);
});

test("the dialled name and the name of the hello must both be allowed", async (t) => {
  const { hello, asked, logged, port } = await secureFixture(t);
  assert.equal(await hello("a.example", "evil.example"), "");
  const entry = await logged(({ event, via }) => event === "denied" && via === "tls");
  assert.equal(entry.suggestion, `allow evil.example:${port}`);
  assert.equal(await hello("a.example", "xn--"), "");
  assert.deepEqual(asked, []);
  assert.equal(await hello("a.example", "b.example"), "hello b.example");
});

test("an address that no rule names needs a permitted name in the hello", async (t) => {
  const { hello } = await secureFixture(t);
  assert.equal(await hello("192.0.2.50", "a.example"), "hello a.example");
  assert.equal(await hello("192.0.2.50", "evil.example"), "");
  assert.equal(await hello("192.0.2.50"), "");
  // By its synthetic address the name is known without a hello.
  assert.equal(await hello("a.example"), "hello false");
});

test("CONNECT and TLS are checked one after the other", async (t) => {
  const { guest, port } = await secureFixture(t);
  const tunnel = async (servername: string): Promise<string> => {
    const socket = await guest.dial("10.0.2.2", 3128);
    socket.write(`CONNECT a.example:${port} HTTP/1.1\r\n\r\n`);
    const [answer] = (await once(socket, "data")) as [Buffer];
    assert.match(answer.toString(), /^HTTP\/1\.1 200 /);
    return sayHello(socket, servername);
  };
  assert.equal(await tunnel("a.example"), "hello a.example");
  assert.equal(await tunnel("evil.example"), "");
});

test("a hello that cannot be read, or that never ends, is reset", async (t) => {
  const { guest, port, logged, asked } = await secureFixture(t);
  const socket = await guest.dial("a.example", port);
  socket.write(Buffer.from([22, 3, 1, 0, 4, 2, 0, 0, 0]));
  assert.equal(await received(socket), "");
  await logged(({ reason }) => /TLS hello cannot be read/.test(reason ?? ""));
  const long = await guest.dial("a.example", port);
  long.write(Buffer.concat([Buffer.from([22, 3, 1, 0x40, 0, 1, 0, 0x3f, 0xff]), Buffer.alloc(16_383)]));
  assert.equal(await received(long), "");
  assert.deepEqual(asked, []);
});
