/**
 * The server name in the first bytes of a TLS connection (RFC 8446, RFC 6066). The bytes come from a guest: every length is
 * checked against what is there and against the 16 KiB that are read at most.
 *
 *   record:    type 22 | version 2 | length 2 | fragment            (the hello may be cut into several records)
 *   handshake: type 1 | length 3 | version 2 | random 32 | session id <1> | cipher suites <2> | compression <1> | extensions <2>
 *   extension: type 2 | length 2 | data;  server_name data: list <2> of type 1 | name <2>
 */

export type ClientHello = {
  /** as it was sent; undefined if there is none */
  readonly serverName: string | undefined;
  /** an encrypted inner hello is there (or dummy bytes that look like one) */
  readonly hasEncryptedHello: boolean;
};

type HelloResult = ClientHello | "more" | "malformed";

const maxRecordBytes = 16_384 + 256;
const maxHelloBytes = 16_384;
const extensionTypes = { serverName: 0, encryptedHello: 0xfe0d };

export function isTlsStart(bytes: Buffer): boolean | "more" {
  if (bytes.length === 0 || (bytes.length === 1 && bytes[0] === 22)) return "more";
  return bytes[0] === 22 && bytes[1] === 3;
}

/** "more": the hello is not complete yet. */
export function readClientHello(bytes: Buffer): HelloResult {
  const handshake = joinRecords(bytes);
  if (handshake === "malformed") return handshake;
  const { message, isComplete } = handshake;
  if (message.length >= 1 && message[0] !== 1) return "malformed";
  if (message.length < 4) return isComplete ? "malformed" : "more";
  const length = message.readUIntBE(1, 3);
  if (length > maxHelloBytes) return "malformed";
  if (message.length < 4 + length) return "more";
  try {
    return readHello(new Reader(message.subarray(4, 4 + length)));
  } catch {
    return "malformed";
  }
}

/** The fragments of all records that have arrived, also of the last one in part. */
function joinRecords(bytes: Buffer): { message: Buffer; isComplete: boolean } | "malformed" {
  const fragments: Buffer[] = [];
  let at = 0;
  while (at + 5 <= bytes.length) {
    const length = bytes.readUInt16BE(at + 3);
    if (bytes[at] !== 22 || bytes[at + 1] !== 3 || length === 0 || length > maxRecordBytes)
      return "malformed";
    fragments.push(bytes.subarray(at + 5, at + 5 + length));
    at += 5 + length;
    const joined = Buffer.concat(fragments);
    // What follows the hello is not part of it.
    if (joined.length >= 4 && joined.length >= 4 + joined.readUIntBE(1, 3))
      return { message: joined, isComplete: true };
  }
  return { message: Buffer.concat(fragments), isComplete: false };
}

function readHello(hello: Reader): ClientHello {
  hello.take(2 + 32);
  hello.take(hello.number(1));
  hello.take(hello.number(2));
  hello.take(hello.number(1));
  let serverName: string | undefined;
  let hasEncryptedHello = false;
  const extensions = hello.isAtEnd ? undefined : new Reader(hello.take(hello.number(2)));
  if (!hello.isAtEnd) throw new RangeError("bytes after the extensions");
  const seen = new Set<number>();
  while (extensions && !extensions.isAtEnd) {
    const type = extensions.number(2);
    const data = extensions.take(extensions.number(2));
    // Two server names could be read differently by the server.
    if (seen.has(type)) throw new RangeError("an extension occurs twice");
    seen.add(type);
    if (type === extensionTypes.serverName) serverName = readServerName(new Reader(data));
    if (type === extensionTypes.encryptedHello) hasEncryptedHello = true;
  }
  return { serverName, hasEncryptedHello };
}

function readServerName(data: Reader): string {
  const list = new Reader(data.take(data.number(2)));
  const type = list.number(1);
  const name = list.take(list.number(2));
  if (type !== 0 || !list.isAtEnd || !data.isAtEnd) throw new RangeError("not one host name");
  return name.toString("latin1");
}

class Reader {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get isAtEnd(): boolean {
    return this.#at === this.#bytes.length;
  }

  number(size: number): number {
    return this.take(size).readUIntBE(0, size);
  }

  take(length: number): Buffer {
    if (this.#at + length > this.#bytes.length) throw new RangeError("the hello is too short");
    this.#at += length;
    return this.#bytes.subarray(this.#at - length, this.#at);
  }
}
