import assert from "node:assert/strict";
import { once } from "node:events";
import http from "node:http";
import net from "node:net";
import { test } from "node:test";
import { AppError } from "@forkd/contract/wire";
import { Client } from "../src/client.ts";
import { Files } from "../src/files.ts";
import { Forkd } from "../src/forkd.ts";
import { nodeTransport } from "../src/node.ts";
import { fetchTransport } from "../src/transport.ts";
import { collect, readBody, startServer } from "./support.ts";

const names = ["fetch", "tcp", "unix"] as const;

for (const name of names) {
  test(`${name} transport sends method, path, headers and body`, async () => {
    await using server = await startServer((incoming, outgoing) => {
      void readBody(incoming).then((body) => {
        const { authorization = null } = incoming.headers;
        outgoing
          .writeHead(201)
          .end(JSON.stringify({ method: incoming.method, url: incoming.url, authorization, body }));
      });
    });
    const send = server.transports[name];
    const response = await send({ method: "POST", path: "/a?b=c", headers: {}, body: "text" });
    assert.equal(response.status, 201);
    const authorization = name === "unix" ? null : "Bearer secret";
    assert.deepEqual(JSON.parse(await response.text()), {
      method: "POST",
      url: "/a?b=c",
      authorization,
      body: "text",
    });
  });

  test(`${name} transport streams both ways`, async () => {
    await using server = await startServer((incoming, outgoing) => void incoming.pipe(outgoing));
    const send = server.transports[name];
    const body = (async function* () {
      for (let n = 0; n < 100; n++) yield Buffer.from(`${n},`);
    })();
    const response = await send({ method: "PUT", path: "/", headers: {}, body });
    assert.equal(await collect(response.body), Array.from({ length: 100 }, (_, n) => `${n},`).join(""));
  });

  test(`${name} transport yields chunks as they arrive, and closes the request when the reader stops`, async () => {
    let closed: Promise<unknown> | undefined;
    await using server = await startServer((_, outgoing) => {
      closed = once(outgoing, "close");
      outgoing.write("first");
    });
    const response = await server.transports[name]({ method: "GET", path: "/", headers: {} });
    for await (const chunk of response.body) {
      assert.equal(Buffer.from(chunk).toString(), "first");
      break;
    }
    await closed;
  });

  test(`${name} transport rejects with cancelled on abort before, during and after the headers`, async () => {
    await using server = await startServer((incoming, outgoing) => {
      if (incoming.url === "/stream") outgoing.write("x");
    });
    const send = server.transports[name];
    const aborted = AbortSignal.abort();
    await assert.rejects(send({ method: "GET", path: "/", headers: {}, signal: aborted }), {
      code: "cancelled",
    });
    const waiting = new AbortController();
    const pending = send({ method: "GET", path: "/", headers: {}, signal: waiting.signal });
    setTimeout(() => waiting.abort(), 20);
    await assert.rejects(pending, { code: "cancelled" });
    const reading = new AbortController();
    const response = await send({ method: "GET", path: "/stream", headers: {}, signal: reading.signal });
    await assert.rejects(
      async () => {
        for await (const _ of response.body) reading.abort();
      },
      { code: "cancelled" },
    );
  });

  test(`${name} transport rejects with daemon_unreachable when an answer is cut off`, async () => {
    await using server = await startServer((_, outgoing) => {
      outgoing.write("half", () => outgoing.destroy());
    });
    const send = server.transports[name];
    const request = { method: "GET", path: "/", headers: {} };
    await assert.rejects(async () => collect((await send(request)).body), { code: "daemon_unreachable" });
    await assert.rejects(async () => (await send(request)).text(), { code: "daemon_unreachable" });
  });
}

test("an early answer ends an endless upload", async () => {
  let returned: () => void = () => undefined;
  const ended = new Promise<void>((resolve) => (returned = resolve));
  await using server = await startServer((incoming, outgoing) => {
    incoming.once("data", () => {
      outgoing.writeHead(507).end("full");
      incoming.resume();
    });
  });
  const body = (async function* () {
    try {
      for (;;) yield Buffer.alloc(65536);
    } finally {
      returned();
    }
  })();
  const response = await server.transports.unix({ method: "PUT", path: "/", headers: {}, body });
  assert.equal(response.status, 507);
  assert.equal(await response.text(), "full");
  await ended;
});

