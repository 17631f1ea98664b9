/**
 * Daemons of an ordinary user: machines in a user namespace with QEMU's own network stack, and machines
 * without a jail.
 */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, readlinkSync, statSync } from "node:fs";
import { chmod, copyFile } from "node:fs/promises";
import { createServer, type Server } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { runProgram } from "@forkd/base";
import type { Forkd, Sandbox } from "@forkd/sdk";
import { rejectsWith, until } from "@forkd/test-support";
import { endDaemon, startDaemon, withDaemons, type TestDaemon } from "../support/daemon.ts";
import { dialIn, fetchIn, python, resolveIn } from "../support/guest-net.ts";
import { giveTo, ordinaryUser as user } from "../support/ordinary-user.ts";
import { openOutside, type Outside } from "../support/outside/outside.ts";
import { forkAll, processesOf, processExists, sh } from "../support/sandboxes.ts";
import { testDir } from "../support/test-dir.ts";

const isRoot = process.getuid?.() === 0;
const skip = isRoot ? false : "needs root: it starts daemons as another user";
const root = { uid: 0, gid: 0 };

let outside: Outside;
/** listens on all addresses of the host */
let hostServer: Server;
let hostPort: number;
before(async () => {
  if (!isRoot) return;
  outside = await openOutside(["example.test", "api.example.test", "other.test"]);
  hostServer = createServer((socket) => socket.end("the host answered"));
  await new Promise<void>((resolve) => hostServer.listen(0, resolve));
  const address = hostServer.address();
  hostPort = typeof address === "object" && address ? address.port : 0;
});
after(async () => {
  hostServer?.close();
  await outside?.[Symbol.asyncDispose]();
});

function startAsUser(snapshots: readonly string[], env: Record<string, string> = {}): Promise<TestDaemon> {
  return startDaemon({ snapshots, user, env: { FORKD_NETWORK_RESOLVER: outside.resolver, ...env } });
}

async function findings(forkd: Forkd): Promise<Map<string, { outcome: string; detail: string }>> {
  const { checks } = await forkd.doctor({ boot: false });
  return new Map(checks.map((check) => [check.name, check]));
}

async function childOf(source: Sandbox, options: object = {}): Promise<Sandbox> {
  const { children } = await source.branch({ n: 1, ...options });
  const [child] = children;
  if (!child || child instanceof Error) throw child ?? new Error("the branch has no child");
  return child;
}

/** A namespace ends with the last process in it, as nothing else refers to one. */
function processesOfUser(): string[] {
  return readdirSync("/proc").filter(
    (name) => /^\d+$/.test(name) && statSync(`/proc/${name}`, { throwIfNoEntry: false })?.uid === user.uid,
  );
}

