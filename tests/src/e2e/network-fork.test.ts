/** The network over forks, restarts and faults: connections, listeners, floods, and what is left after a kill. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { readdirSync, readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { isErrno } from "@forkd/base";
import { ForkdError } from "@forkd/sdk";
import { until } from "@forkd/test-support";
import { endDaemon, startDaemon, withDaemons, type TestDaemon } from "../support/daemon.ts";
import { dialIn, fetchIn, resolveIn } from "../support/guest-net.ts";
import { openOutside } from "../support/outside/outside.ts";
import { forkAll, processesOf } from "../support/sandboxes.ts";

const isRoot = process.getuid?.() === 0;
const skip = isRoot ? false : "needs root: it makes a network namespace with servers";

/** Processes of the daemon or of its proxy, by the name of their program. */
function childrenOf({ process: { pid = 0 } }: TestDaemon, name: string): number[] {
  const parents = name === "forkd-egress" ? [pid] : [pid, ...childrenOfAny([pid], "forkd-egress")];
  return childrenOfAny(parents, name);
}

function childrenOfAny(parents: readonly number[], name: string): number[] {
  return readdirSync("/proc")
    .filter((entry) => /^\d+$/.test(entry))
    .map(Number)
    .filter((each) => {
      const status = statusOf(each);
      const parent = Number(/\nPPid:\t(\d+)\n/.exec(status)?.[1]);
      return status.startsWith(`Name:\t${name}`) && parents.includes(parent);
    });
}

function statusOf(pid: number): string {
  try {
    return readFileSync(`/proc/${pid}/status`, "latin1");
  } catch (error) {
    if (isErrno(error, "ENOENT", "ESRCH")) return "";
    throw error;
  }
}

test(
  "a branch resets connections in the child, keeps those of the source, and sends nothing twice",
  { skip },
  async () => {
    await using outside = await openOutside(["example.test"]);
    await using daemon = await startDaemon({
      snapshots: ["python"],
      env: { FORKD_NETWORK_RESOLVER: outside.resolver },
    });
    const source = await daemon.forkd.create("python", { network: { rules: ["allow example.test:9000"] } });
    // One connection that is busy, one that only waits.
    await source.eval(`
import socket, threading
busy = socket.create_connection(("example.test", 9000), timeout=30); lines = busy.makefile("rw")
idle = socket.create_connection(("example.test", 9000), timeout=60)
ended = []
def wait():
    try: ended.append("data" if idle.recv(10) else "closed")
    except OSError as e: ended.append(type(e).__name__)
waiter = threading.Thread(target=wait, daemon=True); waiter.start()
def say(text):
    try:
        lines.write(text + "\\n"); lines.flush(); return lines.readline().strip()
    except OSError as e: return type(e).__name__
print(say("one"))
`);
    const branch = await source.branch({ n: 2 });
    const said = async (sandbox: typeof source, text: string) =>
      (await sandbox.eval(`print(say("${text}"))`)).stdout.trim();
    for (const [index, child] of branch.children.entries()) {
      if (child instanceof Error) throw child;
      assert.match(
        await said(child, `child ${index}`),
        /^(ConnectionResetError|ConnectionAbortedError|BrokenPipeError|)$/,
      );
      const { stdout } = await child.eval("waiter.join(30); print(ended)");
      assert.match(stdout, /Connection(Aborted|Reset)Error/);
      // It has the network of the source, and can connect again.
      const again = await child.eval(
        `s = socket.create_connection(("example.test", 9000), timeout=30); s.sendall(b"again ${index}\\n"); print(s.recv(100).decode().strip())`,
      );
      assert.equal(again.stdout.trim(), `got again ${index}`);
    }
    assert.equal(await said(source, "two"), "got two");
    const { stdout } = await source.eval("print(ended)");
    assert.equal(stdout.trim(), "[]");
    await source.pause();
    await source.resume();
    assert.match(
      await said(source, "three"),
      /^(ConnectionResetError|ConnectionAbortedError|BrokenPipeError|)$/,
    );
    assert.deepEqual((await outside.lines()).sort(), ["again 0", "again 1", "one", "two"]);
  },
);

