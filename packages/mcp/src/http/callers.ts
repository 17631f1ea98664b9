/**
 * Who calls: each key has its own backend, so that callers never see each other's outputs, and each may do in
 * the daemon what its key allows. The number of callers in memory is bounded.
 */
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { createMcpHandler, type McpHttpHandler } from "@modelcontextprotocol/server";
import { AppError, deadlineSignal } from "@forkd/contract/wire";
import type { Forkd } from "@forkd/sdk";
import { Backend } from "../backend.ts";
import type { ServeOptions } from "../options.ts";
import { makeServer } from "../server.ts";

/** How callers show who they are. */
export type KeyRule =
  /** Every caller has this key and acts as the user of this server. */
  | { readonly kind: "own"; readonly key: string }
  /** Each caller has a key of the daemon, which decides what it may do. */
  | { readonly kind: "daemon"; readonly connect: (key: string) => Promise<Forkd> };

export type Caller = {
  readonly id: string;
  readonly backend: Backend;
  /** Serves requests of the protocol revisions without sessions. */
  readonly modern: McpHttpHandler;
};

/** Callers that are kept in memory, and how long the daemon's yes to a key counts. */
const mostCallers = 64;
/** Bytes of outputs that are kept for each. */
const outputBytes = 8 * 1024 * 1024;
const trustMs = 60_000;
const verifyMs = 10_000;

export class Callers {
  readonly #options: ServeOptions;
  readonly #rule: KeyRule;
  readonly #label = randomBytes(4).toString("hex");
  /** By the digest of the key, the longest unused first. */
  readonly #callers = new Map<string, { caller: Caller; trustedUntil: number }>();

  constructor(options: ServeOptions, rule: KeyRule) {
    this.#options = options;
    this.#rule = rule;
  }

  /** Throws `unauthenticated`, or what the daemon says about the key. */
  async identify(authorization: string | undefined): Promise<Caller> {
    const key = /^Bearer +(\S+)$/i.exec(authorization ?? "")?.[1];
    if (key === undefined)
      throw new AppError("unauthenticated", "The request has no key", { remedy: bearerRemedy });
    const digest = digestOf(key);
    if (this.#rule.kind === "own" && !timingSafeEqual(digest, digestOf(this.#rule.key)))
      throw new AppError("unauthenticated", "The key is wrong", { remedy: bearerRemedy });
    const id = digest.toString("hex");
    const known = this.#callers.get(id);
    if (known !== undefined && known.trustedUntil > performance.now()) return this.#used(id, known);
    const caller = known?.caller ?? this.#make(id, key);
    if (this.#rule.kind === "daemon") await verify(caller);
    return this.#used(id, { caller, trustedUntil: performance.now() + trustMs });
  }

  /** Ends the open requests of all callers; with `killOnExit` kills what they created. */
  async close(end: (backend: Backend) => Promise<void>): Promise<void> {
    const all = [...this.#callers.values()].map(({ caller }) => caller);
    await Promise.all(
      all.map(async ({ modern, backend }) => {
        await modern.close();
        await end(backend);
      }),
    );
  }

  #make(id: string, key: string): Caller {
    const { connect, ttlSecs, version, log } = this.#options;
    const rule = this.#rule;
    const backend = new Backend({
      connect: rule.kind === "daemon" ? () => rule.connect(key) : connect,
      ttlSecs,
      label: `http-${this.#label}`,
      outputBytes,
    });
    const modern = createMcpHandler(() => makeServer(backend, { version, log }), {
      legacy: "reject",
      onerror: (error) => log(error.message),
    });
    return { id, backend, modern };
  }

  #used(id: string, entry: { caller: Caller; trustedUntil: number }): Caller {
    this.#callers.delete(id);
    this.#callers.set(id, entry);
    for (const [oldest, { caller }] of this.#callers) {
      if (this.#callers.size <= mostCallers) break;
      // A caller with sandboxes to kill, or with open calls, stays.
      if (oldest !== id && caller.backend.isIdle()) this.#callers.delete(oldest);
    }
    return entry.caller;
  }
}

async function verify({ backend }: Caller): Promise<void> {
  using deadline = deadlineSignal(verifyMs);
  const forkd = await backend.forkd();
  await forkd.call("version", {}, { signal: deadline.signal });
}

function digestOf(key: string): Buffer {
  return createHash("sha256").update(key).digest();
}

const bearerRemedy = {
  action: "advice",
  text: "Send the header Authorization with Bearer and the key.",
} as const;
