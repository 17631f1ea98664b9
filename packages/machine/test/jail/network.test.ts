import assert from "node:assert/strict";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import type { Server } from "node:net";
import { test, type TestContext } from "node:test";
import { until } from "@forkd/test-support";
import { answerWithAddress, ask, GateClient } from "./gate-client.ts";
import { isRoot, Jailed, needsRoot, Place, starter, within, type Variant } from "./support.ts";

const proxyPort = 61_000;
const guest = "10.0.2.15";
const gateway = "10.0.2.2";

type Network = { guest: Jailed; gate: GateClient };

/** A guest without a VM behind a tap. Only root can open the tap on every host. */
async function withTap(t: TestContext, before: readonly string[] = []): Promise<Network> {
  const place = await Place.make(t, "root");
  const program = place.program("test-guest");
  const without = before.length > 0 ? [place.program("test-without"), ...before, "--"] : [];
  const jailed = new Jailed(t, place, {
    variant: "root",
    program,
    args: ["9"],
    options: ["--net", "tap:9"],
    before: without,
  });
  assert.equal(await jailed.line(), "ready");
  return { guest: jailed, gate: new GateClient(t, place.program("forkd-gate")) };
}

test(
  "the proxy sees the address and the port of every dial behind the tap",
  { skip: needsRoot },
  async (t) => {
    const { guest: jailed, gate } = await withTap(t);
    answerWithAddress(await gate.listen(jailed.id, proxyPort));
    for (const [address, port] of [
      ["198.18.3.4", 443],
      ["169.254.169.254", 80],
      ["8.8.8.8", 65_535],
      [gateway, 53],
      [gateway, proxyPort],
      ["192.168.0.1", 1],
      ["10.0.2.77", 22],
    ] as const) {
      assert.equal(await jailed.ask(`tcp ${guest} ${address} ${port}`), "open", `${address}:${port}`);
      assert.equal(await jailed.ask("say hello"), `${address}:${port} hello`);
    }
  },
);

test("a dial is refused at once while there is no listener", { skip: needsRoot }, async (t) => {
  const { guest: jailed, gate } = await withTap(t);
  assert.equal(await jailed.ask(`tcp ${guest} 198.18.3.4 443`), "refused");
  const server = await gate.listen(jailed.id, proxyPort);
  assert.equal(await jailed.ask(`tcp ${guest} 198.18.3.4 443`), "open");
  server.close();
  // The gate closes its copy when it has read Node's acknowledgement.
  await until(
    "a dial is refused",
    async () => (await jailed.ask(`tcp ${guest} 198.18.3.4 443`)) === "refused",
  );
  // A listener that is made again takes connections, as after a restart of the proxy.
  answerWithAddress(await gate.listen(jailed.id, proxyPort));
  assert.equal(await jailed.ask(`tcp ${guest} 198.18.3.4 443`), "open");
});

test("the guest cannot use other source addresses or dial loopback", { skip: needsRoot }, async (t) => {
  const { guest: jailed, gate } = await withTap(t);
  answerWithAddress(await gate.listen(jailed.id, proxyPort));
  assert.equal(await jailed.ask("tcp 1.2.3.4 198.18.3.4 443"), "silence");
  assert.equal(await jailed.ask("tcp 10.0.2.77 198.18.3.4 443"), "silence");
  assert.equal(await jailed.ask("arp 10.0.2.77"), "silence");
  assert.equal(await jailed.ask(`arp ${guest}`), "answered");
  assert.equal(await jailed.ask("tcp 127.0.0.1 198.18.3.4 443"), "silence");
  assert.equal(await jailed.ask(`tcp ${guest} 127.0.0.1 443`), "silence");
  // All namespaces of the host share one table of neighbours: the guest must not fill it.
  const neighbours = readFileSync(`/proc/${jailed.id.pid}/net/arp`, "utf8").trim().split("\n").slice(1);
  assert.deepEqual(
    neighbours.map((line) => line.split(" ")[0]),
    [guest],
  );
  assert.equal(await jailed.ask(`tcp ${guest} 198.18.3.4 443`), "open");
});

