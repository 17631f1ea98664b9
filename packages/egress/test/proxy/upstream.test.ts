import assert from "node:assert/strict";
import http from "node:http";
import net from "node:net";
import test, { type TestContext } from "node:test";
import { until } from "@forkd/test-support";
import { connectToAny } from "../../src/proxy/upstream.ts";
import { fixture, machineId } from "../support/fixture.ts";
import { listening, once, received } from "../support/sockets.ts";

/** A proxy like those of company networks. Every name leads to 127.0.0.1. */
async function companyProxy(t: TestContext): Promise<{ url: string; asked: string[] }> {
  const asked: string[] = [];
  const server = http.createServer((request, response) => {
    asked.push(`${request.method} ${request.url} ${request.headers["proxy-authorization"]}`);
    response.end("by the proxy");
  });
  server.on("connect", (request, socket) => {
    asked.push(`CONNECT ${request.url} ${request.headers["proxy-authorization"]}`);
    const [name, port] = (request.url ?? "").split(":");
    if (name === "refused.example") {
      socket.end("HTTP/1.1 403 Forbidden\r\n\r\n");
      return;
    }
    const upstream = net.connect(Number(port), "127.0.0.1", () => {
      socket.write("HTTP/1.1 200 OK\r\nX-Any: 1\r\n\r\n");
      upstream.pipe(socket).pipe(upstream);
    });
    for (const each of [upstream, socket]) each.on("error", () => undefined);
    t.after(() => upstream.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { url: `http://me:pass%20word@127.0.0.1:${(server.address() as net.AddressInfo).port}`, asked };
}

test("the proxy of the host is used by name: tunnels for TCP, absolute URLs for HTTP", async (t) => {
  const port = await listening(t, (socket) => socket.end("banner"));
  const { url, asked } = await companyProxy(t);
  const { guest, dns } = await fixture(t, {
    rules: [`allow inner.example:${port}`, `allow refused.example:${port}`],
    configuration: { upstreamProxies: { http: url, https: url, none: "direct.example" } },
  });
  const credentials = `Basic ${Buffer.from("me:pass word").toString("base64")}`;
  const socket = await guest.dial("inner.example", port);
  assert.equal(await received(socket), "banner");
  assert.deepEqual(asked, [`CONNECT inner.example:${port} ${credentials}`]);
  const web = await guest.dial("inner.example", port);
  web.write("GET /x HTTP/1.1\r\nHost: inner.example\r\nConnection: close\r\n\r\n");
  assert.match(await received(web), /^HTTP\/1\.1 200 [^]*by the proxy/);
  assert.equal(asked[1], `GET http://inner.example:${port}/x ${credentials}`);
  await guest.refused("refused.example", port);
  // The host need not be able to resolve any name.
  assert.deepEqual(dns.asked, []);
});

test("a name of the guest does not lead to a dialled address that a ceiling allows only by that name", async (t) => {
  const port = await listening(t, (socket) => socket.end("HTTP/1.0 200 OK\r\n\r\n"));
  const { url, asked } = await companyProxy(t);
  const { guest, proxy } = await fixture(t, { configuration: { upstreamProxies: { https: url } } });
  const address = "203.0.113.7";
  const rules = [`allow ${address}`, `allow good.example:${port}`];
  const apply = (ceiling: string[]): Promise<void> =>
    proxy.update(machineId, {
      policy: { mode: "filtered", rules, ceilings: [{ mode: "filtered", rules: ceiling }] },
    });
  const get = async (): Promise<string | undefined> => {
    const socket = await guest.dial(address, port);
    socket.write("GET / HTTP/1.1\r\nHost: good.example\r\nConnection: close\r\n\r\n");
    assert.match(await received(socket), /^HTTP\/1\.1 200 /);
    return asked.at(-1)?.split(" ")[1];
  };
  await apply([`allow good.example:${port}`]);
  assert.equal(await get(), `good.example:${port}`);
  await apply([`allow good.example:${port}`, `allow ${address}:${port}`]);
  assert.equal(await get(), `${address}:${port}`);
});

test("a connection to a dialled address is reset when only the name of the guest stays allowed", async (t) => {
  const port = await listening(t, (socket) => socket.write("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n"));
  const { url, asked } = await companyProxy(t);
  const address = "203.0.113.7";
  const { guest, rules } = await fixture(t, {
    rules: [`allow ${address}`, `allow good.example:${port}`],
    configuration: { upstreamProxies: { https: url } },
  });
  const socket = await guest.dial(address, port);
  socket.write("GET / HTTP/1.1\r\nHost: good.example\r\n\r\n");
  await once(socket, "data");
  assert.match(asked.at(-1) ?? "", new RegExp(`^CONNECT ${address}:`));
  await rules([`allow good.example:${port}`]);
  await received(socket);
});

test("a slow client keeps no grant of the connection that was made before its first bytes", async (t) => {
  let connections = 0;
  const onConnection = (socket: net.Socket): void => {
    connections++;
    socket.on("data", () => socket.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"));
  };
  const port = await listening(t, onConnection, "0.0.0.0");
  const kept = [`allow good.example:${port}`, `allow 127.0.0.2:${port}`];
  const { guest, rules } = await fixture(t, {
    records: { "good.example": ["127.0.0.2"] },
    rules: [...kept, `allow 127.0.0.3:${port}`],
  });
  const socket = await guest.dial("127.0.0.3", port);
  await until("the address is connected", () => connections === 1);
  const get = async (): Promise<void> => {
    socket.write("GET / HTTP/1.1\r\nHost: good.example\r\n\r\n");
    await once(socket, "data");
  };
  await get();
  assert.equal(connections, 2);
  await rules(kept);
  await get();
});

test("connectToAny() uses the first address that answers", async (t) => {
  const port = await listening(t, (socket) => socket.end("answer"), "127.0.0.3");
  const socket = await connectToAny(["127.0.0.1", "127.0.0.2", "127.0.0.3"], port, "test");
  assert.equal(socket.remoteAddress, "127.0.0.3");
  assert.equal(await received(socket), "answer");
  await assert.rejects(
    connectToAny(["127.0.0.1", "127.0.0.2"], port, "a.example:1"),
    /Cannot connect to a\.example:1/,
  );
});