test(
  "a killed proxy, gate or daemon costs connections only; listeners are made again",
  { skip },
  async () => {
    await using outside = await openOutside(["example.test"]);
    const env = { FORKD_NETWORK_RESOLVER: outside.resolver };
    await withDaemons(["python"], async (start) => {
      const first = await start(env);
      const sandbox = await first.forkd.create("python", { network: { rules: ["allow example.test:80"] } });
      const works = async (daemon: TestDaemon, id = sandbox.id) =>
        (await fetchIn(await daemon.forkd.sandboxes.get(id), "http://example.test/")).status === 200;
      assert.ok(await works(first));
      for (const name of ["forkd-egress", "forkd-gate"]) {
        const found = childrenOf(first, name);
        assert.ok(found.length > 0, `the daemon has no ${name}`);
        for (const pid of found) process.kill(pid, "SIGKILL");
        await until(`connections work after the end of ${name}`, () => works(first));
        const [other] = await forkAll(first.forkd, "python", 1, {
          network: { rules: ["allow example.test:80"] },
        });
        assert.ok(other && (await works(first, other.id)));
      }
      await endDaemon(first, "SIGKILL");
      const second = await start({ ...env, FORKD_ON_STOP: "keep" });
      assert.equal((await second.forkd.sandboxes.get(sandbox.id)).info.network?.device, "tap");
      assert.ok(await works(second));
      await endDaemon(second, "SIGTERM");
      const third = await start(env);
      assert.ok(await works(third));
    });
  },
);

test("nothing of a machine's network is left after its VMM or the daemon was killed", { skip }, async () => {
  await using outside = await openOutside(["example.test"]);
  await withDaemons(["tiny"], async (start) => {
    const daemon = await start({ FORKD_NETWORK_RESOLVER: outside.resolver, FORKD_POOL_MEMORY_PERCENT: "10" });
    const sandboxes = await forkAll(daemon.forkd, "tiny", 3);
    const own = sandboxes.map(({ info }) => readlinkSync(`/proc/${info.pid}/ns/net`));
    assert.equal(new Set(own).size, 3);
    const [victim] = sandboxes;
    assert.ok(victim?.info.pid);
    process.kill(victim.info.pid, "SIGKILL");
    await until("its namespace is gone", () => !namespaces().has(own[0] ?? ""));
    const pid = daemon.process.pid ?? 0;
    await endDaemon(daemon, "SIGKILL");
    await until("proxy and gates exit with the daemon", () => orphansOf(pid).length === 0);
    await start({ FORKD_ON_STOP: "stop" }).then((next) => endDaemon(next, "SIGTERM"));
    await until("all namespaces are gone", () => own.every((each) => !namespaces().has(each)));
    assert.deepEqual(processesOf(daemon.dataDir), []);
  });
});

/** Network namespaces that some process uses. */
function namespaces(): Set<string> {
  const pids = readdirSync("/proc").filter((name) => /^\d+$/.test(name));
  return new Set(pids.flatMap((pid) => namespaceOf(Number(pid)) ?? []));
}

/** undefined if the process has exited */
function namespaceOf(pid: number): string | undefined {
  try {
    return readlinkSync(`/proc/${pid}/ns/net`);
  } catch (error) {
    if (isErrno(error, "ENOENT", "ESRCH", "EACCES")) return undefined;
    throw error;
  }
}

/** Helper programs of forkd whose parent is gone, or still that process. */
function orphansOf(parent: number): string[] {
  return readdirSync("/proc")
    .filter((name) => /^\d+$/.test(name))
    .map((pid) => statusOf(Number(pid)))
    .filter(
      (status) =>
        /^Name:\tforkd-(egress|gate)/.test(status) && new RegExp(`\nPPid:\t(${parent}|1)\n`).test(status),
    );
}

