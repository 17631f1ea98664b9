import assert from "node:assert/strict";
import dgram from "node:dgram";
import net from "node:net";
import test from "node:test";
import { AppError } from "@forkd/contract";
import { decode, encode, streamDecode, streamEncode, type DecodedPacket } from "dns-packet";
import { DnsServer, type NameAccess } from "../../src/dns/server.ts";
import { once } from "../support/sockets.ts";

const query = (name: string, type: "A" | "AAAA" | "TXT" | "PTR" = "A", id = 1): Buffer =>
  encode({ id, type: "query", flags: 0x100, questions: [{ type, name }] });
const codeOf = (answer: DecodedPacket): number => (answer.flags ?? 0) & 0xf;

function access(): NameAccess & { asked: string[]; resolved: string[] } {
  const asked: string[] = [];
  const resolved: string[] = [];
  return {
    asked,
    resolved,
    permits: (name) => {
      asked.push(name);
      return name.endsWith("example.com");
    },
    addressFor: (name) => {
      resolved.push(name);
      if (name.startsWith("absent")) return Promise.reject(new AppError("not_found", "no"));
      if (name.startsWith("broken")) return Promise.reject(new AppError("engine_failed", "no"));
      return Promise.resolve("198.18.3.4");
    },
    onQuery: () => undefined,
  };
}

async function ask(server: DnsServer, ...question: Parameters<typeof query>): Promise<DecodedPacket> {
  const answer = await server.answer(query(...question));
  assert.ok(answer);
  return decode(answer);
}

test("a permitted name gets its address; nothing else of it is answered", async () => {
  const facts = access();
  const server = new DnsServer(facts);
  const answer = await ask(server, "WWW.example.com");
  assert.equal(codeOf(answer), 0);
  assert.deepEqual(
    answer.answers?.map((each) => ("data" in each ? each.data : undefined)),
    ["198.18.3.4"],
  );
  for (const type of ["AAAA", "TXT"] as const) {
    const empty = await ask(server, "www.example.com", type);
    assert.deepEqual([codeOf(empty), empty.answers], [0, []]);
  }
  assert.deepEqual(facts.resolved, ["www.example.com"]);
});

test("a name that is not permitted does not exist and is never resolved", async () => {
  const facts = access();
  const server = new DnsServer(facts);
  assert.equal(codeOf(await ask(server, "evil.org")), 3);
  assert.equal(codeOf(await ask(server, "evil.org", "AAAA")), 3);
  assert.equal(codeOf(await ask(server, "data in a label.example.com")), 3);
  assert.equal(codeOf(await ask(server, "1.2.18.198.in-addr.arpa", "PTR")), 3);
  assert.deepEqual(facts.resolved, []);
  assert.deepEqual(facts.asked, ["evil.org", "evil.org"]);
});

test("an absent name and a failure of the resolver have different answers", async () => {
  const server = new DnsServer(access());
  assert.equal(codeOf(await ask(server, "absent.example.com")), 3);
  assert.equal(codeOf(await ask(server, "broken.example.com")), 2);
});

test("queries above the rate are dropped", async () => {
  const server = new DnsServer(access());
  const answers = await Promise.all(
    Array.from({ length: 1000 }, () => server.answer(query("a.example.com"))),
  );
  const answered = answers.filter((answer) => answer !== undefined).length;
  assert.ok(answered >= 1 && answered <= 64, String(answered));
});

test("UDP and TCP are served, and a message that is too long ends the connection", async (t) => {
  const server = new DnsServer(access());
  const udp = dgram.createSocket("udp4");
  t.after(() => udp.close());
  udp.bind(0, "127.0.0.1");
  await once(udp, "listening");
  server.serveDatagrams(udp);
  const client = dgram.createSocket("udp4");
  t.after(() => client.close());
  client.send("garbage", udp.address().port, "127.0.0.1");
  client.send(query("a.example.com"), udp.address().port, "127.0.0.1");
  const [bytes] = (await once(client, "message")) as [Buffer];
  assert.equal(codeOf(decode(bytes)), 0);

  const listener = net.createServer((socket) => server.serveConnection(socket, Buffer.alloc(0)));
  listener.listen(0, "127.0.0.1");
  await once(listener, "listening");
  t.after(() => listener.close());
  const socket = net.connect((listener.address() as net.AddressInfo).port, "127.0.0.1");
  const two = Buffer.concat(
    [query("a.example.com", "A", 5), query("b.example.com", "A", 6)].map((each) =>
      streamEncode(decode(each)),
    ),
  );
  socket.write(two.subarray(0, 5));
  setImmediate(() => socket.write(two.subarray(5)));
  let received = Buffer.alloc(0);
  const ids: (number | undefined)[] = [];
  for await (const chunk of socket) {
    received = Buffer.concat([received, chunk as Buffer]);
    while (received.length > 2 && received.length >= received.readUInt16BE(0) + 2) {
      ids.push(streamDecode(received).id);
      received = received.subarray(received.readUInt16BE(0) + 2);
    }
    if (ids.length === 2) socket.write(Buffer.from([0xff, 0xff, 0]));
  }
  assert.deepEqual(ids, [5, 6]);
});
