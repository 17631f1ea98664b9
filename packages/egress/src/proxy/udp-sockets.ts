/** The UDP sockets in the namespace of one machine, as its policy asks for them. */
import type dgram from "node:dgram";
import type { Policy, UdpTarget } from "../policy/policy.ts";
import type { Destination } from "../types.ts";
import { UdpRelay, type UdpAccess } from "./udp-relay.ts";

const maxSockets = 64;

type UdpSocketsAccess = UdpAccess & {
  /** a socket in the namespace */
  datagram(address: string, port: number): Promise<dgram.Socket>;
  /** the synthetic address of a name */
  addressOf(name: string): string;
  onFailure(destination: Destination, error: unknown): void;
};

export class UdpSockets {
  readonly #access: UdpSocketsAccess;
  /** by address and port; a promise while it is made */
  readonly #relays = new Map<string, Promise<UdpRelay | undefined>>();
  #isClosed = false;

  constructor(access: UdpSocketsAccess) {
    this.#access = access;
  }

  /** Opens what rules name and closes what they no longer allow. Open flows are checked again. */
  apply(policy: Policy): void {
    for (const [key, opening] of this.#relays) {
      void opening.then((relay) => {
        if (!relay) return;
        relay.closeFlows();
        if (policy.decide(relay.destination).allowed) return;
        relay[Symbol.dispose]();
        this.#relays.delete(key);
      });
    }
    for (const target of policy.udpTargets()) void this.#open(target, policy);
  }

  /** For a name that a wildcard may allow, when a guest asks for its address. */
  async openFor(name: string, policy: Policy): Promise<void> {
    await Promise.all(policy.udpPorts(name).map((port) => this.#open({ name, port }, policy)));
  }

  close(): void {
    this.#isClosed = true;
    for (const opening of this.#relays.values()) void opening.then((relay) => relay?.[Symbol.dispose]());
    this.#relays.clear();
  }

  async #open(target: UdpTarget, policy: Policy): Promise<void> {
    const destination = { protocol: "udp", ...target } as const;
    const address = target.name === undefined ? target.address : this.#access.addressOf(target.name);
    const key = `${address} ${target.port}`;
    const isRefused = !policy.decide(destination).allowed || this.#relays.size >= maxSockets;
    if (address === undefined || isRefused || this.#isClosed) return;
    const known = this.#relays.get(key);
    if (known) {
      await known;
      return;
    }
    const opening = this.#make(destination, address);
    this.#relays.set(key, opening);
    if (!(await opening)) this.#relays.delete(key);
  }

  async #make(destination: Destination, address: string): Promise<UdpRelay | undefined> {
    try {
      const socket = await this.#access.datagram(address, destination.port);
      const relay = new UdpRelay(socket, destination, this.#access);
      if (!this.#isClosed) return relay;
      relay[Symbol.dispose]();
    } catch (error) {
      this.#access.onFailure(destination, error);
    }
    return undefined;
  }
}