test("floods of connections and look-ups stay with the sandbox that makes them", { skip }, async () => {
  await using outside = await openOutside(["example.test"]);
  await using daemon = await startDaemon({
    snapshots: ["python"],
    env: { FORKD_NETWORK_RESOLVER: outside.resolver },
  });
  const rules = ["allow example.test:5432", "allow example.test:80", "allow *.tunnel.test"];
  const [flooder, sibling] = await forkAll(daemon.forkd, "python", 2, {
    network: { rules },
    limits: { netConnections: 200 },
  });
  assert.ok(flooder && sibling);
  const { stdout } = await flooder.eval(
    `
import socket, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
held, refused = [], 0
address = socket.getaddrinfo("example.test", 5432)[0][4]
for n in range(1000):
    s = socket.socket(); s.settimeout(30)
    try:
        s.connect(address); held.append(s)
    except OSError: refused += 1
alive = 0
for s in held:
    try:
        s.sendall(b"x"); alive += s.recv(1) == b"x"
    except OSError: pass
print(alive)`,
    { timeoutMs: 300_000 },
  );
  assert.ok(
    Number(stdout) > 0 && Number(stdout) <= 200,
    `${stdout.trim()} connections of 1000 were served, 200 are allowed`,
  );
  // Names that no rule allows are never asked outside, however many there are.
  outside.queries.length = 0;
  await flooder.eval(
    `
import os, random
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.setblocking(False)
for n in range(3000):
    name = b"%032x" % random.getrandbits(128)
    q = os.urandom(2) + b"\\x01\\0\\0\\x01\\0\\0\\0\\0\\0\\0" + bytes([32]) + name + b"\\x04evil\\x04test\\0\\0\\x01\\0\\x01"
    try: u.sendto(q, ("10.0.2.2", 53))
    except OSError: pass
for n in range(300): u.sendto(os.urandom(random.randrange(1, 600)), ("10.0.2.2", 53))`,
    { timeoutMs: 120_000 },
  );
  assert.equal((await fetchIn(sibling, "http://example.test/")).status, 200);
  assert.equal(await dialIn(sibling, "example.test", 5432, "fine"), "fine");
  assert.deepEqual(
    outside.queries.filter((name) => name.endsWith(".evil.test")),
    [],
  );
  assert.match(await resolveIn(flooder, "example.test"), /^198\./);
  const { counters } = await flooder.network.info();
  assert.ok(counters.denied > 0);
});

test("a hundred children have their own network at once", { skip }, async () => {
  await using outside = await openOutside(["example.test"]);
  await using daemon = await startDaemon({
    snapshots: ["tiny"],
    env: { FORKD_NETWORK_RESOLVER: outside.resolver },
  });
  const children = await forkAll(daemon.forkd, "tiny", 100, {
    network: { rules: ["allow example.test:80"] },
  });
  const answers = await Promise.all(
    children.map(async (child, index) => {
      // A hundred guests that start on a busy host may lose a datagram with their question for the name.
      const wget = `busybox wget -q -O - http://example.test/child-${index}`;
      const tries = `i=0; until ${wget}; do i=$((i+1)); [ $i -lt 12 ] || exit 1; done`;
      const { stdout, stderr, exitCode } = await child.commands.run(tries);
      return { stdout, stderr, exitCode };
    }),
  );
  assert.deepEqual(
    answers.filter(({ stdout }) => !stdout.includes("child-")),
    [],
  );
  assert.equal(new Set((await outside.seen()).map(({ url }) => url)).size, 100);
});

test("launchers and VMMs that are killed at any moment of their start leave nothing", { skip }, async () => {
  await withDaemons(["tiny"], async (start, dataDir) => {
    const daemon = await start({ FORKD_FORK_PARALLELISM: "4" });
    const host = namespaceOf(process.pid);
    /** of machines of this daemon */
    const seen = new Set<string>();
    let isForking = true;
    let kills = 0;
    const killer = (async () => {
      while (isForking) {
        for (const name of ["forkd-launch", "qemu-system-x86"])
          for (const pid of childrenOf(daemon, name))
            if (Math.random() < 0.5) {
              const namespace = namespaceOf(pid);
              if (namespace !== undefined && namespace !== host) seen.add(namespace);
              kills++;
              killQuietly(pid);
            }
        await new Promise((resolve) => setTimeout(resolve, Math.random() * 20));
      }
    })();
    for (let round = 0; round < 5; round++)
      await daemon.forkd.fork("tiny", 6).catch((error: unknown) => {
        if (!(error instanceof ForkdError)) throw error;
        assert.match(error.code, /engine_failed|agent_unreachable|sandbox_dead/);
      });
    isForking = false;
    await killer;
    assert.ok(kills > 0);
    await daemon.forkd.call("killAll", {});
    const [healthy] = await forkAll(daemon.forkd, "tiny", 1);
    assert.equal((await healthy?.commands.run(["echo", "well"], { check: true }))?.stdout, "well\n");
    await daemon.forkd.call("killAll", {});
    await until("no machine is left", () => processesOf(dataDir).length === 0);
    await until("no namespace is left", () => [...seen].every((each) => !namespaces().has(each)));
    assert.deepEqual(readdirSync(join(dataDir, "sandboxes")), []);
  });
});

function killQuietly(pid: number): void {
  try {
    process.kill(pid, "SIGKILL");
  } catch (error) {
    if (!isErrno(error, "ESRCH")) throw error;
  }
}
