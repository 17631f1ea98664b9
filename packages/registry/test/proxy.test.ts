/** Registries behind the HTTP proxy of a host. */
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import http from "node:http";
import https from "node:https";
import net, { type AddressInfo } from "node:net";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { Registries, type RegistriesOptions } from "../src/registries.ts";
import { startLiar } from "./liar.ts";

const name = "registry.invalid";

async function listen(t: TestContext, server: http.Server | https.Server): Promise<number> {
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return (server.address() as AddressInfo).port;
}

/** A registry with TLS for the name, whose address only the proxy knows. */
async function startSecure(t: TestContext): Promise<{ port: number; caFile: string }> {
  const directory = await temporaryDirectory(t);
  const key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"];
  const names = ["-subj", `/CN=${name}`, "-addext", `subjectAltName=DNS:${name}`];
  const files = ["-keyout", "key.pem", "-out", "cert.pem"];
  execFileSync("openssl", ["req", "-x509", ...key, ...names, ...files], { cwd: directory, stdio: "pipe" });
  const [keyFile, caFile] = [join(directory, "key.pem"), join(directory, "cert.pem")];
  const options = { key: readFileSync(keyFile), cert: readFileSync(caFile) };
  const server = https.createServer(options, (_request, response) => response.end('{"tags":["v1"]}'));
  return { port: await listen(t, server), caFile };
}

type Proxy = { url: string; requests: string[]; authorizations: (string | undefined)[] };

/** Connects every name to `port` of this host, unless it refuses with a status. */
async function startProxy(t: TestContext, port: number, refusal?: number): Promise<Proxy> {
  const requests: string[] = [];
  const authorizations: (string | undefined)[] = [];
  const note = ({ method, url, headers }: http.IncomingMessage): void => {
    requests.push(`${method} ${url}`);
    authorizations.push(headers["proxy-authorization"]);
  };
  const open = new Set<net.Socket>();
  const server = http.createServer((request, response) => {
    note(request);
    response.end('{"tags":["plain"]}');
  });
  server.on("connect", (request, client: net.Socket) => {
    note(request);
    if (refusal !== undefined) return void client.end(`HTTP/1.1 ${refusal} No\r\n\r\n`);
    const upstream = net.connect(port, "127.0.0.1", () => {
      client.write("HTTP/1.1 200 Connection established\r\n\r\n");
      client.pipe(upstream).pipe(client);
    });
    for (const socket of [client, upstream]) {
      open.add(socket);
      socket.on("error", () => socket.destroy());
    }
  });
  t.after(() => open.forEach((socket) => socket.destroy()));
  return { url: `http://127.0.0.1:${await listen(t, server)}`, requests, authorizations };
}

function tagsOf(t: TestContext, registry: string, options: RegistriesOptions): Promise<string[]> {
  const registries = new Registries({ retries: { attempts: 1, firstMs: 1, maxMs: 1 }, ...options });
  t.after(() => registries[Symbol.dispose]());
  return registries.repository({ registry, repository: "x" }).tags();
}

test("a registry with TLS is reached through a tunnel of the proxy, which sees only its name", async (t) => {
  const { port, caFile } = await startSecure(t);
  const proxy = await startProxy(t, port);
  const environment = { HTTPS_PROXY: proxy.url.replace("http://", "http://me:p%40ss@") };
  assert.deepEqual(await tagsOf(t, name, { caFile, environment }), ["v1"]);
  assert.deepEqual(proxy.requests, [`CONNECT ${name}:443`]);
  assert.deepEqual(proxy.authorizations, [`Basic ${Buffer.from("me:p@ss").toString("base64")}`]);
});

test("the certificate is checked behind the proxy", async (t) => {
  const { port } = await startSecure(t);
  const { url } = await startProxy(t, port);
  await rejectsWith(tagsOf(t, name, { environment: { https_proxy: url } }), "registry_failed", /TLS/);
});

test("a registry without TLS is asked for through the proxy of plain HTTP", async (t) => {
  const proxy = await startProxy(t, 1);
  const environment = { http_proxy: proxy.url };
  assert.deepEqual(await tagsOf(t, `${name}:5000`, { plainHttp: true, environment }), ["plain"]);
  assert.deepEqual(proxy.requests, [`GET http://${name}:5000/v2/x/tags/list?n=1000`]);
});

test("no_proxy and registries on this host are reached directly", async (t) => {
  const proxy = await startProxy(t, 1);
  const environment = { http_proxy: proxy.url, https_proxy: proxy.url, no_proxy: `.invalid` };
  await rejectsWith(tagsOf(t, name, { environment }), "registry_unreachable", /no host|EAI_AGAIN/);
  const local = await startLiar(t, (_request, response) => response.end('{"tags":["here"]}'));
  assert.deepEqual(await tagsOf(t, local.address, { environment }), ["here"]);
  assert.deepEqual(proxy.requests, []);
});

test("a registry that is silent behind the proxy is given up", async (t) => {
  const silent = http.createServer();
  silent.on("connection", (socket) => socket.on("error", () => socket.destroy()));
  silent.on("clientError", () => undefined);
  const { url } = await startProxy(t, await listen(t, silent));
  const asked = tagsOf(t, name, { environment: { https_proxy: url }, silenceMs: 300 });
  await rejectsWith(asked, "registry_unreachable", /no answer for 0.3 s/);
});

test("a proxy that refuses, or cannot be used, is named", async (t) => {
  const { url } = await startProxy(t, 1, 407);
  const refused = tagsOf(t, name, { environment: { https_proxy: url } });
  await rejectsWith(refused, "registry_failed", /the proxy 127\.0\.0\.1:\d+ answers with status 407/);
  const busy = await startProxy(t, 1, 503);
  const later = tagsOf(t, name, { environment: { https_proxy: busy.url } });
  await rejectsWith(later, "registry_unreachable", /status 503/);
  const gone = tagsOf(t, name, { environment: { https_proxy: "http://127.0.0.1:1" } });
  await rejectsWith(
    gone,
    "registry_unreachable",
    /cannot use the proxy 127\.0\.0\.1:1: connect ECONNREFUSED/,
  );
  const unusable = tagsOf(t, name, { environment: { https_proxy: "socks5://me:s3cret@p:1" } });
  await rejectsWith(unusable, "host_not_ready", /^Cannot use the proxy "p:1": only http/);
});
