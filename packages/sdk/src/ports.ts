/** Ports of a sandbox. */
import type { CallOptions, Client } from "./client.ts";
import { refuseUnknown } from "./convert/request.ts";
import type { RawStream } from "./transport.ts";
import type { OpenedPort, PortInfo } from "./types.ts";

/** Options of `ports.open()`. */
export type OpenPortOptions = CallOptions & {
  /** Requests to the address need no token; default: false. */
  public?: boolean | undefined;
  /** Closes the port after this many ms, rounded up to seconds; default: when the sandbox ends. */
  ttlMs?: number | undefined;
};

/** Opens ports of a sandbox and connects to them. */
export class Ports {
  readonly #client: Client;
  readonly #id: string;

  /** @internal */
  constructor(client: Client, id: string) {
    this.#client = client;
    this.#id = id;
  }

  /** Opens a port, or changes one that is open. The answer has its address and, unless it is public, its token. */
  open(port: number, options: OpenPortOptions = {}): Promise<OpenedPort> {
    return this.#client.invoke("openPort", { id: this.#id, port }, options);
  }

  /** Lists the open ports, without their tokens. */
  list(options: CallOptions = {}): Promise<PortInfo[]> {
    return this.#client.invoke("listPorts", { id: this.#id }, options);
  }

  /** Closes a port and the connections to its address. */
  async close(port: number, options: CallOptions = {}): Promise<void> {
    await this.#client.invoke("closePort", { id: this.#id, port }, options);
  }

  /**
   * Connects to a TCP port, which need not be open. Works with `connect()` of the entry for Node, where the result is
   * a `Duplex` of Node. `signal` and `timeoutMs` end with the connecting.
   */
  async connect(port: number, options: CallOptions = {}): Promise<RawStream> {
    refuseUnknown("ports.connect", options, []);
    return this.#client.tunnel(this.#id, port, options);
  }
}
