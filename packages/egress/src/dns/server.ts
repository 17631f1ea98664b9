/**
 * The resolver of one machine. A name that no rule permits is answered with "no such name" and never leaves the host;
 * a permitted one is answered with its synthetic address. Everything but A is empty: there is no IPv6 towards guests,
 * and records such as HTTPS would let a client avoid the proxy.
 */
import type dgram from "node:dgram";
import type net from "node:net";
import { AppError } from "@forkd/contract";
import { normalName } from "../policy/host.ts";
import { TokenBucket } from "../token-bucket.ts";
import { maxQueryBytes, readQuery, writeAnswer, writeError, type Query } from "./message.ts";

const perSecond = 200;
const burst = 400;
const maxInFlight = 64;
const ttlSeconds = 60;
const tcpIdleMs = 10_000;
const maxTcpInFlight = 16;

/** What the server knows about its machine. */
export type NameAccess = {
  /** whether any rule allows the name; logs the denial if not */
  permits(name: string): boolean;
  /** the address to answer with; rejects with AppError not_found if the name does not exist */
  addressFor(name: string): Promise<string>;
  onQuery(): void;
};

export class DnsServer {
  readonly #access: NameAccess;
  readonly #rate = new TokenBucket(perSecond, burst);
  #inFlight = 0;

  constructor(access: NameAccess) {
    this.#access = access;
  }

  /** The answer, or undefined: the query is dropped. Does not reject. */
  async answer(bytes: Buffer): Promise<Buffer | undefined> {
    if (!this.#rate.tryTake() || this.#inFlight >= maxInFlight) return undefined;
    this.#inFlight++;
    try {
      this.#access.onQuery();
      const query = readQuery(bytes);
      if (query === undefined) return undefined;
      return "error" in query ? writeError(query.id, query.error) : await this.#answerQuery(query);
    } finally {
      this.#inFlight--;
    }
  }

  serveDatagrams(socket: dgram.Socket): void {
    socket.on("message", (bytes, from) => {
      void this.answer(bytes).then((answer) => {
        // The socket may be closed by now, and a guest that is gone need not hear it.
        if (answer) socketSend(socket, answer, from);
      });
    });
  }

  /** `head`: bytes that were read already. */
  serveConnection(socket: net.Socket, head: Buffer): void {
    let rest: Buffer = head;
    let inFlight = 0;
    socket.setTimeout(tcpIdleMs, () => socket.destroy());
    const take = (): void => {
      while (rest.length >= 2 && inFlight < maxTcpInFlight) {
        const length = rest.readUInt16BE(0);
        if (length > maxQueryBytes) {
          socket.destroy();
          return;
        }
        if (rest.length < length + 2) break;
        const message = rest.subarray(2, length + 2);
        rest = rest.subarray(length + 2);
        inFlight++;
        void this.answer(message).then((answer) => {
          inFlight--;
          if (socket.destroyed) return;
          if (answer) socket.write(Buffer.concat([lengthOf(answer), answer]));
          else socket.destroy();
          socket.resume();
          take();
        });
      }
      if (inFlight >= maxTcpInFlight) socket.pause();
    };
    socket.on("data", (chunk: Buffer) => {
      rest = Buffer.concat([rest, chunk]);
      take();
    });
    socket.on("end", () => socket.end());
    take();
  }

  async #answerQuery(query: Query): Promise<Buffer> {
    const { type, name: asked } = query.question;
    const name = normalName(asked);
    if (name === undefined) return writeAnswer(query, "NXDOMAIN");
    // Reverse look-ups are not dials: nothing is denied that anyone would want to allow.
    if (name.endsWith(".in-addr.arpa") || name.endsWith(".ip6.arpa")) return writeAnswer(query, "NXDOMAIN");
    if (!this.#access.permits(name)) return writeAnswer(query, "NXDOMAIN");
    if (type !== "A") return writeAnswer(query, "NOERROR");
    try {
      return writeAnswer(query, "NOERROR", { address: await this.#access.addressFor(name), ttlSeconds });
    } catch (error) {
      const isAbsent = error instanceof AppError && error.code === "not_found";
      return writeAnswer(query, isAbsent ? "NXDOMAIN" : "SERVFAIL");
    }
  }
}

function lengthOf(answer: Buffer): Buffer {
  const bytes = Buffer.alloc(2);
  bytes.writeUInt16BE(answer.length, 0);
  return bytes;
}

function socketSend(socket: dgram.Socket, answer: Buffer, to: { port: number; address: string }): void {
  try {
    socket.send(answer, to.port, to.address, () => undefined);
  } catch {
    // Closed while the name was resolved.
  }
}
