import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import net from "node:net";
import { constants } from "node:os";
import type { Duplex } from "node:stream";
import { test, type TestContext } from "node:test";
import { isSandbox } from "@forkd/contract";
import { fork } from "../../src/operations/fork.ts";
import { pause } from "../../src/operations/pause.ts";
import { closePort, enterPort, findPort, listPorts, openPort } from "../../src/operations/ports.ts";
import type { Runtime } from "../../src/runtime.ts";
import { follow } from "../restart.ts";
import {
  context,
  forkableRuntime,
  forkRequest,
  rejectsWith,
  until,
  type TestRuntime,
  type TestSettings,
} from "../support.ts";

type Test = TestRuntime & { id: string };

async function forked(t: TestContext, settings: TestSettings = {}, request = {}): Promise<Test> {
  const fixture = await forkableRuntime(t, settings);
  // Every connection by way of the agent is refused.
  fixture.engine.script = () => ({ exitCode: constants.errno.ECONNREFUSED });
  const [entry] = await fork(fixture.runtime, forkRequest(request), context);
  assert.ok(entry && isSandbox(entry));
  return { ...fixture, id: entry.id };
}

/** A server in place of one in a guest. */
async function listen(t: TestContext, onConnection: (socket: net.Socket) => void): Promise<number> {
  const sockets = new Set<net.Socket>();
  const server = net.createServer({ allowHalfOpen: true }, (socket) => {
    sockets.add(socket.on("error", () => undefined));
    onConnection(socket);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.after(() => {
    for (const socket of sockets) socket.destroy();
    server.close();
  });
  return (server.address() as net.AddressInfo).port;
}

const enter = (runtime: Runtime, id: string, port: number) => enterPort(runtime, { ...context, id, port });
const ask = (id: string, port: number, more = {}) => ({ id, port, public: false, ...more });

/** Connects directly to servers of the test; other ports are left to the agent. */
function connectDirectly(runtime: Runtime, ports: readonly number[]): number[] {
  const asked: number[] = [];
  runtime.ports.direct = async (_machine, port) => {
    asked.push(port);
    if (!ports.includes(port)) throw new Error("refused");
    const socket = net.connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    await once(socket, "connect");
    return socket;
  };
  return asked;
}

async function connect(runtime: Runtime, id: string, port: number): Promise<Duplex> {
  using entered = await enter(runtime, id, port);
  return await entered.connect();
}

test("openPort() keeps the token of a port that is open, and closePort() ends it", async (t) => {
  const { runtime, id } = await forked(t);
  const events: unknown[] = [];
  runtime.events.onEvent = ({ type, port, sandbox_id: of }) => void events.push([type, port, of]);
  const first = await openPort(runtime, ask(id, 3000));
  assert.match(first.token ?? "", /^[\w-]{43}$/);
  const second = await openPort(runtime, ask(id, 3000, { ttl_secs: 60 }));
  assert.equal(second.token, first.token);
  const open = await openPort(runtime, ask(id, 80, { public: true }));
  assert.equal(open.token, undefined);
  assert.deepEqual(
    listPorts(runtime, { id }).map((each) => [each.port, each.public, "token" in each]),
    [
      [80, true, false],
      [3000, false, false],
    ],
  );
  assert.equal(findPort(runtime, { id, port: 3000 }).token, first.token);
  let cuts = 0;
  const release = runtime.ports.hold(id, 3000, () => cuts++);
  await closePort(runtime, { id, port: 3000 });
  release();
  assert.equal(cuts, 1);
  await rejectsWith(closePort(runtime, { id, port: 3000 }), "port_not_open");
  assert.throws(() => findPort(runtime, { id, port: 3000 }), { code: "port_not_open" });
  const again = await openPort(runtime, ask(id, 3000));
  assert.notEqual(again.token, first.token);
  assert.deepEqual(events, [
    ["port.opened", 3000, id],
    ["port.opened", 3000, id],
    ["port.opened", 80, id],
    ["port.closed", 3000, id],
    ["port.opened", 3000, id],
  ]);
});

test("a sandbox has at most 64 open ports", async (t) => {
  const { runtime, id } = await forked(t);
  for (let port = 1; port <= 64; port++) await openPort(runtime, ask(id, port));
  await rejectsWith(openPort(runtime, ask(id, 65)), "capacity_exhausted");
  await openPort(runtime, ask(id, 64, { public: true }));
});

test("ports that are changed at the same time are all in the record", async (t) => {
  const { runtime, id } = await forked(t);
  await Promise.all([1, 2, 3, 4].map((port) => openPort(runtime, ask(id, port))));
  const { home } = runtime.registry.get(id);
  const record = JSON.parse(await readFile(home.recordPath, "utf8")) as { ports: { port: number }[] };
  assert.deepEqual(
    record.ports.map(({ port }) => port),
    [1, 2, 3, 4],
  );
});

test("the next daemon knows the ports of a sandbox, and closes those whose time is over", async (t) => {
  const before = await forked(t);
  const { id } = before;
  const { token } = await openPort(before.runtime, ask(id, 3000));
  await openPort(before.runtime, ask(id, 3001, { ttl_secs: 1 }));
  const { runtime } = await follow(t, before);
  assert.equal(findPort(runtime, { id, port: 3000 }).token, token);
  await until("the port is closed", () => runtime.registry.get(id).ports.all.length === 1);
  assert.throws(() => findPort(runtime, { id, port: 3001 }), { code: "port_not_open" });
});

test("a connection carries bytes to a server in the guest and passes on its end", async (t) => {
  const { runtime, id } = await forked(t);
  const port = await listen(t, (socket) => socket.pipe(socket));
  connectDirectly(runtime, [port]);
  const stream = await connect(runtime, id, port);
  assert.equal(runtime.ports.connections, 1);
  stream.end("hello");
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  assert.equal(Buffer.concat(chunks).toString(), "hello");
  await until("it is closed", () => runtime.ports.connections === 0);
});

test("connections of a port are limited", async (t) => {
  const { runtime, id } = await forked(t, { maxPortConnections: 2 });
  const port = await listen(t, () => undefined);
  connectDirectly(runtime, [port]);
  const [first] = [await connect(runtime, id, port), await connect(runtime, id, port)];
  await rejectsWith(connect(runtime, id, port), "capacity_exhausted");
  first.destroy();
  await once(first, "close");
  await connect(runtime, id, port);
});

test("the direct way is tried first; the agent connects where it is refused", async (t) => {
  const { runtime, id, engine } = await forked(t);
  const port = await listen(t, (socket) => socket.end("direct"));
  const started = () => engine.machines[0]?.guest.heard.filter((each) => each === "start").length;
  runtime.ports.direct = undefined;
  await rejectsWith(connect(runtime, id, 3000), "port_refused", /nothing listens/);
  const asked = connectDirectly(runtime, [port]);
  const stream = await connect(runtime, id, port);
  assert.equal((await stream.toArray()).join(""), "direct");
  assert.equal(started(), 1);
  for (let nth = 0; nth < 2; nth++) await rejectsWith(connect(runtime, id, 3000), "port_refused");
  assert.equal(started(), 3);
  assert.deepEqual(asked, [port, 3000], "a refusal is remembered for a while");
});

test("connections end with their machine, and a request resumes a sandbox that has auto-resume", async (t) => {
  const { runtime, id } = await forked(t, {}, { auto_resume: true });
  const port = await listen(t, (socket) => socket.resume());
  connectDirectly(runtime, [port]);
  const stream = await connect(runtime, id, port);
  const closed = once(stream.resume(), "close");
  using before = await enter(runtime, id, port);
  await pause(runtime, { id }, context);
  await closed;
  using entered = await enter(runtime, id, port);
  assert.equal(runtime.registry.get(id).state, "running");
  assert.notEqual(entered.machine, before.machine);
  (await entered.connect()).destroy();
});

test("a call is activity until it ends, and a connection by its traffic only while bytes flow", async (t) => {
  const { runtime, id } = await forked(t);
  const sandbox = runtime.registry.get(id);
  const entered = await enter(runtime, id, 3000);
  assert.equal(runtime.activity.isActive(sandbox), true);
  {
    using traffic = entered.byTraffic();
    assert.equal(runtime.activity.isActive(sandbox), true);
    await until("it is silent", () => !runtime.activity.isActive(sandbox));
    traffic.touch();
    assert.equal(runtime.activity.isActive(sandbox), true);
  }
  assert.equal(runtime.activity.isActive(sandbox), false);
});

test("a paused sandbox can open ports, and a dead one cannot", async (t) => {
  const { runtime, id, engine } = await forked(t);
  await pause(runtime, { id }, context);
  await openPort(runtime, ask(id, 3000));
  await rejectsWith(enter(runtime, id, 3000), "sandbox_paused");
  const other = await fork(runtime, forkRequest(), context);
  const [entry] = other;
  assert.ok(entry && isSandbox(entry));
  engine.machines.at(-1)?.die("it crashed");
  await until("it is dead", () => runtime.registry.get(entry.id).isDead);
  await rejectsWith(openPort(runtime, ask(entry.id, 3000)), "sandbox_dead");
  await rejectsWith(enter(runtime, entry.id, 3000), "sandbox_dead");
});
