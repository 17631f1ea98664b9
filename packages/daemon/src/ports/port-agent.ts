/**
 * Connections to one port of one machine that requests use again. Their number is bounded, and an idle one is
 * closed before most servers would close it.
 */
import http from "node:http";
import type { Duplex } from "node:stream";

const maxIdle = 8;
const idleMs = 4000;
/** A server may close a connection that has been idle for longer while a request is on its way. */
const surelyOpenMs = 1000;

type Connected = (error: Error | null, stream: Duplex) => void;
type Failed = ((error: Error) => void) | undefined;
/** Node keeps the request that the connection served last. */
type ServedStream = Duplex & { _httpMessage?: http.ClientRequest & { res?: http.IncomingMessage } };
type Idle = { readonly timer: NodeJS.Timeout; readonly drop: () => void; readonly leave: () => void };

export class PortAgent extends http.Agent {
  readonly #connect: () => Promise<Duplex>;
  readonly #idle = new Map<Duplex, Idle>();
  #lastIdleAt = Number.NEGATIVE_INFINITY;

  constructor(connect: () => Promise<Duplex>) {
    super({ keepAlive: true, maxFreeSockets: maxIdle });
    this.#connect = connect;
  }

  /** Whether a request that cannot be repeated may use a connection again. */
  get isFresh(): boolean {
    return performance.now() - this.#lastIdleAt < surelyOpenMs;
  }

  /** Closes the idle connections, so that the next request gets a new one. */
  dropIdle(): void {
    for (const { drop } of [...this.#idle.values()]) drop();
  }

  // No deadline: `connect` has one.
  override createConnection(_options: unknown, done?: Connected): undefined {
    this.#connect().then(
      (stream) => done?.(null, withRef(stream)),
      (error: unknown) => (done as Failed)?.(error instanceof Error ? error : new Error(String(error))),
    );
    return undefined;
  }

  /** Called when an answer is complete: true keeps the connection. */
  override keepSocketAlive(stream: ServedStream): boolean {
    // Bytes that no request asked for would become the next answer.
    if (stream.destroyed || stream.readableEnded || stream.readableLength > 0) return false;
    const hint = /timeout=(\d{1,6})/.exec(String(stream._httpMessage?.res?.headers["keep-alive"] ?? ""))?.[1];
    const ms = Math.min(idleMs, hint === undefined ? idleMs : Number(hint) * 1000 - surelyOpenMs);
    if (ms <= 0) return false;
    const drop = () => void stream.destroy();
    const timer = setTimeout(drop, ms).unref();
    // The server closes it, or sends bytes that no request asked for.
    stream.on("end", drop).on("data", drop);
    stream.resume();
    const leave = () => this.#leave(stream);
    this.#idle.set(stream, { timer, drop, leave });
    stream.once("close", leave);
    this.#lastIdleAt = performance.now();
    return true;
  }

  override reuseSocket(stream: Duplex, request: http.ClientRequest): void {
    this.#leave(stream);
    super.reuseSocket(stream, request);
  }

  #leave(stream: Duplex): void {
    const idle = this.#idle.get(stream);
    if (idle === undefined) return;
    this.#idle.delete(stream);
    clearTimeout(idle.timer);
    stream.off("end", idle.drop).off("data", idle.drop).off("close", idle.leave);
  }
}

/** Node calls ref() of a connection that is used again, which only sockets have. */
function withRef(stream: Duplex): Duplex {
  return "ref" in stream ? stream : Object.assign(stream, { ref: () => stream });
}
