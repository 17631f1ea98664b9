import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import http from "node:http";
import net from "node:net";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";
import { test } from "node:test";
import { idA, openFakeDaemon, sandbox } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

const base = `/v1/sandboxes/${idA}`;
const get = { [`GET ${base}`]: { json: sandbox(idA) } };
const info = {
  port: 3000,
  public: false,
  url: `http://3000-${idA}.localhost:8889/`,
  path: `${base}/ports/3000/proxy/`,
  opened_at_unix: 1_794_799_968,
  connections: 2,
};

test("port opens a port and prints its address with the token", async () => {
  await using daemon = await openFakeDaemon({
    ...get,
    [`POST ${base}/ports`]: ({ body }) => ({
      status: 201,
      json: body.includes("true") ? { ...info, public: true } : { ...info, token: "secret" },
    }),
  });
  const plain = await runCli(["port", idA, "3000"], daemon);
  assert.deepEqual([plain.code, plain.stdout], [0, `${info.url}?forkd_token=secret\n`]);
  const open = await runCli(["port", idA, "3000", "--public", "--ttl", "10m"], daemon);
  assert.equal(open.stdout, `${info.url}\n`);
  const json = await runCli(["port", idA, "3000", "--json"], daemon);
  assert.equal((JSON.parse(json.stdout) as { token: string }).token, "secret");
  const bodies = daemon.asked.filter(({ method }) => method === "POST").map(({ body }) => body);
  assert.deepEqual(bodies, ['{"port":3000}', '{"port":3000,"public":true,"ttl_secs":600}', '{"port":3000}']);
});

test("port without a port and ports list what is open", async () => {
  await using daemon = await openFakeDaemon({
    ...get,
    "GET /v1/sandboxes": { json: [sandbox(idA)] },
    [`GET ${base}/ports`]: { json: [info] },
  });
  for (const args of [
    ["port", idA],
    ["ports", idA],
  ]) {
    const { stdout } = await runCli(args, daemon);
    assert.match(stdout, /^PORT +ACCESS +CONNECTIONS .*ADDRESS\n *3000 +token +2 .*localhost:8889\/\n$/);
  }
  assert.equal((await runCli(["ports", idA, "-q"], daemon)).stdout, "3000\n");
  assert.equal((await runCli(["__complete", "--", "port", idA, "30"], daemon)).stdout, "3000\n");
});

test("port --close closes a port, and refuses options that make no sense", async () => {
  await using daemon = await openFakeDaemon({ ...get, [`DELETE ${base}/ports/3000`]: { status: 204 } });
  assert.equal((await runCli(["port", idA, "3000", "--close"], daemon)).code, 0);
  for (const args of [["--close"], ["3000", "--close", "--public"], ["0"], ["70000"], ["http"], ["--public"]])
    assert.equal((await runCli(["port", idA, ...args], daemon)).code, 2, args.join(" "));
});

test("forward refuses pairs that are not ports", async () => {
  await using daemon = await openFakeDaemon(get);
  for (const pair of ["x", "1:2:3", "1:", "99999:1", "1:0"])
    assert.equal((await runCli(["forward", idA, pair], daemon)).code, 2, pair);
});

test("forward passes connections on and reports those that are refused", async (t) => {
  await using daemon = await openFakeDaemon(get);
  // The fake daemon has no tunnels, so this one stands in for it.
  const server = http.createServer((_, outgoing) =>
    outgoing.writeHead(200, { "content-type": "application/json" }).end(JSON.stringify(sandbox(idA))),
  );
  server.on("upgrade", ({ url }, socket) => {
    if (url !== `${base}/ports/7/tcp`) {
      const body = JSON.stringify({
        error: "Cannot connect: nothing listens",
        code: "port_refused",
        details: {},
      });
      return void socket.end(
        `HTTP/1.1 502 Bad Gateway\r\nContent-Length: ${body.length}\r\nConnection: close\r\n\r\n${body}`,
      );
    }
    socket.write("HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: forkd-tcp\r\n\r\nhi ");
    socket.on("data", (chunk: Buffer) => socket.write(chunk));
    socket.on("end", () => socket.end());
    socket.on("error", () => undefined);
  });
  const socketPath = join(daemon.dir, "tunnels");
  server.listen(socketPath);
  await once(server, "listening");
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const main = fileURLToPath(new URL("../../bundle/forkd.cjs", import.meta.url));
  const child = spawn(process.execPath, [main, "forward", idA, "0:7", ":8", "--json"], {
    env: { ...process.env, FORKD_SOCKET: socketPath },
    stdio: ["ignore", "pipe", "pipe"],
  });
  t.after(() => child.kill("SIGKILL"));
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  const next = async () => (JSON.parse((await lines.next()).value ?? "") as { port: number }).port;
  const [good, bad] = [await next(), await next()];
  for (let nth = 0; nth < 3; nth++) {
    const socket = net.connect({ port: good, host: "127.0.0.1", allowHalfOpen: true });
    socket.end(`bytes ${nth}`);
    assert.equal((await socket.toArray()).join(""), `hi bytes ${nth}`);
  }
  const reported = once(child.stderr, "data");
  const refused = net.connect(bad, "127.0.0.1").on("error", () => undefined);
  await once(refused.resume(), "close");
  assert.match(String((await reported)[0]), /^forkd: Cannot connect: nothing listens\n$/);
  const exited = once(child, "exit");
  child.kill("SIGINT");
  assert.deepEqual(await exited, [130, null]);
});
