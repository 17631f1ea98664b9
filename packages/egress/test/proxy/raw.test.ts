import assert from "node:assert/strict";
import test from "node:test";
import { until } from "@forkd/test-support";
import { fixture, machineId } from "../support/fixture.ts";
import { listening, once, received } from "../support/sockets.ts";

test("a permitted name is dialled by its synthetic address, and both ways can end alone", async (t) => {
  const port = await listening(t, (socket) => {
    const chunks: Buffer[] = [];
    socket.on("data", (chunk: Buffer) => chunks.push(chunk));
    socket.on("end", () => socket.end(`got ${Buffer.concat(chunks).toString()}`));
  });
  const { guest, logged, proxy } = await fixture(t, {
    records: { "a.example": ["127.0.0.1"] },
    rules: [`allow a.example:${port}`, `allow 127.0.0.1:${port}`],
  });
  const address = await guest.resolve("A.example");
  assert.match(String(address), /^198\.1[89]\./);
  const socket = await guest.dial("a.example", port);
  socket.end("\x01hello");
  assert.equal(await received(socket), "got \x01hello");
  const closed = await logged(({ event }) => event === "closed");
  assert.deepEqual([closed.name, closed.bytesIn, closed.bytesOut], ["a.example", 10, 6]);
  const { bytesIn, bytesOut, connections } = await proxy.counters(machineId);
  assert.deepEqual([bytesIn, bytesOut, connections], [10, 6, 1]);
});

test("a server that speaks first is heard, and the guest's first bytes are still read", async (t) => {
  const seen: string[] = [];
  const port = await listening(t, (socket) => {
    socket.write("220 ready\r\n");
    socket.on("data", (chunk: Buffer) => {
      seen.push(chunk.toString());
      socket.end("bye");
    });
  });
  const { guest, logged } = await fixture(t, {
    records: { "mail.example": ["127.0.0.1"] },
    rules: [`allow mail.example:${port}`, `allow 127.0.0.1:${port}`],
  });
  const socket = await guest.dial("mail.example", port);
  const [banner] = (await once(socket, "data")) as [Buffer];
  assert.equal(banner.toString(), "220 ready\r\n");
  socket.write("EHLO me\r\n");
  assert.equal(await received(socket), "bye");
  assert.deepEqual(seen, ["EHLO me\r\n"]);

  const second = await guest.dial("mail.example", port);
  await once(second, "data");
  second.write("GET / HTTP/1.1\r\nHost: other.example\r\n\r\n");
  await received(second);
  await logged(({ event, reason }) => event === "denied" && /do not fit/.test(reason ?? ""));
  assert.deepEqual(seen, ["EHLO me\r\n"]);
});

test("without a rule a dial is reset at once and logged with the rule to add", async (t) => {
  const { guest, logged } = await fixture(t, { rules: ["allow a.example:443"] });
  const cases: [string, number, string][] = [
    ["169.254.169.254", 80, "allow 169.254.169.254:80"],
    ["192.0.2.1", 22, "allow 192.0.2.1:22"],
    ["198.18.77.77", 443, "allow 198.18.77.77:443"],
    ["10.0.2.3", 5432, "allow 10.0.2.3:5432"],
  ];
  for (const [address, port, suggestion] of cases) {
    await guest.refused(address, port);
    const entry = await logged((each) => each.address === address && each.event === "denied");
    assert.deepEqual([entry.port, entry.suggestion], [port, suggestion]);
  }
  assert.equal(await guest.resolve("b.example"), 3);
  assert.equal((await logged(({ protocol }) => protocol === "dns")).suggestion, "allow b.example");
  await guest.refused("10.0.2.2", 22);
  await logged(({ address, reason }) => address === "10.0.2.2" && /no such service/.test(reason ?? ""));
});

test("an address without a name needs a rule that names it, and is then connected to as it is", async (t) => {
  const port = await listening(t, (socket) => socket.end("direct"), "127.0.0.9");
  const { guest, rules } = await fixture(t, { rules: [`allow 127.0.0.8/29:${port}`] });
  // A guest cannot dial 127.0.0.9, but this namespace has no other way to reach a server of the test.
  assert.equal(await received(await guest.dial("127.0.0.9", port)), "direct");
  await rules([`allow *:${port}`], "open");
  await guest.refused("127.0.0.9", port);
});

test("a name that leads to a private address is refused, unless a rule names that address", async (t) => {
  const port = await listening(t, (socket) => socket.end("reached"));
  const { guest, logged, rules } = await fixture(t, {
    records: {
      "a.example": ["127.0.0.1"],
      "mapped.example": ["::ffff:127.0.0.1"],
      "meta.example": ["169.254.169.254"],
    },
    rules: [`allow *:${port}`],
  });
  for (const [name, address] of [
    ["a.example", "127.0.0.1"],
    ["mapped.example", "127.0.0.1"],
    ["meta.example", "169.254.169.254"],
  ] as const) {
    await guest.refused(name, port);
    const entry = await logged((each) => each.name === name && each.event === "denied");
    assert.deepEqual([entry.address, entry.suggestion], [address, `allow ${address}:${port}`]);
  }
  await rules([`allow *:${port}`, `allow 127.0.0.1:${port}`]);
  for (const name of ["a.example", "mapped.example"])
    assert.equal(await received(await guest.dial(name, port)), "reached");
});

