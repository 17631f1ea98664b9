/** Connections to hosts for the requests of one guest connection. */
import http from "node:http";
import type net from "node:net";
import type { Duplex } from "node:stream";
import { errorMessage } from "@forkd/contract";

/** One connection for each host, kept for the next request of the same guest connection. */
export class UpstreamAgent extends http.Agent {
  onIdleClose: () => void = () => undefined;
  readonly #connects = new Map<string, () => Promise<net.Socket>>();
  #isDestroyed = false;

  constructor() {
    super({ keepAlive: true, maxFreeSockets: 1 });
  }

  /** The key for a host. Idle connections to other hosts are closed. */
  keyFor(key: string, connect: () => Promise<net.Socket>): string {
    if (!this.#connects.has(key)) {
      for (const socket of Object.values(this.freeSockets).flat()) socket?.destroy();
      this.#connects.clear();
    }
    this.#connects.set(key, connect);
    return key;
  }

  // No deadline: the connections that it hands out were made with one.
  override createConnection(
    options: http.RequestOptions,
    callback?: (error: Error | null, stream: Duplex) => void,
  ): undefined {
    const done = callback as (error: Error | null, stream?: Duplex) => void;
    const connect = this.#connects.get(String(options.host));
    const work = connect ? connect() : Promise.reject(new Error("The host is not known"));
    work.then(
      (socket) => {
        if (this.#isDestroyed) socket.destroy();
        socket.once("close", () => this.onIdleClose());
        done(null, socket);
      },
      (error: unknown) => done(error instanceof Error ? error : new Error(errorMessage(error))),
    );
  }

  override destroy(): void {
    this.#isDestroyed = true;
    super.destroy();
  }
}
