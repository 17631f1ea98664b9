import assert from "node:assert/strict";
import dgram from "node:dgram";
import test, { type TestContext } from "node:test";
import { until } from "@forkd/test-support";
import { UdpRelay, type UdpAccess } from "../../src/proxy/udp-relay.ts";
import { once } from "../support/sockets.ts";

async function bound(): Promise<dgram.Socket> {
  const socket = dgram.createSocket("udp4");
  socket.bind(0, "127.0.0.1");
  await once(socket, "listening");
  return socket;
}

async function relayed(
  t: TestContext,
  access: Partial<UdpAccess>,
): Promise<{ relay: UdpRelay; send: () => void }> {
  const [inside, guest] = [await bound(), await bound()];
  const destination = { protocol: "udp", name: "a.example", port: 9 } as const;
  const relay = new UdpRelay(inside, destination, {
    resolve: async () => "127.0.0.1",
    tryCharge: () => true,
    onFlow: () => undefined,
    ...access,
  });
  t.after(() => {
    relay[Symbol.dispose]();
    guest.close();
  });
  return { relay, send: () => guest.send("ping", inside.address().port, "127.0.0.1") };
}

test("a flow to an address that refuses connect() is dropped, and the next datagram tries again", async (t) => {
  let resolved = 0;
  let flows = 0;
  const { send } = await relayed(t, {
    // Without SO_BROADCAST connect() fails with EACCES.
    resolve: async () => (++resolved < 3 ? "255.255.255.255" : "127.0.0.1"),
    onFlow: () => flows++,
  });
  await until("a flow is open", () => {
    send();
    return flows > 0;
  });
  assert.ok(resolved >= 3);
  assert.equal(flows, 1);
});
