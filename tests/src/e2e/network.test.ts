/** Where sandboxes can connect to: real guests, a server in a namespace of the test, and one daemon. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { readJson } from "@forkd/base";
import { connect } from "@forkd/sdk/node";
import type { Forkd, Sandbox } from "@forkd/sdk";
import { rejectsWith, until } from "@forkd/test-support";
import { z } from "zod";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { dialIn, fetchIn, python, resolveIn } from "../support/guest-net.ts";
import { openOutside, type Outside } from "../support/outside/outside.ts";

const isRoot = process.getuid?.() === 0;
const skip = isRoot ? false : "needs root: it makes a network namespace with servers";
const reset = /ConnectionResetError|RemoteDisconnected|closed|BrokenPipe|SSLEOFError|SSLError|URLError/;

let outside: Outside;
let daemon: TestDaemon;
/** listens on the loopback of the host */
let hostServer: Server;
let hostPort: number;
before(async () => {
  if (!isRoot) return;
  outside = await openOutside(["example.test", "api.example.test", "other.test"]);
  daemon = await startDaemon({
    snapshots: ["python"],
    env: {
      FORKD_LISTEN: "127.0.0.1:0",
      FORKD_NETWORK_RESOLVER: outside.resolver,
      FORKD_NETWORK_DENY: "deny denied.test",
    },
  });
  hostServer = createServer((socket) => socket.end("the host answered"));
  await new Promise<void>((resolve) => hostServer.listen(0, resolve));
  const address = hostServer.address();
  hostPort = typeof address === "object" && address ? address.port : 0;
});
afterEach(async () => {
  if (!isRoot) return;
  await daemon.forkd.call("killAll", {});
  await outside.forget();
  outside.queries.length = 0;
});
after(async () => {
  hostServer?.close();
  await daemon?.[Symbol.asyncDispose]();
  await outside?.[Symbol.asyncDispose]();
});

function fork(rules: readonly string[], mode?: "none" | "filtered" | "open"): Promise<Sandbox> {
  return daemon.forkd.create("python", { network: { rules: [...rules], ...(mode && { mode }) } });
}

async function address(): Promise<{ url: string; token: string }> {
  const record = await readJson(join(daemon.dataDir, "daemon.json"));
  const token = (await readFile(join(daemon.dataDir, "token"), "utf8")).trim();
  return { url: z.object({ url: z.string() }).parse(record).url, token };
}

/** A client that calls over TCP with a key. */
async function startDaemonClient(key: string): Promise<Forkd> {
  return connect({ url: (await address()).url, token: key });
}

async function denials(sandbox: Sandbox): Promise<{ destination: string; suggestion: string | undefined }[]> {
  const found: { destination: string; suggestion: string | undefined }[] = [];
  for await (const { event, name, address, port, suggestion } of sandbox.network.log())
    if (event === "denied") found.push({ destination: `${name ?? address}:${port}`, suggestion });
  return found;
}

test(
  "by default a sandbox reaches nothing: no name, no address, no host, no metadata, no sibling",
  { skip },
  async () => {
    const sandbox = await daemon.forkd.create("python");
    const sibling = await daemon.forkd.create("python");
    assert.equal(sandbox.info.network?.mode, "filtered");
    assert.equal(sandbox.info.jail, "root");
    assert.equal(await resolveIn(sandbox, "example.test"), "gaierror");
    assert.deepEqual(outside.queries, []);
    await sibling.eval(
      "import socket, threading\ns = socket.create_server(('0.0.0.0', 7777))\nthreading.Thread(target=lambda: [s.accept()[0].sendall(b'sibling') for _ in range(9)], daemon=True).start()",
    );
    for (const [host, port] of [
      [outside.address, 80],
      [outside.address, 5432],
      [outside.hostAddress, hostPort],
      ["10.0.2.2", hostPort],
      ["127.0.0.1", hostPort],
      ["169.254.169.254", 80],
      ["10.0.2.15", 7777],
      ["10.0.2.16", 7777],
      ["0.0.0.0", hostPort],
    ] as const) {
      const answer = await dialIn(sandbox, host, port, "GET / HTTP/1.0\r\nHost: example.test\r\n\r\n");
      assert.match(
        answer,
        /^(ConnectionResetError|ConnectionRefusedError|OSError|TimeoutError|closed|HTTP\/1\.1 403)/,
        `${host}:${port} ${answer}`,
      );
    }
    assert.deepEqual(await outside.seen(), []);
    await until("the denials are logged", async () => {
      const found = await denials(sandbox);
      return found.some(
        ({ suggestion }) =>
          suggestion === `allow tcp ${outside.address}:5432` ||
          suggestion?.includes(`${outside.address}:5432`),
      );
    });
  },
);

