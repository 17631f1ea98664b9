/** Connections of one machine to the outside. Each address that a name leads to is checked before it is used. */
import type net from "node:net";
import type { ProxyChoice } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { canonicalAddress } from "../policy/address.ts";
import type { Policy } from "../policy/policy.ts";
import type { Destination } from "../types.ts";
import { grantsFor, refusalText, type Refused, type Target } from "./access.ts";
import type { Connection } from "./connection.ts";
import { connectThrough, connectToAny } from "./upstream.ts";

const maxConnecting = 256;

type OutboundFacts = {
  readonly proxies: ProxyChoice;
  /** As HostResolver.resolve(), for this machine. */
  resolve(name: string): Promise<readonly string[]>;
  /** as it is now */
  policy(): Policy;
  deny(refused: Refused): void;
  onFailure(): void;
};

export class Outbound {
  readonly #facts: OutboundFacts;
  #connecting = 0;

  constructor(facts: OutboundFacts) {
    this.#facts = facts;
  }

  /** As InterceptContext.connect(). */
  async connect(connection: Connection, target: Target): Promise<net.Socket> {
    if (this.#connecting >= maxConnecting)
      throw new AppError("capacity_exhausted", "The sandbox opens too many connections at a time");
    this.#connecting++;
    try {
      const { socket, grants } = await this.#reach(target);
      connection.hold(socket, grants);
      // The policy may have changed, and the guest may have gone, while the connection was made.
      const refused = this.#firstRefused(grants);
      if (!refused && !connection.guest.destroyed) return socket;
      socket.destroy();
      throw refused ? forbidden(refused) : new AppError("cancelled", "The guest closed the connection");
    } catch (error) {
      this.#facts.onFailure();
      throw error;
    } finally {
      this.#connecting--;
    }
  }

  #firstRefused(grants: readonly Destination[]): Refused | undefined {
    for (const destination of grants) {
      const decision = this.#facts.policy().decide(destination);
      if (!decision.allowed) return { destination, decision };
    }
    return undefined;
  }

  async #reach(target: Target): Promise<{ socket: net.Socket; grants: Destination[] }> {
    const { name, address, port } = target;
    const host = name ?? address ?? "";
    const proxy = this.#facts.proxies.proxyFor(host, port, "https");
    // The proxy resolves names itself, and may be the only one that can.
    if (proxy) {
      const socket = await connectThrough(proxy, address ?? host, port);
      return { socket, grants: grantsFor(target) };
    }
    if (address !== undefined)
      return { socket: await connectToAny([address], port, `${host}:${port}`), grants: grantsFor(target) };
    const addresses = await this.#permittedAddresses(host, port, "tcp");
    const socket = await connectToAny(addresses, port, `${host}:${port}`);
    const used = canonicalAddress(socket.remoteAddress ?? "") ?? addresses[0];
    return { socket, grants: [{ protocol: "tcp", port, name, address: used }] };
  }

  /** The addresses of a name that the policy allows it to lead to. */
  async #permittedAddresses(name: string, port: number, protocol: "tcp" | "udp"): Promise<string[]> {
    const addresses = await this.#facts.resolve(name);
    const decided = addresses.map((address) => {
      const destination = { protocol, port, name, address };
      return { destination, decision: this.#facts.policy().decide(destination) };
    });
    const permitted = decided.filter(({ decision }) => decision.allowed);
    const [first] = decided;
    if (permitted.length === 0 && first && !first.decision.allowed) {
      const refused = { destination: first.destination, decision: first.decision };
      this.#facts.deny(refused);
      throw forbidden(refused);
    }
    return permitted.map(({ destination }) => destination.address);
  }

  /** Where datagrams go; undefined if that is refused. */
  async udpAddress(destination: Destination): Promise<string | undefined> {
    const { name, address, port } = destination;
    if (name !== undefined) return (await this.#permittedAddresses(name, port, "udp"))[0];
    const decision = this.#facts.policy().decide(destination);
    if (decision.allowed) return address;
    this.#facts.deny({ destination, decision });
    return undefined;
  }
}

export function forbidden(refused: Refused): AppError {
  return new AppError("forbidden", refusalText(refused), { details: { rule: refused.decision.suggestion } });
}
