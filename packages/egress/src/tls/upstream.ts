/** TLS connections to hosts outside, on behalf of guests, and their reuse for later requests. */
import https from "node:https";
import type { Duplex } from "node:stream";
import tls from "node:tls";
import { withDeadline } from "@forkd/base";
import { AppError, errorMessage } from "@forkd/contract";
import type { InterceptContext } from "../proxy/intercept.ts";
import { authorityOf } from "../secrets/hosts.ts";

const connectMs = 30_000;
/** A connection without a request is closed before the usual servers close it, so that no request meets its end. */
const idleMs = 4_000;
const maxIdlePerGuest = 4;
/** Each stream of a guest's connection can need one. Bounds the descriptors of this process. */
const maxPerMachine = 256;

export class Upstreams {
  readonly #trust: tls.SecureContext;
  /** machine → open and opening connections */
  readonly #open = new Map<string, number>();

  /** `roots`: certificates of the CAs that hosts outside are verified with */
  constructor(roots: readonly string[]) {
    this.#trust = tls.createSecureContext({ ca: [...roots], minVersion: "TLSv1.2" });
  }

  /**
   * Speaks HTTP/1.1 with `name`, whose certificate was verified. Throws what context.connect() throws,
   * `engine_failed`, `deadline_exceeded` or `capacity_exhausted`.
   */
  async connect(name: string, port: number, context: InterceptContext): Promise<tls.TLSSocket> {
    const release = this.#reserve(context.machine);
    const host = authorityOf(name, port);
    const stop = new AbortController();
    try {
      const work = this.#connect({ name, port, context, signal: stop.signal });
      const late = () => new AppError("deadline_exceeded", `"${host}" did not answer in time`);
      const socket = await withDeadline(work, connectMs, late);
      socket.once("close", release);
      return socket;
    } catch (error) {
      stop.abort();
      release();
      throw error;
    }
  }

  /** Connections for the requests of one guest connection. Destroy it when that connection closes. */
  agent(name: string, port: number, context: InterceptContext): https.Agent {
    return new GuestAgent(() => this.connect(name, port, context));
  }

  async #connect(wanted: {
    name: string;
    port: number;
    context: InterceptContext;
    signal: AbortSignal;
  }): Promise<tls.TLSSocket> {
    const { name, port, context, signal } = wanted;
    const socket = await context.connect(name, port);
    socket.on("error", () => socket.destroy());
    return await new Promise((resolve, reject) => {
      // No deadline: connect() has one for all steps and aborts the signal.
      const secure = tls.connect({
        socket,
        servername: name,
        secureContext: this.#trust,
        ALPNProtocols: ["http/1.1"],
        rejectUnauthorized: true,
      });
      const fail = (error: unknown): void => {
        secure.destroy();
        socket.destroy();
        reject(explained(authorityOf(name, port), error));
      };
      const abort = (): void => fail(new Error("it took too long"));
      // Stays: the request that uses the connection later reports its own errors.
      secure.on("error", fail);
      secure.once("close", () => fail(new Error("the host closed the connection")));
      secure.once("secureConnect", () => {
        signal.removeEventListener("abort", abort);
        resolve(secure);
      });
      if (signal.aborted) abort();
      else signal.addEventListener("abort", abort, { once: true });
    });
  }

  #reserve(machine: string): () => void {
    const count = this.#open.get(machine) ?? 0;
    if (count >= maxPerMachine)
      throw new AppError(
        "capacity_exhausted",
        `The sandbox has ${maxPerMachine} connections to hosts with secrets already`,
      );
    this.#open.set(machine, count + 1);
    let isReleased = false;
    return () => {
      if (isReleased) return;
      isReleased = true;
      const left = (this.#open.get(machine) ?? 1) - 1;
      if (left > 0) this.#open.set(machine, left);
      else this.#open.delete(machine);
    };
  }
}

class GuestAgent extends https.Agent {
  readonly #connect: () => Promise<tls.TLSSocket>;
  #isDestroyed = false;

  constructor(connect: () => Promise<tls.TLSSocket>) {
    super({ keepAlive: true, maxFreeSockets: maxIdlePerGuest, timeout: idleMs, maxCachedSessions: 0 });
    this.#connect = connect;
  }

  // No deadline: Upstreams.connect() has one.
  override createConnection(
    _options: https.RequestOptions,
    callback?: (error: Error | null, stream: Duplex) => void,
  ): undefined {
    const done = callback as (error: Error | null, stream?: Duplex) => void;
    this.#connect().then(
      (socket) => {
        if (!this.#isDestroyed) return done(null, socket);
        socket.destroy();
        done(new Error("The guest closed its connection"));
      },
      (error: unknown) => done(error instanceof Error ? error : new Error(String(error))),
    );
  }

  override destroy(): void {
    this.#isDestroyed = true;
    super.destroy();
  }
}

/** TLS errors name certificates and hosts, nothing of a request. */
function explained(host: string, error: unknown): AppError {
  const code = error instanceof Error && "code" in error ? String(error.code) : "";
  const isCertificate = /CERT|ERR_TLS|UNABLE_TO|SELF_SIGNED|ISSUER|HOSTNAME|CRL/.test(code);
  const what = isCertificate ? "Cannot verify the certificate of" : "Cannot open a TLS connection to";
  return new AppError("engine_failed", `${what} "${host}": ${errorMessage(error)}`, {
    details: { host, reason: code },
  });
}