test("allowing a name and a port permits exactly that", { skip }, async () => {
  const sandbox = await fork(["allow example.test:80"]);
  const { status, body } = await fetchIn(sandbox, "http://example.test/hello");
  assert.deepEqual(
    [status, JSON.parse(body)],
    [200, { host: "example.test", method: "GET", url: "/hello", bytes: 0 }],
  );
  assert.match(await resolveIn(sandbox, "example.test"), /^198\.1[89]\./);
  assert.equal(await resolveIn(sandbox, "other.test"), "gaierror");
  assert.equal((await fetchIn(sandbox, "http://example.test:8080/")).status, 0);
  assert.match((await fetchIn(sandbox, "https://example.test/")).body, reset);
  // By address, with the permitted name or with another one.
  const byAddress = await fetchIn(sandbox, `http://${outside.address}/`);
  assert.equal(byAddress.status, 403);
  assert.equal((await fetchIn(sandbox, "http://example.test/", { Host: "other.test" })).status, 403);
  assert.equal((await fetchIn(sandbox, "http://example.test/", { Host: "169.254.169.254" })).status, 403);
  const seen = await outside.seen();
  assert.deepEqual(
    seen.map(({ headers }) => headers["host"]),
    ["example.test"],
  );
});

test("HTTPS passes by its server name only", { skip }, async () => {
  const sandbox = await fork(["allow example.test:443"]);
  assert.equal((await fetchIn(sandbox, "https://example.test/tls", {}, false)).status, 200);
  const handshake = (host: string, name: string | undefined) =>
    python(
      sandbox,
      `(lambda c: c(socket.create_connection((${JSON.stringify(host)}, 443), timeout=20)))(lambda s: __import__("builtins")._net["shake"](s, ${JSON.stringify(name ?? null).replace("null", "None")}))`,
    );
  await sandbox.eval(
    "import builtins, ssl\ndef shake(s, name):\n    c = ssl.create_default_context(); c.check_hostname = False; c.verify_mode = ssl.CERT_NONE\n    try:\n        with c.wrap_socket(s, server_hostname=name) as t: return t.version()\n    except Exception as e: return type(e).__name__\nbuiltins._net['shake'] = shake",
  );
  assert.match(String(await handshake("example.test", "example.test")), /^TLS/);
  assert.match(String(await handshake("example.test", "other.test")), reset);
  // Without a server name the address decides, which stands for the permitted name.
  assert.match(String(await handshake("example.test", undefined)), /^TLS/);
  assert.match(String(await handshake(outside.address, undefined)), reset);
});

test(
  "keep-alive requests are checked one by one, and redirects to metadata lead nowhere",
  { skip },
  async () => {
    const sandbox = await fork(["allow example.test:80"]);
    const pipelined = ["example.test", "other.test"]
      .map((host) => `GET /${host} HTTP/1.1\r\nHost: ${host}\r\n\r\n`)
      .join("");
    const raw = await sandbox.eval(
      `s = __import__("socket").create_connection(("example.test", 80), timeout=20)\ns.sendall(${JSON.stringify(pipelined)}.encode() + b"GET / HTTP/1.1\\r\\nHost: example.test\\r\\nConnection: close\\r\\n\\r\\n")\nout = b""\nwhile True:\n    try: part = s.recv(4096)\n    except Exception: break\n    if not part: break\n    out += part\nprint(out.decode())`,
      { timeoutMs: 60_000 },
    );
    assert.match(raw.stdout, /200 OK[\s\S]*403/);
    assert.equal(
      (await outside.seen()).some(({ headers }) => headers["host"] === "other.test"),
      false,
    );
    const { status } = await fetchIn(sandbox, "http://example.test/to-metadata");
    assert.equal(status, 302);
    assert.equal((await fetchIn(sandbox, "http://169.254.169.254/")).status, 403);
  },
);

test("rules by name and by address carry any protocol; ranges of ports hold", { skip }, async () => {
  const sandbox = await fork(["allow example.test:5432", `allow ${outside.address}/32:7000-7010`]);
  assert.equal(await dialIn(sandbox, "example.test", 5432, "hello"), "hello");
  assert.equal(await dialIn(sandbox, outside.address, 7005, "by address"), "by address");
  assert.match(await dialIn(sandbox, outside.address, 5432, "x"), /ConnectionResetError|closed/);
});

test("UDP passes only where a rule says so", { skip }, async () => {
  const sandbox = await fork(["allow udp example.test:123"]);
  const ask = (port: number) =>
    sandbox.eval(
      `import socket\nu = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.settimeout(5)\ntry:\n    u.connect(("example.test", ${port})); u.send(b"time"); print(u.recv(100).decode())\nexcept Exception as e: print(type(e).__name__)`,
      { timeoutMs: 60_000 },
    );
  assert.equal((await ask(123)).stdout.trim(), "udp:time");
  assert.match((await ask(124)).stdout.trim(), /ConnectionRefusedError|timeout|TimeoutError/);
});

