import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import test, { type TestContext } from "node:test";
import { promisify } from "node:util";
import { nullLogger, type Logger } from "@forkd/base";
import { rejectsWith, temporaryDirectory, until } from "@forkd/test-support";
import { Gate } from "../../src/gate/gate.ts";
import { EgressProxy } from "../../src/client/egress-proxy.ts";
import { ProxyProcess } from "../../src/client/proxy-process.ts";
import type { LogEntry, MachineNetwork } from "../../src/types.ts";
import { dnsUpstream } from "../support/dns-upstream.ts";
import { Guest } from "../support/fixture.ts";
import { listening, patient, received } from "../support/sockets.ts";
import { nativeTool } from "@forkd/base";

type Running = { proxy: EgressProxy; guest: Guest; port: number; network: MachineNetwork };

async function running(t: TestContext, options: { namesFile?: string; log?: Logger } = {}): Promise<Running> {
  const port = await listening(t, (socket) => socket.end("hello"));
  const dns = await dnsUpstream(t, { "a.example": ["127.0.0.1"] });
  const guest = await Guest.start(t);
  const proxy = await EgressProxy.start({ log: nullLogger(), resolver: dns.server, ...options });
  t.after(() => proxy[Symbol.asyncDispose]());
  const rules = [`allow a.example:${port}`, `allow 127.0.0.1:${port}`];
  const network = {
    id: "m1",
    ...guest.process,
    policy: { mode: "filtered", rules, ceilings: [] },
    secrets: [],
    limits: {},
  } as const;
  await proxy.add(network);
  return { proxy, guest, port, network };
}

const hello = async ({ guest, port }: Running, host = "a.example"): Promise<string> => {
  const socket = await guest.dial(host, port);
  socket.write("\x01");
  return received(socket);
};

test("a machine that was added can dial, and its policy, log and totals are known", async (t) => {
  const all = await running(t);
  const { proxy, guest, port } = all;
  assert.equal(await hello(all), "hello");
  const denials: [string, LogEntry][] = [];
  t.after(proxy.onDenied((id, entry) => denials.push([id, entry])));
  assert.equal(await guest.resolve("evil.example"), 3);
  await until("the denial is reported", () => denials.length > 0);
  assert.deepEqual([denials[0]?.[0], denials[0]?.[1].suggestion], ["m1", "allow evil.example"]);
  await until("the end is counted", async () => (await proxy.counters("m1")).openConnections === 0);
  const { bytesIn, bytesOut, connections, denied } = await proxy.counters("m1");
  assert.deepEqual([bytesIn, bytesOut, connections, denied], [5, 1, 1, 1]);
  const events: string[] = [];
  for await (const { event } of proxy.log("m1")) events.push(event);
  assert.deepEqual(events.toSorted(), ["closed", "connected", "denied"]);

  const stop = new AbortController();
  const followed: LogEntry[] = [];
  const following = (async () => {
    for await (const entry of proxy.log("m1", { follow: true, signal: stop.signal })) followed.push(entry);
  })();
  await until("the old entries have come", () => followed.length === 3);
  await proxy.update("m1", { policy: { mode: "none", rules: [], ceilings: [] } });
  await guest.refused("198.18.9.9", port);
  await until("the new entry has come", () => followed.length === 4);
  stop.abort();
  await patient(following, "the end of the log");
  proxy.remove("m1");
  await rejectsWith(proxy.counters("m1"), "not_found");
});

test("a proxy that is killed starts again with its machines, their totals and their names", async (t) => {
  const namesFile = join(await temporaryDirectory(t), "names.json");
  const all = await running(t, { namesFile });
  const { proxy, guest, port } = all;
  const address = String(await guest.resolve("a.example"));
  assert.equal(await hello(all), "hello");
  await until("the names are kept", async () =>
    /a\.example/.test(await readFile(namesFile, "utf8").catch(() => "")),
  );
  await until("the totals are known", async () => (await proxy.counters("m1")).bytesIn === 5);
  const before = proxy.pid;
  assert.ok(before);
  process.kill(before, "SIGKILL");
  await until("another process runs", () => proxy.pid !== undefined && proxy.pid !== before);
  await until("the guest can dial again, by the address that it knows", async () => {
    const socket = await guest.dial(address, port).catch(() => undefined);
    socket?.write("\x01");
    return socket !== undefined && (await received(socket)) === "hello";
  });
  const { bytesIn, connections } = await proxy.counters("m1");
  assert.ok(bytesIn >= 10 && connections >= 2, JSON.stringify({ bytesIn, connections }));
});

test("a change during a restart holds afterwards", async (t) => {
  const all = await running(t);
  const { proxy, guest, port } = all;
  process.kill(proxy.pid ?? 0, "SIGKILL");
  await proxy.update("m1", { policy: { mode: "none", rules: [], ceilings: [] } });
  assert.ok(proxy.pid);
  assert.equal(await guest.resolve("a.example"), 3);
  await guest.refused("198.18.9.9", port);
});

