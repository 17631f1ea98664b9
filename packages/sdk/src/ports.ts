/** Ports of a sandbox. */
import type { OpenedPort, PortInfo } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";
import type { RawStream } from "./transport.ts";

/** Options of `ports.open()`. */
export type OpenPortOptions = CallOptions & {
  /** Requests to the address need no token; default: false. */
  public?: boolean | undefined;
  /** Closes the port after this time; default: when the sandbox ends. */
  ttlSecs?: number | undefined;
};

/** Opens ports of a sandbox and connects to them. */
export class Ports {
  readonly #client: Client;
  readonly #id: string;

  constructor(client: Client, id: string) {
    this.#client = client;
    this.#id = id;
  }

  /** Opens a port, or changes one that is open. The answer has its address and, unless it is public, its token. */
  open(port: number, options: OpenPortOptions = {}): Promise<OpenedPort> {
    const { public: isPublic, ttlSecs } = options;
    const request = { id: this.#id, port, public: isPublic, ttl_secs: ttlSecs };
    return this.#client.call("openPort", request, options);
  }

  /** Lists the open ports, without their tokens. */
  list(options: CallOptions = {}): Promise<PortInfo[]> {
    return this.#client.call("listPorts", { id: this.#id }, options);
  }

  /** Closes a port and the connections to its address. */
  async close(port: number, options: CallOptions = {}): Promise<void> {
    await this.#client.call("closePort", { id: this.#id, port }, options);
  }

  /**
   * Connects to a TCP port, which need not be open. Works with `connect()` of `@forkd/sdk/node`, where the result
   * is a `Duplex` of Node.
   */
  connect(port: number, options: CallOptions = {}): Promise<RawStream> {
    return this.#client.tunnel(this.#id, port, options);
  }
}
