/** Bytes that are not a valid request, or a valid but unusual one. */
import type { Random } from "../random.ts";

export type RawAttack = {
  readonly name: string;
  readonly bytes: Buffer;
  /** number of answers to wait for; undefined: wait until the daemon closes the connection or is silent */
  readonly replies?: number;
};

const line = "POST /v1/gc HTTP/1.1\r\nHost: x\r\n";
const json = "Content-Type: application/json\r\n";
const dry = '{"dry_run":true}';

const attacks: readonly (readonly [name: string, text: string, replies?: number])[] = [
  ["no HTTP", "hello\r\n\r\n", 1],
  ["HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 1],
  ["TLS", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 1],
  ["an unknown method", "FROB /v1/status HTTP/1.1\r\nHost: x\r\n\r\n", 1],
  ["no Host", "GET /v1/status HTTP/1.1\r\n\r\n", 1],
  ["two Hosts", "GET /v1/status HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 1],
  ["an invalid Host", "GET /v1/status HTTP/1.1\r\nHost: a b\\c/\r\n\r\n", 1],
  ["a NUL in a header", "GET /v1/status HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n", 1],
  ["a NUL in the path", "GET /v1/\0 HTTP/1.1\r\nHost: x\r\n\r\n", 1],
  ["a long path", `GET /${"x".repeat(70_000)} HTTP/1.1\r\nHost: x\r\n\r\n`, 1],
  ["long headers", `GET /v1/status HTTP/1.1\r\nHost: x\r\nA: ${"y".repeat(70_000)}\r\n\r\n`, 1],
  ["many headers", `GET /v1/status HTTP/1.1\r\nHost: x\r\n${"A: b\r\n".repeat(5000)}\r\n`, 1],
  ["a length below zero", `${line}Content-Length: -1\r\n\r\n`, 1],
  ["a length that is not a number", `${line}Content-Length: 1e3\r\n\r\n`, 1],
  ["two lengths", `${line}Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}`, 1],
  ["a length beyond the limit", `${line}${json}Content-Length: 99999999999\r\n\r\n{`, 1],
  ["length and chunks", `${line}Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n`, 1],
  ["an invalid chunk size", `${line}${json}Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n`, 1],
  [
    "a chunk size beyond 64 bits",
    `${line}${json}Transfer-Encoding: chunked\r\n\r\nffffffffffffffffff\r\n`,
    1,
  ],
  [
    "chunks of one byte",
    `${line}${json}Transfer-Encoding: chunked\r\n\r\n${dry
      .split("")
      .map((c) => `1\r\n${c}\r\n`)
      .join("")}0\r\n\r\n`,
    1,
  ],
  [
    "chunks with extensions and trailers",
    `${line}${json}Transfer-Encoding: chunked\r\n\r\n10;a=b\r\n${dry}\r\n0\r\nX: y\r\n\r\n`,
    1,
  ],
  ["an unknown encoding", `${line}${json}Transfer-Encoding: gzip\r\n\r\n`, 1],
  ["an incomplete body", `${line}${json}Content-Length: 500\r\n\r\n{"dry_run"`],
  ["incomplete headers", "GET /v1/status HTTP/1.1\r\nHost: x\r\nA: b\r\n"],
  ["an expectation", `${line}${json}Expect: 100-continue\r\nContent-Length: 16\r\n\r\n${dry}`, 1],
  ["an unknown expectation", `${line}${json}Expect: miracles\r\nContent-Length: 16\r\n\r\n${dry}`, 1],
  [
    "an upgrade",
    "GET /v1/status HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    1,
  ],
  ["CONNECT", "CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example\r\n\r\n", 1],
  ["an absolute target", "GET http://evil.example/v1/status HTTP/1.1\r\nHost: x\r\n\r\n", 1],
  ["an asterisk", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", 1],
  ["HTTP/1.0", "GET /v1/status HTTP/1.0\r\n\r\n", 1],
  ["bad percent signs", "GET /v1/sandboxes/%zz%E0%A4%A HTTP/1.1\r\nHost: x\r\n\r\n", 1],
  ["twenty at once", "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n".repeat(20), 20],
  [
    "twenty, one of them wrong",
    `${"GET /v1/none HTTP/1.1\r\nHost: x\r\n\r\n".repeat(20)}garbage\r\n\r\n`,
    21,
  ],
  [
    "a request inside a body",
    `${line}${json}Content-Length: 5\r\n\r\nGET /GET /v1/none HTTP/1.1\r\nHost: x\r\n\r\n`,
    2,
  ],
];

/** Each attack once, then random ones with one byte changed or the end cut off. */
export function* rawAttacks(count: number, random: Random): Generator<RawAttack> {
  for (let made = 0; made < count; made++) {
    const [name, text, replies] = attacks[made] ?? random.pick(attacks);
    const bytes = Buffer.from(text, "latin1");
    if (made < attacks.length) {
      yield { name, bytes, ...(replies !== undefined && { replies }) };
      continue;
    }
    const at = random.below(Math.min(bytes.length, 200));
    if (random.chance(0.5)) bytes[at] = random.below(256);
    yield {
      name: `${name}, byte ${at} changed or cut`,
      bytes: random.chance(0.7) ? bytes : bytes.subarray(0, at),
    };
  }
}