/** Restarts the proxy while another process holds the machine's listener, until the proxy has given up to add it. */
async function failedReplay(t: TestContext): Promise<Running> {
  let failures = 0;
  const warn = (fields: object): void => {
    if ("event" in fields && fields.event === "egress.replay_failed") failures++;
  };
  const all = await running(t, { log: { ...nullLogger(), warn } as Logger });
  const gate = await Gate.start(nativeTool("forkd-gate"), nullLogger());
  t.after(() => gate[Symbol.asyncDispose]());
  process.kill(all.proxy.pid ?? 0, "SIGKILL");
  await until("the process has exited", () => all.proxy.pid === undefined);
  const [server] = await gate.listen(all.network, [61_000]);
  try {
    await until("the machine cannot be added", () => failures > 0);
  } finally {
    server?.close();
  }
  return all;
}

test("a machine that a new process could not add is added later", async (t) => {
  const all = await failedReplay(t);
  await until("the guest can dial again", async () => (await hello(all).catch(() => "")) === "hello");
});

test("a change of a machine that a new process could not add adds it", async (t) => {
  const all = await failedReplay(t);
  await all.proxy.update("m1", { limits: { connections: 10 } });
  assert.equal(await hello(all), "hello");
});

test("a change that the proxy refuses is not part of its next start", async (t) => {
  const all = await running(t);
  const { proxy } = all;
  await rejectsWith(proxy.update("m1", { limits: { bps: -1 } }), "internal");
  const before = proxy.pid;
  process.kill(before ?? 0, "SIGKILL");
  await until("another process runs", () => proxy.pid !== undefined && proxy.pid !== before);
  assert.equal(await hello(all), "hello");
});

test("add() reports rules that are wrong and processes that do not exist", async (t) => {
  const { proxy, network, guest } = await running(t);
  const policy = { mode: "filtered", rules: ["permit x"], ceilings: [] } as const;
  await rejectsWith(proxy.add({ ...network, id: "m2", policy }), "invalid_request", /not an action/);
  await rejectsWith(proxy.update("m1", { policy }), "invalid_request", /not an action/);
  await rejectsWith(proxy.add({ ...network, id: "m2", startTime: 1 }), "engine_failed");
  await rejectsWith(proxy.add({ ...network, id: "m2", pid: 0x7fffff }), "engine_failed");
  await rejectsWith(proxy.update("m2", {}), "not_found");
  assert.notEqual(await guest.resolve("a.example"), 3);
});

test("the proxy ignores messages that it does not know, and exits with the daemon", async (t) => {
  const run = await ProxyProcess.start({
    configuration: { gate: nativeTool("forkd-gate") },
    log: nullLogger(),
    onReport: () => undefined,
    onExit: () => undefined,
  });
  t.after(() => run[Symbol.asyncDispose]());
  const garbage: unknown[] = [
    null,
    1,
    "x",
    [],
    {},
    { type: "add" },
    { type: "add", seq: -1 },
    { type: "nothing", seq: 1 },
    { type: "update", seq: 5, id: 7 },
    { type: "remove" },
    { type: "follow", all: "yes" },
  ];
  for (const message of garbage) run.send(message as Parameters<typeof run.send>[0]);
  await rejectsWith(run.ask({ type: "counters", id: "none" }), "not_found");
  await rejectsWith(
    run.ask({ type: "add", machine: {} } as unknown as Parameters<typeof run.ask>[0]),
    "internal",
  );
  const { stdout } = await promisify(execFile)("ps", ["-o", "pid=", "--ppid", String(run.pid)]);
  const gates = stdout.trim().split(/\s+/);
  assert.equal(gates.length, 1);
  await run[Symbol.asyncDispose]();
  await until("the gate has exited, too", async () =>
    promisify(execFile)("ps", ["-p", gates.join()]).then(
      () => false,
      () => true,
    ),
  );
});

test("start() fails if the gate cannot start", async () => {
  await rejectsWith(
    EgressProxy.start({ log: nullLogger(), gate: "/nonexistent/forkd-gate" }),
    "host_not_ready",
  );
});

test("a proxy whose gate is killed starts again", async (t) => {
  const all = await running(t);
  const { proxy } = all;
  const before = proxy.pid;
  const { stdout } = await promisify(execFile)("ps", ["-o", "pid=", "--ppid", String(before)]);
  process.kill(Number(stdout.trim()), "SIGKILL");
  await until("another process runs", () => proxy.pid !== undefined && proxy.pid !== before);
  await until("the guest can dial again", async () => (await hello(all).catch(() => "")) === "hello");
});
