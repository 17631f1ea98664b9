import assert from "node:assert/strict";
import { once } from "node:events";
import { Socket as DatagramSocket } from "node:dgram";
import { readdirSync, readlinkSync } from "node:fs";
import { Server, Socket } from "node:net";
import { test, type TestContext } from "node:test";
import { until } from "@forkd/test-support";
import { identify } from "../../src/host/procfs.ts";
import { answerWithAddress, ask, GateClient } from "./gate-client.ts";
import { Jailed, Place, starter, within } from "./support.ts";

/** A machine with a network that an ordinary user can have, and a gate of that user. */
async function machine(t: TestContext): Promise<{ place: Place; jailed: Jailed; gate: GateClient }> {
  const place = await Place.make(t, "user");
  const program = place.program("test-probe");
  const options = ["--net", "slirp"];
  const jailed = new Jailed(t, place, { variant: "user", program, args: ["sleep"], options });
  assert.equal(await jailed.line(), "ready");
  return { place, jailed, gate: new GateClient(t, place.program("forkd-gate"), starter("user")) };
}

/** Sockets and pipes that the gate holds. */
function descriptors(gate: GateClient): number {
  const dir = `/proc/${gate.child.pid}/fd`;
  return readdirSync(dir).filter((fd) => !readlinkSync(`${dir}/${fd}`).startsWith("/")).length;
}

test("Node receives each kind of socket as its own object", async (t) => {
  const { jailed, gate } = await machine(t);
  const server = await gate.listen(jailed.id, 61_000);
  assert.ok(server instanceof Server && server.listening);
  answerWithAddress(server);
  const socket = await gate.connect(jailed.id, "198.18.0.7", 8443);
  assert.ok(socket instanceof Socket);
  assert.deepEqual([socket.remoteAddress, socket.remotePort], ["198.18.0.7", 8443]);
  assert.equal(await ask(socket, "x"), "198.18.0.7:8443 x");
  const datagram = await gate.datagram(jailed.id, "198.18.0.8", 53);
  assert.ok(datagram instanceof DatagramSocket);
  assert.deepEqual(datagram.address(), { address: "198.18.0.8", family: "IPv4", port: 53 });
});

test("the gate serves many requests at the same time and keeps nothing", async (t) => {
  const { jailed, gate } = await machine(t);
  answerWithAddress(await gate.listen(jailed.id, 61_000));
  const before = descriptors(gate);
  const answers = await Promise.all(
    Array.from({ length: 200 }, async (_, i) =>
      ask(await gate.connect(jailed.id, "198.18.0.1", 1000 + i), String(i)),
    ),
  );
  assert.deepEqual(
    answers,
    answers.map((_, i) => `198.18.0.1:${1000 + i} ${i}`),
  );
  await until("the gate has closed its copies", () => descriptors(gate) <= before);
});

test("the gate refuses more requests than its bound, and serves later ones", async (t) => {
  const { jailed, gate } = await machine(t);
  const datagram = await gate.datagram(jailed.id, "127.0.0.1", 99);
  assert.ok(datagram);
  const replies = await Promise.all(
    Array.from({ length: 600 }, () => gate.request("connect", jailed.id, "198.18.0.1 1 5000")),
  );
  const codes = new Set(replies.map(([reply]) => reply && "code" in reply.message && reply.message.code));
  for (const code of codes) assert.match(String(code), /ECONNREFUSED|EAGAIN/);
  answerWithAddress(await gate.listen(jailed.id, 61_000));
});

test("a closed listener frees its port", async (t) => {
  const { jailed, gate } = await machine(t);
  const first = await gate.listen(jailed.id, 61_000);
  first.close();
  await within(once(first, "close"));
  await gate.listen(jailed.id, 61_000);
  const { code } = await gate.failure("listen", jailed.id, "61000");
  assert.equal(code, "EADDRINUSE");
});

test("the gate refuses an exited process, another one with its pid, and the host", async (t) => {
  const { jailed, gate } = await machine(t);
  const { id } = jailed;
  const other = await gate.failure("listen", { ...id, startTime: id.startTime + 1 }, "61000");
  assert.deepEqual(
    [other.code, other.error],
    ["ESRCH", "the process has exited and another one has its pid"],
  );
  await jailed.kill();
  const exited = await gate.failure("listen", id, "61000");
  assert.deepEqual([exited.code, exited.error], ["ESRCH", "the process has exited"]);
  // A listener in the host's namespace would take the host's connections.
  const self = identify(gate.child.pid ?? 0);
  assert.ok(self);
  const host = await gate.failure("listen", self, "61000");
  assert.deepEqual(
    [host.code, host.error],
    ["EINVAL", "the process is in the network namespace of the gate"],
  );
});

test("the gate refuses malformed requests and serves the next one", async (t) => {
  const { jailed, gate } = await machine(t);
  for (const [kind, rest, error] of [
    ["listen", "0", "the port is not valid"],
    ["listen", "65536", "the port is not valid"],
    ["listen", "80,,x", "the port is not valid"],
    ["listen", Array.from({ length: 65 }, (_, i) => i + 1).join(","), "the port is not valid"],
    ["listen", "80 more", "the request is too long"],
    ["dns", "10.0.2 53", "the address is not valid"],
    ["dns", "::1 53", "the address is not valid"],
    ["connect", "10.0.2.2 53 0", "the timeout is not valid"],
    ["connect", "10.0.2.2 53 999999999", "the timeout is not valid"],
    ["erase", "53", "the request is not listen, dns or connect"],
  ] as const) {
    const failure = await gate.failure(kind, jailed.id, rest);
    assert.deepEqual([failure.code, failure.error], ["EINVAL", error], `${kind} ${rest}`);
  }
  for (const text of ["", " ", '"\\', "x".repeat(100_000), "listen \u0000", "listen ../../x 1 1 1", "\n\n"])
    gate.send(text);
  gate.child.send({ cmd: "NODE_HANDLE_ACK" });
  gate.child.send({ anything: ["else"] });
  answerWithAddress(await gate.listen(jailed.id, 61_000));
});

test("the gate exits when its channel closes", async (t) => {
  const { gate } = await machine(t);
  const exit = once(gate.child, "exit");
  gate.child.disconnect();
  assert.deepEqual(await within(exit), [0, null]);
});