test("a name that changes its address after the check leads to the address that was checked", async (t) => {
  const port = await listening(t, (socket) => socket.end("first"), "127.0.0.1");
  const { guest, dns } = await fixture(t, {
    records: { "rebind.example": ["127.0.0.1"] },
    rules: [`allow rebind.example:${port}`, `allow 127.0.0.1:${port}`],
  });
  await guest.resolve("rebind.example");
  dns.records.set("rebind.example", ["127.0.0.2"]);
  assert.equal(await received(await guest.dial("rebind.example", port)), "first");
  assert.equal(dns.asked.length, 1);
});

test("a rule is never needed by a name that is only resolved by others", async (t) => {
  const { guest, dns } = await fixture(t, {
    rules: ["allow a.example"],
    records: { "b.example": ["192.0.2.1"] },
  });
  assert.equal(await guest.resolve("b.example"), 3);
  assert.equal(await guest.resolve("secret-data.b.example"), 3);
  assert.deepEqual(dns.asked, []);
});

test("a change of the policy resets connections that it no longer allows, and no others", async (t) => {
  const port = await listening(t, (socket) => socket.on("data", (chunk) => socket.write(chunk)));
  const names = ["a.example", "b.example"];
  const { guest, rules, logged } = await fixture(t, {
    records: Object.fromEntries(names.map((name) => [name, ["127.0.0.1"]])),
    rules: [`allow *.example:${port}`, `allow 127.0.0.1:${port}`, `allow a.example`, `allow b.example`],
  });
  const [first, second] = await Promise.all(names.map((name) => guest.dial(name, port)));
  assert.ok(first && second);
  for (const socket of [first, second]) {
    socket.write("\x01");
    await once(socket, "data");
  }
  const ended = received(first);
  // Both names have the same address, for which there is a rule; the name is what counts.
  await rules([`deny a.example`, `allow b.example`, `allow 127.0.0.1:${port}`]);
  await ended;
  await logged(({ event, name }) => event === "denied" && name === "a.example");
  second.write("\x02");
  const [echo] = (await once(second, "data")) as [Buffer];
  assert.equal(echo.toString(), "\x02");
  second.destroy();
});

test("a machine has a bound of connections", async (t) => {
  const port = await listening(t, (socket) => socket.resume().on("end", () => socket.end()));
  const { guest, proxy, logged } = await fixture(t, {
    records: { "a.example": ["127.0.0.1"] },
    rules: [`allow a.example:${port}`, `allow 127.0.0.1:${port}`],
    limits: { connections: 200 },
  });
  const address = String(await guest.resolve("a.example"));
  const dials = await Promise.allSettled(Array.from({ length: 1000 }, () => guest.dial(address, port)));
  const sockets = dials.flatMap((dial) => (dial.status === "fulfilled" ? [dial.value] : []));
  t.after(() => sockets.forEach((socket) => socket.destroy()));
  await until("all were accepted", async () => (await proxy.counters(machineId)).connections === 1000);
  const { openConnections } = await proxy.counters(machineId);
  assert.equal(openConnections, 200);
  await logged(({ reason }) => /too many open connections/.test(reason ?? ""));
  for (const socket of sockets) socket.destroy();
  await until("all are closed", async () => (await proxy.counters(machineId)).openConnections === 0);
  const next = await guest.dial(address, port);
  next.destroy();
});

test("a machine that has used up its bytes is cut and cannot dial", async (t) => {
  const port = await listening(t, (socket) => {
    socket.on("data", () => undefined);
    socket.write(Buffer.alloc(4 << 20));
  });
  const limit = 256 * 1024;
  const { guest, proxy, logged } = await fixture(t, {
    records: { "a.example": ["127.0.0.1"] },
    rules: [`allow a.example:${port}`, `allow 127.0.0.1:${port}`],
    limits: { bytes: limit },
  });
  const socket = await guest.dial("a.example", port);
  socket.write("\x01");
  const got = (await received(socket)).length;
  assert.ok(got <= limit, String(got));
  const { bytesIn, bytesOut } = await proxy.counters(machineId);
  assert.ok(bytesIn + bytesOut >= limit && bytesIn + bytesOut <= limit + 65_536, String(bytesIn));
  await guest.refused("a.example", port);
  await logged(({ reason }) => /used up its bytes/.test(reason ?? ""));
});
