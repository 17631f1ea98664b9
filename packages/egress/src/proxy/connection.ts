/** One connection of a guest, with what it may do and what it holds. */
import type net from "node:net";
import type { Destination } from "../types.ts";

/** Where a connection goes, as far as the proxy knows before it reads the first bytes. */
export type Dial = {
  readonly port: number;
  /** by a synthetic address, or as CONNECT says */
  readonly name?: string | undefined;
  /** the address that the guest dialled or named */
  readonly address?: string | undefined;
  /** to the proxy itself: requests must name their hosts */
  readonly isProxy?: boolean | undefined;
  /** inside of CONNECT */
  readonly isTunnel?: boolean | undefined;
};

export class Connection {
  readonly guest: net.Socket;
  readonly startedMs = performance.now();
  /** what must stay allowed as long as the connection is open */
  readonly grants = new Set<Destination>();
  readonly #upstreams = new Set<net.Socket>();

  constructor(guest: net.Socket) {
    this.guest = guest;
    guest.once("close", () => {
      for (const upstream of this.#upstreams) upstream.destroy();
    });
  }

  /** The connection to the host closes with the guest's, and the grants end with it. */
  hold(upstream: net.Socket, grants: readonly Destination[]): void {
    for (const grant of grants) this.grants.add(grant);
    this.#upstreams.add(upstream);
    upstream.once("close", () => {
      for (const grant of grants) this.grants.delete(grant);
      this.#upstreams.delete(upstream);
    });
    // The user of the socket reports errors; without a listener an error would end the process.
    upstream.on("error", () => upstream.destroy());
    if (this.guest.destroyed) upstream.destroy();
  }

  /** Resets the guest's side, so that it does not take this for an end. */
  cut(): void {
    for (const upstream of this.#upstreams) upstream.destroy();
    resetSocket(this.guest);
  }
}

/**
 * Closes a connection with RST. A socket that is being ended is destroyed instead: libuv refuses to reset it, and Node then
 * forgets the socket without closing its descriptor.
 */
export function resetSocket(socket: net.Socket): void {
  if (socket.destroyed) return;
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}
