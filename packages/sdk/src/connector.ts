/** The daemon for calls that name none. */
import { advice, AppError } from "@forkd/contract/wire";
import type { CallOptions } from "./client.ts";
import type { Paginator } from "./paginator.ts";
import type { SandboxFilter, SandboxOptions } from "./sandbox-options.ts";

/** What a sandbox needs of the client of a daemon: a `Forkd` has it. */
export type Daemon<Sandbox> = {
  /** Forks one sandbox from a snapshot. */
  create(tag: string, options?: SandboxOptions): Promise<Sandbox>;
  /** Lists and finds sandboxes. */
  readonly sandboxes: {
    /** Lists the sandboxes that match. */
    list(filter?: SandboxFilter, options?: CallOptions): Paginator<Sandbox>;
    /** Returns the sandbox with this id. */
    get(id: string, options?: CallOptions): Promise<Sandbox>;
  };
};

let connect: (() => Promise<unknown>) | undefined;
let connected: Promise<unknown> | undefined;

/** The entry for Node sets how the daemon of this user is found. */
export function setDefaultConnector(connector: () => Promise<unknown>): void {
  connect = connector;
  connected = undefined;
}

/** The given client, or one for the daemon of this user, which later calls share. */
export async function forkdOr<S>(given: Daemon<S> | undefined): Promise<Daemon<S>> {
  if (given !== undefined) return given;
  if (connect === undefined)
    throw new AppError("unsupported", "Cannot find a daemon without the entry for Node", {
      remedy: advice(
        "Give a client as the option `forkd`: new Forkd({ transport: fetchTransport({ url }) }).",
      ),
    });
  connected ??= connect();
  try {
    // The connector returns a Forkd, which has sandboxes of that class.
    return (await connected) as Daemon<S>;
  } catch (error) {
    connected = undefined;
    throw error;
  }
}