test("datagrams reach only the resolver, and nothing answers pings", { skip: needsRoot }, async (t) => {
  const { guest: jailed, gate } = await withTap(t);
  const resolver = await gate.datagram(jailed.id, gateway, 53);
  resolver.on("message", (data, { address, port }) => {
    resolver.send(`${address} ${data.toString()}`, port, address);
  });
  assert.equal(await jailed.ask(`udp ${guest} ${gateway} 53 name`), `answer ${gateway} 53 ${guest} name`);
  assert.equal(await jailed.ask(`udp ${guest} 8.8.8.8 53 name`), "unreachable");
  assert.equal(await jailed.ask(`udp ${guest} ${gateway} 123 time`), "unreachable");
  assert.equal(await jailed.ask(`udp ${guest} 1.1.1.1 443 quic`), "unreachable");
  assert.equal(await jailed.ask(`ping ${gateway}`), "silence");
  assert.equal(await jailed.ask("ping 8.8.8.8"), "silence");
  // An explicit rule opens a socket at any address.
  const time = await gate.datagram(jailed.id, "8.8.8.8", 123);
  time.on("message", (data, from) => time.send(data, from.port, from.address));
  assert.equal(await jailed.ask(`udp ${guest} 8.8.8.8 123 now`), "answer 8.8.8.8 123 now");
});

test("the gate connects to a port of the guest", { skip: needsRoot }, async (t) => {
  const { guest: jailed, gate } = await withTap(t);
  // With the proxy's rule in place, answers still find the connection.
  answerWithAddress(await gate.listen(jailed.id, proxyPort));
  const accepted = jailed.ask("accept 8080");
  const socket = await gate.connect(jailed.id, guest, 8080);
  assert.equal(await accepted, `accepted ${gateway}`);
  socket.write("GET /");
  const answer = jailed.ask("say 200 OK");
  const [data] = (await within(once(socket, "data"))) as [Buffer];
  assert.equal(data.toString(), "200 OK");
  assert.equal(await answer, "GET /");
  // The guest does not answer here.
  const { code } = await gate.failure("connect", jailed.id, `${guest} 81 100`);
  assert.equal(code, "ETIMEDOUT");
});

test("without the rule, listeners take connections on their own ports", { skip: needsRoot }, async (t) => {
  const { guest: jailed, gate } = await withTap(t, ["nftables"]);
  const servers = await gate.request("listen", jailed.id, "443,80", 2);
  assert.deepEqual(
    servers.map(({ message }) => "port" in message && message.port),
    [443, 80],
  );
  for (const { handle } of servers) answerWithAddress(handle as Server);
  assert.equal(await jailed.ask(`tcp ${guest} 198.18.3.4 443`), "open");
  assert.equal(await jailed.ask("say hello"), "198.18.3.4:443 hello");
  assert.equal(await jailed.ask(`tcp ${guest} 198.18.3.4 8443`), "refused");
});

for (const variant of ["root", "user"] as const satisfies Variant[]) {
  const skip = variant === "root" ? needsRoot : false;
  test(`the proxy sees every dial of slirp in the ${variant} variant`, { skip }, async (t) => {
    const place = await Place.make(t, variant);
    const program = place.program("test-probe");
    const options = ["--net", "slirp"];
    const jailed = new Jailed(t, place, { variant, program, args: ["sleep"], options });
    assert.equal(await jailed.line(), "ready");
    const gate = new GateClient(t, place.program("forkd-gate"), starter(variant));
    // A socket that the gate makes in the namespace dials the same way as slirp.
    const { code } = await gate.failure("connect", jailed.id, "198.18.3.4 443 5000");
    assert.equal(code, "ECONNREFUSED");
    answerWithAddress(await gate.listen(jailed.id, proxyPort));
    for (const [address, port] of [
      ["198.18.3.4", 443],
      ["127.0.0.1", 53],
      [gateway, 80],
    ] as const) {
      const socket = await gate.connect(jailed.id, address, port);
      assert.equal(await ask(socket, "hello"), `${address}:${port} hello`);
    }
    // slirp dials the gateway as 127.0.0.1.
    await gate.datagram(jailed.id, "127.0.0.1", 53);
  });
}

test(
  "an ordinary user cannot enter the namespace of another user's machine",
  { skip: needsRoot },
  async (t) => {
    const place = await Place.make(t, "root");
    const program = place.program("test-probe");
    const options = ["--net", "slirp"];
    const jailed = new Jailed(t, place, { variant: "root", program, args: ["sleep"], options });
    assert.equal(await jailed.line(), "ready");
    assert.ok(isRoot);
    const gate = new GateClient(t, place.program("forkd-gate"), starter("user"));
    const { code } = await gate.failure("listen", jailed.id, String(proxyPort));
    assert.match(code, /EPERM|EACCES/);
  },
);
