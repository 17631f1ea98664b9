/** The sandboxes of one daemon. */
import type { CallOptions, Client } from "./client.ts";
import { filterOf, refuseUnknown } from "./convert/request.ts";
import { paginate, type Paginator } from "./paginator.ts";
import type { SandboxFilter } from "./sandbox-options.ts";
import { Sandbox } from "./sandbox.ts";

/** Lists, finds and kills sandboxes. */
export class Sandboxes {
  readonly #client: Client;

  /** @internal */
  constructor(client: Client) {
    this.#client = client;
  }

  /** Lists the sandboxes that match, the oldest first; default: all. */
  list(filter: SandboxFilter = {}, options: CallOptions = {}): Paginator<Sandbox> {
    const toItem = (info: ConstructorParameters<typeof Sandbox>[1]) => new Sandbox(this.#client, info);
    return paginate(this.#client, "listSandboxes", { filter, options }, toItem);
  }

  /** Returns the sandbox with this id. */
  async get(id: string, options: CallOptions = {}): Promise<Sandbox> {
    refuseUnknown("getSandbox", options, []);
    return new Sandbox(this.#client, await this.#client.call("getSandbox", { id }, options));
  }

  /** Kills the sandbox with this id. */
  async kill(id: string, options: CallOptions = {}): Promise<void> {
    await this.#client.invoke("kill", { id }, options);
  }

  /** Kills all sandboxes that match; without a filter all of them. Resolves to their ids. */
  async killAll(
    filter: Pick<SandboxFilter, "tag" | "label"> = {},
    options: CallOptions = {},
  ): Promise<string[]> {
    refuseUnknown("killAll", options, []);
    const request = filterOf("killAll", {}, filter);
    return (await this.#client.call("killAll", request, options)).killed;
  }
}
