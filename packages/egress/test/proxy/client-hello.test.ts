import assert from "node:assert/strict";
import { Duplex } from "node:stream";
import test from "node:test";
import tls from "node:tls";
import { readClientHello } from "../../src/proxy/client-hello.ts";
import { sniff } from "../../src/proxy/sniff.ts";
import { random } from "../support/random.ts";
import { patient } from "../support/sockets.ts";

/** The first bytes that Node's TLS client sends. */
export function realHello(options: tls.ConnectionOptions): Promise<Buffer> {
  const work = new Promise<Buffer>((resolve) => {
    const wire = new Duplex({
      read: () => undefined,
      write: (chunk: Buffer, _encoding, callback) => {
        resolve(chunk);
        callback();
      },
    });
    tls.connect({ socket: wire, ...options }).on("error", () => undefined);
  });
  return patient(work, "a TLS hello");
}

/** The same hello in records of at most `size` bytes. */
function fragmented(hello: Buffer, size: number): Buffer {
  const body = hello.subarray(5);
  const records: Buffer[] = [];
  for (let at = 0; at < body.length; at += size) {
    const part = body.subarray(at, at + size);
    records.push(Buffer.from([22, 3, 1, part.length >> 8, part.length & 255]), part);
  }
  return Buffer.concat(records);
}

test("the server name of a real hello is read, also in many records and byte by byte", async () => {
  for (const maxVersion of ["TLSv1.2", "TLSv1.3"] as const) {
    const hello = await realHello({
      servername: "Host.example",
      maxVersion,
      ALPNProtocols: ["h2", "http/1.1"],
    });
    const expected = { serverName: "Host.example", hasEncryptedHello: false };
    assert.deepEqual(readClientHello(hello), expected);
    assert.deepEqual(readClientHello(Buffer.concat([hello, Buffer.from("more")])), expected);
    for (const size of [1, 3, 100]) assert.deepEqual(readClientHello(fragmented(hello, size)), expected);
    for (let length = 0; length < hello.length; length++)
      assert.equal(readClientHello(hello.subarray(0, length)), "more", String(length));
  }
});

test("a hello without a server name has none", async () => {
  assert.deepEqual(readClientHello(await realHello({})), { serverName: undefined, hasEncryptedHello: false });
});

/** A hello with these extensions. */
function helloWith(extensions: [type: number, data: Buffer][]): Buffer {
  const block = Buffer.concat(
    extensions.map(([type, data]) => Buffer.concat([u16(type), u16(data.length), data])),
  );
  const body = Buffer.concat([
    u16(0x0303),
    Buffer.alloc(32),
    Buffer.from([0]),
    u16(2),
    u16(0x1301),
    Buffer.from([1, 0]),
    u16(block.length),
    block,
  ]);
  const message = Buffer.concat([Buffer.from([1, 0]), u16(body.length), body]);
  return Buffer.concat([Buffer.from([22, 3, 1]), u16(message.length), message]);
}
const u16 = (value: number): Buffer => Buffer.from([value >> 8, value & 255]);
const nameList = (...names: string[]): Buffer => {
  const list = Buffer.concat(
    names.map((name) => Buffer.concat([Buffer.from([0]), u16(name.length), Buffer.from(name, "latin1")])),
  );
  return Buffer.concat([u16(list.length), list]);
};

test("hellos that could be read in two ways are malformed", () => {
  assert.deepEqual(readClientHello(helloWith([[0, nameList("a.example")]])), {
    serverName: "a.example",
    hasEncryptedHello: false,
  });
  assert.deepEqual(
    readClientHello(
      helloWith([
        [0, nameList("a.example")],
        [0xfe0d, Buffer.alloc(8)],
      ]),
    ),
    {
      serverName: "a.example",
      hasEncryptedHello: true,
    },
  );
  const bad = [
    helloWith([
      [0, nameList("a.example")],
      [0, nameList("b.example")],
    ]),
    helloWith([[0, nameList("a.example", "b.example")]]),
    helloWith([[0, Buffer.alloc(0)]]),
    helloWith([[0, Buffer.concat([nameList("a.example"), Buffer.alloc(1)])]]),
    Buffer.from([22, 3, 1, 0, 4, 2, 0, 0, 0]),
    Buffer.from([22, 3, 1, 0, 0]),
    Buffer.from([22, 3, 1, 255, 255]),
    Buffer.from([22, 3, 1, 0, 4, 1, 255, 255, 255]),
    Buffer.concat([Buffer.from([22, 3, 1, 0, 1, 1]), Buffer.from([23, 3, 1, 0, 1, 0])]),
  ];
  for (const bytes of bad) assert.equal(readClientHello(bytes), "malformed", bytes.toString("hex"));
});

test("random and damaged bytes never throw", async () => {
  const { below, bytes } = random();
  const hello = await realHello({ servername: "host.example" });
  for (let round = 0; round < 20_000; round++) {
    const input =
      below(3) === 0 ? Buffer.concat([Buffer.from([22, 3]), bytes(below(200))]) : Buffer.from(hello);
    for (let change = below(6); change > 0; change--) input[below(input.length)] = below(256);
    const result = readClientHello(input.subarray(0, below(input.length + 1)));
    if (typeof result !== "string" && result.serverName !== undefined)
      assert.ok(result.serverName.length < 16_384);
    assert.ok(sniff(input).kind.length > 0);
    assert.ok(sniff(bytes(below(100))).kind.length > 0);
  }
});

test("sniff() tells protocols apart by their first bytes", () => {
  const cases: [string, string][] = [
    ["GET / HTTP/1.1\r\n", "http"],
    ["GET /", "http"],
    ["\r\n\r\nPOST /x HTTP/1.1\r\n", "http"],
    ["CONNECT a:1 HTTP/1.1\r\n", "http"],
    ["G", "more"],
    ["DELET", "more"],
    ["get / HTTP/1.1\r\n", "http"],
    ["FOO bar HTTP/1.0\r\n", "http"],
    ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "raw"],
    ["SSH-2.0-OpenSSH_9.2 Debian\r\n", "raw"],
    ["SSH-2.0-Open", "more"],
    ["*1\r\n$4\r\nPING\r\n", "raw"],
    ["\x00\x00\x00\x08\x04\xd2\x16\x2f", "raw"],
    ["\x16", "more"],
    ["\x16\x03\x01", "more"],
    ["\x16\x04", "raw"],
    ["", "more"],
    ["\r\n".repeat(100), "malformed"],
  ];
  for (const [text, kind] of cases)
    assert.equal(sniff(Buffer.from(text, "latin1")).kind, kind, JSON.stringify(text));
});
