/**
 * UDP for the rules that allow it. There is one socket in the machine's namespace for each permitted address and port; what
 * the guest sends there goes to the host that the address stands for, from one socket for each sender.
 */
import dgram from "node:dgram";
import type { Destination } from "../types.ts";
import type { Direction } from "./intercept.ts";

const idleMs = 60_000;
const maxFlows = 64;

export type UdpAccess = {
  /** the address to send to; undefined if it is refused or does not resolve */
  resolve(destination: Destination): Promise<string | undefined>;
  tryCharge(direction: Direction, bytes: number): boolean;
  onFlow(destination: Destination): void;
};

type Flow = { readonly socket: dgram.Socket; readonly timer: NodeJS.Timeout };

export class UdpRelay implements Disposable {
  readonly destination: Destination;
  readonly #inside: dgram.Socket;
  readonly #access: UdpAccess;
  /** sender → its socket; undefined while the name is resolved */
  readonly #flows = new Map<string, Flow | undefined>();
  #isClosed = false;

  constructor(inside: dgram.Socket, destination: Destination, access: UdpAccess) {
    this.#inside = inside;
    this.destination = destination;
    this.#access = access;
    inside.on("message", (bytes, from) => this.#fromGuest(bytes, from));
    inside.on("error", () => this[Symbol.dispose]());
  }

  [Symbol.dispose](): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#inside.close();
    this.closeFlows();
  }

  /** The next datagram of each sender is checked again. */
  closeFlows(): void {
    for (const key of this.#flows.keys()) this.#close(key);
  }

  #fromGuest(bytes: Buffer, from: dgram.RemoteInfo): void {
    const key = `${from.address} ${from.port}`;
    const flow = this.#flows.get(key);
    if (flow) {
      if (!this.#access.tryCharge("out", bytes.length)) return;
      flow.timer.refresh();
      sendQuietly(flow.socket, bytes);
      return;
    }
    // Datagrams that arrive before the flow is open are lost, as they may be on any network.
    if (this.#flows.has(key) || this.#flows.size >= maxFlows) return;
    this.#flows.set(key, undefined);
    void this.#open(key, from, bytes);
  }

  async #open(key: string, from: dgram.RemoteInfo, first: Buffer): Promise<void> {
    const address = await this.#access.resolve(this.destination).catch(() => undefined);
    if (address === undefined || this.#isClosed || !this.#flows.has(key)) {
      this.#flows.delete(key);
      return;
    }
    const socket = dgram.createSocket(address.includes(":") ? "udp6" : "udp4");
    const timer = setTimeout(() => this.#close(key), idleMs);
    const drop = (): void => {
      clearTimeout(timer);
      this.#flows.delete(key);
      closeQuietly(socket);
    };
    socket.on("error", drop);
    socket.on("message", (bytes) => {
      if (this.#isClosed || !this.#access.tryCharge("in", bytes.length)) return;
      timer.refresh();
      this.#inside.send(bytes, from.port, from.address, () => undefined);
    });
    // Connected: the kernel drops answers of others. Until then nothing can be sent.
    socket.connect(this.destination.port, address, (error?: Error) => {
      // For example EACCES for a broadcast address. Node reports it here and not as an event.
      if (error) {
        drop();
        return;
      }
      if (this.#isClosed || !this.#flows.has(key) || this.#flows.get(key)) {
        clearTimeout(timer);
        closeQuietly(socket);
        return;
      }
      this.#flows.set(key, { socket, timer });
      this.#access.onFlow({ ...this.destination, address });
      if (this.#access.tryCharge("out", first.length)) sendQuietly(socket, first);
    });
  }

  #close(key: string): void {
    const flow = this.#flows.get(key);
    this.#flows.delete(key);
    if (!flow) return;
    clearTimeout(flow.timer);
    closeQuietly(flow.socket);
  }
}

/** send() throws, and does not only report, if the socket is closed or not connected. The datagram is lost then. */
function sendQuietly(socket: dgram.Socket, bytes: Buffer): void {
  try {
    socket.send(bytes, () => undefined);
  } catch {
    // Lost.
  }
}

/** A socket that failed may be closed already. */
function closeQuietly(socket: dgram.Socket): void {
  try {
    socket.close();
  } catch {
    // Closed.
  }
}