test("an upload rejects with the error of its source", async () => {
  await using server = await startServer((incoming) => void incoming.resume());
  const body = (async function* () {
    yield Buffer.from("a");
    throw new RangeError("mine");
  })();
  await assert.rejects(server.transports.unix({ method: "PUT", path: "/", headers: {}, body }), RangeError);
});

test("a call without a daemon rejects with daemon_unreachable and a remedy", async () => {
  for (const [transport, action] of [
    [nodeTransport({ socket: "/nonexistent/forkd.sock" }), "start_daemon"],
    [nodeTransport({ url: "http://127.0.0.1:1" }), "check_address"],
    [fetchTransport({ url: "http://127.0.0.1:1" }), "check_address"],
  ] as const) {
    await assert.rejects(new Forkd({ transport }).version(), {
      code: "daemon_unreachable",
      message: /^Cannot reach the daemon at /,
      remedy: { action },
    });
  }
});

test("a failure status without an error body becomes internal and keeps the text", async () => {
  await using server = await startServer((_, outgoing) => void outgoing.writeHead(502).end("Bad Gateway"));
  const forkd = new Forkd({ transport: server.transports.tcp });
  await assert.rejects(forkd.version(), { code: "internal", details: { status: 502, body: "Bad Gateway" } });
});

test("an answer that is not JSON becomes internal", async () => {
  await using server = await startServer((_, outgoing) => void outgoing.end('{"version":'));
  const forkd = new Forkd({ transport: server.transports.unix });
  await assert.rejects(forkd.version(), { code: "internal" });
});

test("a daemon that cannot be reached by its address is not to be started", async () => {
  const failure = async (url: string) => {
    const error: unknown = await new Forkd({ transport: nodeTransport({ url }) })
      .version()
      .catch((e: unknown) => e);
    assert.ok(error instanceof AppError);
    assert.equal(error.code, "daemon_unreachable");
    assert.doesNotMatch(error.message, /\n|SSL|openssl/);
    return [error.message.replace(/^.*?: (?=[^/])/, ""), error.remedy];
  };
  const [, unknown] = await failure("http://nosuchhost.invalid:8889");
  assert.deepEqual(unknown, { action: "check_address" });
  const plain = http.createServer((_, outgoing) => outgoing.end("{}"));
  // Like a TLS server that gets a request in plain text.
  const closing = net.createServer((socket) => socket.once("data", () => socket.destroy()));
  for (const server of [plain, closing])
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const portOf = (server: net.Server) => (server.address() as net.AddressInfo).port;
  try {
    const host = `127.0.0.1:${portOf(plain)}`;
    assert.deepEqual(await failure(`https://${host}`), [
      "it does not use TLS",
      { action: "use_address", url: `http://${host}` },
    ]);
    const other = `127.0.0.1:${portOf(closing)}`;
    assert.deepEqual(await failure(`http://${other}`), [
      "it closed the connection without an answer",
      { action: "try_tls", url: `https://${other}` },
    ]);
  } finally {
    plain.closeAllConnections();
    for (const server of [plain, closing]) await new Promise((resolve) => server.close(resolve));
  }
});

test("files.read() names the guest if the daemon cuts a download and still answers", async () => {
  const id = "sb-000000000000000000000001";
  let state = "running";
  await using server = await startServer((incoming, outgoing) => {
    if (!incoming.url?.includes("/files")) {
      outgoing.end(JSON.stringify({ id, state, reason: "VMM killed by SIGKILL" }));
      return;
    }
    outgoing.write("half");
    setImmediate(() => outgoing.destroy());
  });
  for (const name of names) {
    const read = () => new Files(new Client(server.transports[name]), id).read("/x");
    state = "running";
    await assert.rejects(read(), {
      code: "agent_unreachable",
      message: /The transfer of "\/x" from sb-0+1 was cut/,
    });
    state = "dead";
    await assert.rejects(read(), { code: "sandbox_dead", message: /VMM killed by SIGKILL/ });
  }
});
