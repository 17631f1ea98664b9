import assert from "node:assert/strict";
import dgram from "node:dgram";
import test, { type TestContext } from "node:test";
import { until } from "@forkd/test-support";
import { fixture, machineId } from "../support/fixture.ts";
import { once } from "../support/sockets.ts";

async function echo(t: TestContext): Promise<{ port: number; senders: Set<number> }> {
  const socket = dgram.createSocket("udp4");
  socket.bind(0, "127.0.0.1");
  await once(socket, "listening");
  t.after(() => socket.close());
  const senders = new Set<number>();
  socket.on("message", (bytes, from) => {
    senders.add(from.port);
    socket.send(`echo ${bytes.toString()}`, from.port, from.address);
  });
  return { port: socket.address().port, senders };
}

test("UDP passes for the host and the port of a rule, and comes back from the address that was dialled", async (t) => {
  const { port, senders } = await echo(t);
  const { guest, proxy, rules } = await fixture(t, {
    records: { "time.example": ["127.0.0.1"], "x.wild.example": ["127.0.0.1"] },
    rules: [
      `allow udp time.example:${port}`,
      `allow udp *.wild.example:${port}`,
      `allow udp 127.0.0.1:${port}`,
    ],
  });
  const ask = async (name: string, from: number): Promise<[string, string]> => {
    const address = String(await guest.resolve(name));
    const socket = await guest.datagram(from);
    t.after(() => socket.close());
    let answer: [Buffer, dgram.RemoteInfo] | undefined;
    socket.on("message", (bytes, info) => (answer = [bytes, info]));
    // A datagram may be lost while the socket in the namespace is made.
    await until("an answer", () => {
      if (!answer) socket.send("ping", port, address);
      return answer !== undefined;
    });
    assert.ok(answer);
    assert.equal(answer[1].address, address);
    return [answer[0].toString(), answer[1].address];
  };
  const [text, address] = await ask("time.example", 4001);
  assert.equal(text, "echo ping");
  assert.match(address, /^198\.1[89]\./);
  assert.equal((await ask("x.wild.example", 4002))[0], "echo ping");
  assert.equal(senders.size, 2);
  const { bytesIn, bytesOut } = await proxy.counters(machineId);
  assert.ok(bytesIn >= 18 && bytesOut >= 8);

  await rules([`allow udp 127.0.0.1:${port}`]);
  const closed = await guest.datagram(4003);
  t.after(() => closed.close());
  // A connected socket hears of the refusal.
  closed.connect(port, address);
  await once(closed, "connect");
  let refused = false;
  closed.on("error", () => (refused = true));
  await until("the datagram is refused", () => {
    closed.send("ping", () => undefined);
    return refused;
  });
});

test("a name that leads to a private address is refused for UDP, too", async (t) => {
  const { port, senders } = await echo(t);
  const { guest, logged } = await fixture(t, {
    records: { "time.example": ["127.0.0.1"] },
    rules: [`allow udp time.example:${port}`],
  });
  const address = String(await guest.resolve("time.example"));
  const socket = await guest.datagram(4001);
  t.after(() => socket.close());
  socket.send("ping", port, address);
  const entry = await logged(({ event, protocol }) => event === "denied" && protocol === "udp");
  assert.equal(entry.suggestion, `allow udp 127.0.0.1:${port}`);
  assert.equal(senders.size, 0);
});