test("each machine of an ordinary user is in its own namespaces, without privileges", { skip }, async () => {
  await using daemon = await startAsUser(["tiny"]);
  const [one, two] = await forkAll(daemon.forkd, "tiny", 2);
  assert.ok(one && two);
  for (const { info } of [one, two]) {
    assert.equal(info.jail, "user");
    assert.equal(info.network?.device, "slirp");
    assert.match(info.network?.note ?? "", /tap/);
    const status = readFileSync(`/proc/${info.pid}/status`, "latin1");
    assert.match(status, new RegExp(`^Uid:\\t${user.uid}\\t${user.uid}`, "m"));
    assert.match(status, /^CapEff:\t0+$/m);
    assert.match(status, /^NoNewPrivs:\t1$/m);
    assert.match(status, /^Seccomp:\t2$/m);
  }
  for (const type of ["user", "mnt", "net", "ipc", "uts"]) {
    const links: string[] = [one.info.pid, two.info.pid, process.pid].map((pid) =>
      readlinkSync(`/proc/${pid}/ns/${type}`),
    );
    assert.equal(new Set(links).size, 3, `${type}: ${links.join(" ")}`);
  }
  const found = await findings(daemon.forkd);
  assert.equal(found.get("jail")?.outcome, "warn");
  assert.match(found.get("jail")?.detail ?? "", /own uid: the daemon does not run as root/);
  assert.match(found.get("jail")?.detail ?? "", /tap: \/dev\/net\/tun: /);
  assert.equal(found.get("network")?.outcome, "warn");
  assert.match(found.get("network")?.detail ?? "", /QEMU's own stack/);
});

test("branches of all modes, files, rewinds and pauses work without root", { skip }, async () => {
  await using daemon = await startAsUser(["python"], { FORKD_POOL_MEMORY_PERCENT: "10" });
  const source = await daemon.forkd.create("python");
  await source.eval("x = 41");
  await sh(source, "echo first > /root/note");
  for (const consistency of ["instant", "live"] as const) {
    const child = await childOf(source, consistency === "instant" ? {} : { mode: "live" });
    await child.eval("x += 1");
    assert.equal((await child.eval("print(x)")).stdout.trim(), "42");
    assert.equal(await sh(child, "cat /root/note"), "first");
    const grandchild = await childOf(child);
    assert.equal((await grandchild.eval("print(x)")).stdout.trim(), "42");
    assert.equal(grandchild.info.network?.device, "slirp");
    await child.kill();
    await grandchild.kill();
  }
  await source.pause();
  await source.resume();
  assert.equal((await source.eval("print(x)")).stdout.trim(), "41");
  await source.branch({ tag: "kept" });
  const [again] = await forkAll(daemon.forkd, "kept", 1);
  assert.equal(await again?.eval("print(x)").then(({ stdout }) => stdout.trim()), "41");
  const foreign = readdirSync(daemon.dataDir, { recursive: true, encoding: "utf8" }).filter(
    (name) => statSync(join(daemon.dataDir, name), { throwIfNoEntry: false })?.uid === 0,
  );
  assert.deepEqual(foreign, []);
});

test("with QEMU's own stack a sandbox reaches only what its rules allow", { skip }, async () => {
  await using daemon = await startAsUser(["python"]);
  await outside.forget();
  outside.queries.length = 0;
  const closed = await daemon.forkd.create("python");
  assert.equal(await resolveIn(closed, "example.test"), "gaierror");
  assert.deepEqual(outside.queries, []);
  // The stack sends what is for its own addresses to the loopback, which must be that of the namespace.
  for (const host of ["10.0.2.2", "10.0.2.3", "10.0.2.4", "127.0.0.1", "0.0.0.0", outside.hostAddress]) {
    const answer = await dialIn(closed, host, hostPort, "GET / HTTP/1.0\r\n\r\n");
    assert.match(answer, /^(Connection|OSError|TimeoutError|closed|HTTP\/1\.1 403)/, `${host}: ${answer}`);
  }
  for (const [host, port] of [
    ["169.254.169.254", 80],
    [outside.address, 80],
    [outside.address, 5432],
    ["10.0.2.2", 80],
    ["10.0.2.3", 53],
  ] as const) {
    const answer = await dialIn(closed, host, port, "GET / HTTP/1.0\r\nHost: example.test\r\n\r\n");
    assert.match(answer, /^(Connection|OSError|TimeoutError|closed|HTTP\/1\.1 40[03])/, `${host}: ${answer}`);
  }
  assert.deepEqual(await outside.seen(), []);

  const rules = ["allow example.test:80", "allow example.test:443", "allow udp example.test:123"];
  const open = await daemon.forkd.create("python", { network: { rules } });
  assert.match(await resolveIn(open, "example.test"), /^198\.1[89]\./);
  assert.equal(await resolveIn(open, "other.test"), "gaierror");
  assert.equal((await fetchIn(open, "http://example.test/plain")).status, 200);
  assert.equal((await fetchIn(open, "https://example.test/tls", {}, false)).status, 200);
  assert.equal((await fetchIn(open, "http://example.test:8080/")).status, 0);
  assert.equal((await fetchIn(open, "http://example.test/", { Host: "other.test" })).status, 403);
  assert.equal((await fetchIn(open, `http://${outside.address}/`)).status, 403);
  assert.deepEqual(
    (await outside.seen()).map(({ port, url }) => [port, url]),
    [
      [80, "/plain"],
      [443, "/tls"],
    ],
  );
  assert.equal(await ask(open, "example.test", 123), "udp:ping");
  assert.match(await ask(open, "example.test", 124), /^(ConnectionRefusedError|TimeoutError)$/);
  assert.match(await ask(open, "10.0.2.2", 123), /^(ConnectionRefusedError|TimeoutError)$/);

  await open.network.remove("allow example.test:80");
  assert.equal((await fetchIn(open, "http://example.test/")).status, 0);
  await open.network.allow("example.test:80");
  assert.equal((await fetchIn(open, "http://example.test/")).status, 200);
  await open.network.set({ mode: "none" });
  assert.match((await fetchIn(open, "http://203.0.113.9/")).body, /Network is unreachable/);
  const { counters } = await closed.network.info();
  assert.ok(counters.denied > 0);
});

/** The answer to a datagram, or the name of the Python exception. */
async function ask(sandbox: Sandbox, host: string, port: number): Promise<string> {
  const call = `(lambda u: (u.settimeout(3), u.connect((${JSON.stringify(host)}, ${port})), u.send(b"ping"), u.recv(100).decode())[-1])(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))`;
  return (await python(sandbox, call).catch((error: unknown) => nameIn(String(error)))) as string;
}

function nameIn(text: string): string {
  return /ConnectionRefusedError|TimeoutError/.exec(text)?.[0] ?? text;
}

test("secrets work with QEMU's own stack, by interception and by the gateway", { skip }, async () => {
  await using dir = await testDir();
  const ca = join(dir.path, "ca.pem");
  await copyFile(outside.caPath, ca);
  await chmod(ca, 0o644);
  await chmod(dir.path, 0o755);
  await using daemon = await startAsUser(["python"], { NODE_EXTRA_CA_CERTS: ca });
  const { forkd } = daemon;
  const value = "sk-live-without-root";
  await forkd.secrets.set("API_KEY", { value, hosts: ["api.example.test"] });
  const sandbox = await forkd.create("python", {
    network: { rules: ["allow api.example.test:443"] },
    secrets: ["API_KEY"],
  });
  await outside.forget();
  const bearer = { Authorization: `Bearer ${await sh(sandbox, "echo $API_KEY")}` };
  assert.equal((await fetchIn(sandbox, "https://api.example.test/models", bearer)).status, 200);
  assert.equal((await fetchIn(sandbox, "http://secrets.internal/API_KEY/chat")).status, 200);
  assert.deepEqual(
    (await outside.seen()).map(({ headers }) => headers["authorization"]),
    [`Bearer ${value}`, `Bearer ${value}`],
  );
});

test("a branch with QEMU's own stack resets connections in the child only", { skip }, async () => {
  await using daemon = await startAsUser(["python"]);
  const source = await daemon.forkd.create("python", { network: { rules: ["allow example.test:9000"] } });
  await outside.forget();
  await source.eval(`
import socket
c = socket.create_connection(("example.test", 9000), timeout=30); lines = c.makefile("rw")
def say(text):
    try:
        lines.write(text + "\\n"); lines.flush(); return lines.readline().strip()
    except OSError as e: return type(e).__name__
say("one")`);
  const said = async (sandbox: Sandbox, text: string) =>
    (await sandbox.eval(`print(say("${text}"))`)).stdout.trim();
  const isReset = /^(ConnectionResetError|ConnectionAbortedError|BrokenPipeError|)$/;
  const child = await childOf(source);
  assert.match(await said(child, "child"), isReset);
  const again = `c = socket.create_connection(("example.test", 9000), timeout=30); lines = c.makefile("rw"); print(say("again"))`;
  assert.equal((await child.eval(again)).stdout.trim(), "got again");
  assert.equal(await said(source, "two"), "got two");
  await source.pause();
  await source.resume();
  assert.match(await said(source, "three"), isReset);
  assert.deepEqual((await outside.lines()).sort(), ["again", "one", "two"]);
});

test(
  "an ordinary user's machines are adopted after a kill, and leave no namespace when they end",
  { skip },
  async () => {
    const env = {
      FORKD_NETWORK_RESOLVER: outside.resolver,
      FORKD_ON_STOP: "keep",
      FORKD_POOL_MEMORY_PERCENT: "10",
    };
    await withDaemons(
      ["python", "tiny"],
      async (start, dataDir) => {
        const first = await start(env);
        const sandbox = await first.forkd.create("python", {
          network: { rules: ["allow example.test:80"] },
        });
        await sandbox.eval("x = 7");
        const [victim] = await forkAll(first.forkd, "tiny", 1);
        assert.ok(victim?.info.pid !== undefined);
        await endDaemon(first, "SIGKILL");
        assert.ok(processExists(sandbox.info.pid));
        const second = await start(env);
        const adopted = await second.forkd.sandboxes.get(sandbox.id);
        assert.deepEqual([adopted.info.jail, adopted.info.network?.device], ["user", "slirp"]);
        assert.equal((await adopted.eval("print(x)")).stdout.trim(), "7");
        assert.equal((await fetchIn(adopted, "http://example.test/")).status, 200);
        const child = await childOf(adopted);
        assert.equal((await child.eval("print(x)")).stdout.trim(), "7");
        assert.equal((await fetchIn(child, "http://example.test/")).status, 200);
        process.kill(victim.info.pid, "SIGKILL");
        await until("the killed machine is dead", async () => {
          const found = await second.forkd.sandboxes.get(victim.id);
          return found.info.state === "dead";
        });
        await endDaemon(second, "SIGKILL");
        await endDaemon(await start({ ...env, FORKD_ON_STOP: "stop" }), "SIGTERM");
        assert.deepEqual(processesOf(dataDir), []);
      },
      user,
    );
    await until("no process is left in a namespace", () => processesOfUser().length === 0);
  },
);

test("a snapshot that an ordinary user branched works for root with a tap, and back", { skip }, async () => {
  await using dir = await testDir();
  const dataDir = join(dir.path, "data");
  const env = { FORKD_NETWORK_RESOLVER: outside.resolver };
  const rules = ["allow example.test:80"];
  {
    await using daemon = await startAsUser(["python"]);
    const source = await daemon.forkd.create("python", { network: { rules } });
    await source.eval("x = 1");
    assert.equal((await fetchIn(source, "http://example.test/")).status, 200);
    await source.branch({ tag: "by-user" });
    await daemon.forkd.call("killAll", {});
    await runProgram("cp", ["-r", "--sparse=always", daemon.dataDir, dataDir]);
  }
  await giveTo(root, dataDir);
  {
    await using daemon = await startDaemon({ dataDir, env });
    const child = await daemon.forkd.create("by-user");
    assert.deepEqual([child.info.jail, child.info.network?.device], ["root", "tap"]);
    assert.equal((await child.eval("print(x)")).stdout.trim(), "1");
    assert.equal((await fetchIn(child, "http://example.test/")).status, 200);
    await child.eval("x = 2");
    await child.pause();
    await child.resume();
    await child.branch({ tag: "by-root" });
    assert.equal((await fetchIn(child, "http://example.test/")).status, 200);
  }
  await giveTo(user, dir.path);
  await chmod(dir.path, 0o755);
  await using daemon = await startDaemon({ dataDir, env, user });
  const child = await daemon.forkd.create("by-root");
  assert.deepEqual([child.info.jail, child.info.network?.device], ["user", "slirp"]);
  assert.equal((await child.eval("print(x)")).stdout.trim(), "2");
  assert.equal((await fetchIn(child, "http://example.test/")).status, 200);
});

const skipTap = existsSync("/dev/net/tun") ? skip : "needs /dev/net/tun";
test("an ordinary user who may open /dev/net/tun has tap devices", { skip: skipTap }, async () => {
  await using daemon = await startDaemon({
    snapshots: ["python"],
    user: { ...user, hasTun: true },
    env: { FORKD_NETWORK_RESOLVER: outside.resolver },
  });
  const source = await daemon.forkd.create("python", { network: { rules: ["allow example.test:80"] } });
  assert.deepEqual([source.info.jail, source.info.network?.device], ["user", "tap"]);
  const child = await childOf(source);
  for (const sandbox of [source, child]) {
    assert.equal((await fetchIn(sandbox, "http://example.test/")).status, 200);
    assert.equal(await resolveIn(sandbox, "other.test"), "gaierror");
    assert.notEqual(await dialIn(sandbox, "10.0.2.2", hostPort), "the host answered");
  }
  assert.equal((await findings(daemon.forkd)).get("network")?.outcome, "ok");
});

test("without a jail sandboxes work but have no network, and asking for one fails", { skip }, async () => {
  await using daemon = await startAsUser(["python"], { FORKD_JAIL: "off" });
  const { forkd } = daemon;
  const source = await forkd.create("python");
  assert.deepEqual([source.info.jail, source.info.network?.device], ["none", "none"]);
  assert.match(source.info.network?.note ?? "", /switched off/);
  await source.eval("x = 1");
  const child = await childOf(source);
  assert.equal((await child.eval("print(x)")).stdout.trim(), "1");
  await source.pause();
  await source.resume();
  assert.equal((await source.eval("print(x)")).stdout.trim(), "1");
  assert.equal(await resolveIn(child, "example.test"), "gaierror");
  assert.notEqual(await dialIn(child, "10.0.2.2", hostPort), "the host answered");
  for (const refused of [
    () => forkd.create("python", { network: { rules: ["allow example.test"] } }),
    () => forkd.create("python", { network: { mode: "open" } }),
    () => forkd.create("python", { secrets: ["API_KEY"] }),
    () => source.branch({ n: 1, network: { mode: "filtered" } }),
    () => source.network.allow("example.test"),
  ])
    await rejectsWith(refused(), "unsupported", /network/);
  // Asking for no network is not asking for one.
  await forkd.create("python", { network: { mode: "none" } });
  const found = await findings(forkd);
  assert.match(found.get("jail")?.detail ?? "", /switched off by the settings/);
  assert.equal(found.get("jail")?.outcome, "warn");
  assert.match(found.get("network")?.detail ?? "", /sandboxes have none/);
});

test(
  "a daemon with another jail adopts machines and branches them, each with the network it has",
  { skip },
  async () => {
    const env = { FORKD_NETWORK_RESOLVER: outside.resolver, FORKD_ON_STOP: "keep" };
    await withDaemons(
      ["python"],
      async (start) => {
        const off = await start({ ...env, FORKD_JAIL: "off" });
        const bare = await off.forkd.create("python");
        await bare.eval("x = 3");
        await endDaemon(off, "SIGKILL");
        const on = await start(env);
        const adopted = await on.forkd.sandboxes.get(bare.id);
        assert.deepEqual(
          [adopted.info.state, adopted.info.jail, adopted.info.network?.device],
          ["running", "none", "none"],
        );
        assert.match(adopted.info.network?.note ?? "", /earlier daemon/);
        assert.equal((await adopted.eval("print(x)")).stdout.trim(), "3");
        // A new machine has what this daemon gives.
        const child = await childOf(adopted, { network: { rules: ["allow example.test:80"] } });
        assert.deepEqual([child.info.jail, child.info.network?.device], ["user", "slirp"]);
        assert.equal((await fetchIn(child, "http://example.test/")).status, 200);
        await adopted.pause();
        await adopted.resume();
        const resumed = await on.forkd.sandboxes.get(bare.id);
        assert.equal(resumed.info.network?.device, "slirp");
        await endDaemon(on, "SIGKILL");
        const last = await start({ ...env, FORKD_JAIL: "off", FORKD_ON_STOP: "stop" });
        const connected = await last.forkd.sandboxes.get(child.id);
        assert.deepEqual([connected.info.jail, connected.info.network?.device], ["user", "none"]);
        assert.equal((await connected.eval("print(x)")).stdout.trim(), "3");
        assert.notEqual((await fetchIn(connected, "http://example.test/")).status, 200);
      },
      user,
    );
  },
);