test("a deny before an allow wins, and settings cannot be overridden", { skip }, async () => {
  const sandbox = await fork(["deny api.example.test", "allow *.example.test:80", "allow example.test:80"]);
  assert.equal(await resolveIn(sandbox, "api.example.test"), "gaierror");
  assert.equal((await fetchIn(sandbox, "http://example.test/")).status, 200);
  outside.names.set("denied.test", [outside.address]);
  const bold = await fork(["allow denied.test:80"], "open");
  assert.equal(await resolveIn(bold, "denied.test"), "gaierror");
  assert.equal((await fetchIn(bold, "http://example.test/", { Host: "denied.test" })).status, 403);
});

test("open reaches public addresses only, whatever a name resolves to", { skip }, async () => {
  const sandbox = await fork([], "open");
  assert.equal((await fetchIn(sandbox, "http://example.test/")).status, 200);
  for (const [name, address] of [
    ["loopback.test", "127.0.0.1"],
    ["metadata.test", "169.254.169.254"],
    ["private.test", "192.168.1.1"],
    ["host.test", outside.hostAddress],
    ["mapped.test", "::ffff:127.0.0.1"],
  ] as const) {
    outside.names.set(name, [address]);
    const { status, body } = await fetchIn(sandbox, `http://${name}:${hostPort}/`);
    assert.ok(status === 0 || status === 403 || status === 502, `${name}: ${status} ${body}`);
    assert.doesNotMatch(body, /the host answered/);
  }
});

test("a name that changes its address between check and connection is not followed", { skip }, async () => {
  const answers = [[outside.address], ["127.0.0.1"]];
  outside.names.set("rebind.test", () => answers.shift() ?? ["127.0.0.1"]);
  const sandbox = await fork([`allow rebind.test`]);
  for (let n = 0; n < 4; n++) {
    const { body } = await fetchIn(sandbox, `http://rebind.test:${hostPort}/`);
    assert.doesNotMatch(body, /the host answered/);
  }
});

test("rules can change while the sandbox runs, and cut what they no longer allow", { skip }, async () => {
  const sandbox = await fork([]);
  assert.equal(await resolveIn(sandbox, "example.test"), "gaierror");
  await sandbox.network.allow("example.test:5432");
  await sandbox.eval(
    "import socket\nc = socket.create_connection(('example.test', 5432), timeout=20); c.sendall(b'a'); print(c.recv(1))",
  );
  await sandbox.network.remove("allow example.test:5432");
  const { stdout } = await sandbox.eval(
    "try:\n    c.sendall(b'b'); r = c.recv(1); print('open' if r else 'closed')\nexcept OSError as e: print(type(e).__name__)",
  );
  assert.match(stdout, /closed|ConnectionResetError|BrokenPipe/);
  await rejectsWith(sandbox.network.allow("exa mple"), "invalid_request");
  await rejectsWith(sandbox.network.remove("allow never.test"), "invalid_request", /no rule/);
  await sandbox.network.set({ mode: "none" });
  const none = await sandbox.eval(
    "try: socket.create_connection(('203.0.113.9', 80), timeout=20)\nexcept OSError as e: print(e.strerror)",
  );
  assert.match(none.stdout, /Network is unreachable/);
  await sandbox.network.set({ mode: "filtered", rules: ["allow example.test:80"] });
  assert.equal((await fetchIn(sandbox, "http://example.test/")).status, 200);
});

test("denials are events with the rule to add", { skip }, async () => {
  const sandbox = await fork([]);
  const stop = new AbortController();
  const events = daemon.forkd.events({ types: ["network.denied"], signal: stop.signal });
  const first = events.next();
  await resolveIn(sandbox, "wanted.test");
  const { value: event } = await first;
  stop.abort();
  assert.equal(event?.sandboxId, sandbox.id);
  assert.equal(event?.network?.name, "wanted.test");
  assert.match(event?.network?.suggestion ?? "", /^allow .*wanted\.test/);
  await until("the audit log has the denial", async () => {
    const lines = (await readFile(join(daemon.dataDir, "audit.jsonl"), "utf8")).trim().split("\n");
    return lines.some((line) => line.includes('"network.denied"') && line.includes("wanted.test"));
  });
  await until("the metrics count it", async () => {
    const { url, token } = await address();
    const answer = await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${token}` } });
    return /^forkd_network_denied_total [1-9]/m.test(await answer.text());
  });
});

test("a key's ceiling holds whatever its sandboxes ask for", { skip }, async () => {
  const { forkd } = daemon;
  const { key } = await forkd.keys.create("narrow", {
    network: { mode: "filtered", rules: ["allow example.test:80"] },
    secrets: [],
  });
  const limited = await startDaemonClient(key);
  const sandbox = await limited.create("python", { network: { mode: "open", rules: ["allow other.test"] } });
  const { ceilings } = await sandbox.network.info();
  assert.deepEqual(ceilings, [{ from: "key", mode: "filtered", rules: ["allow example.test:80"] }]);
  assert.equal(await resolveIn(sandbox, "other.test"), "gaierror");
  assert.equal((await fetchIn(sandbox, "http://example.test/")).status, 200);
  await rejectsWith(limited.create("python", { secrets: ["NEVER_SET"] }), "forbidden");
});
