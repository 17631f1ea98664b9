/**
 * Who calls, and are they allowed to? The unix socket is open to its owner alone (mode 0600) and asks for
 * nothing. TCP asks for the token or a key, whose scope must cover the route.
 */
import { timingSafeEqual } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { advice, AppError, scopes, type Route, type Scope } from "@forkd/contract";
import type { Caller } from "@forkd/runtime";
import { checkBrowserTraps, type AllowedHosts } from "./browser-guard.ts";
import { digestOf, type Key, type KeyIdentity, type KeyStore } from "./key-store.ts";
import { OpenCalls, type Cut } from "./open-calls.ts";
import { addressOf, networkOf } from "./peer.ts";
import { RateLimiter } from "./rate-limit.ts";

export type Via = "unix" | "tcp";

export type Principal = {
  readonly name: string;
  readonly scope: Scope;
  readonly caller: Caller;
  /** which key of that name it is; absent for callers without a key */
  readonly key?: KeyIdentity;
  /** Calls `cut` when the principal loses the right to call, until the returned function is called. */
  readonly hold: (cut: Cut) => () => void;
};

export type GateOptions = {
  /** undefined: TCP asks for nothing */
  readonly token: string | undefined;
  readonly keys: KeyStore;
  readonly allowedHosts?: AllowedHosts;
  /** requests of one principal over TCP; 0 = no limit */
  readonly rate?: { readonly perSecond: number; readonly burst: number };
};

/** Requests refused for their token, Host or Origin, from one address: so many at once, then one a second */
const failures = { perSecond: 1, burst: 20 };

export class Gate {
  readonly #options: GateOptions;
  readonly #rate: RateLimiter;
  readonly #failures = new RateLimiter(failures);
  /** of the token */
  readonly #holders = new OpenCalls();
  #tokenDigest: Buffer | undefined;

  constructor(options: GateOptions) {
    this.#options = options;
    this.#rate = new RateLimiter(options.rate ?? { perSecond: 0, burst: 1 });
    this.#tokenDigest = options.token === undefined ? undefined : digestOf(options.token);
  }

  /** Ends the open requests of callers with the old token. Has no effect if no token is required. */
  changeToken(token: string): void {
    const digest = digestOf(token);
    if (this.#tokenDigest === undefined || digest.equals(this.#tokenDigest)) return;
    this.#tokenDigest = digest;
    this.#holders.cut(
      new AppError("unauthenticated", "The daemon's token was changed", {
        remedy: { action: "authenticate" },
      }),
    );
  }

  /**
   * Throws `forbidden`, `unauthenticated` or `rate_limited`. Returns undefined if the route asks for no
   * caller. `given` is the token or key of the request.
   */
  identify(
    incoming: IncomingMessage,
    via: Via,
    scope: Route["scope"],
    given = bearerOf(incoming.headers.authorization),
  ): Principal | undefined {
    if (via === "unix") return anyone("local");
    try {
      checkBrowserTraps(incoming, this.#options.allowedHosts ?? []);
    } catch (error) {
      throw this.#refused(incoming, error);
    }
    if (scope === "open") return undefined;
    const principal = this.#tokenDigest === undefined ? anyone("anonymous") : this.#bearer(incoming, given);
    this.limit(via, principal.name);
    return principal;
  }

  /** Throws `rate_limited` if there are too many requests of this name. */
  limit(via: Via, name: string): void {
    const wait = via === "unix" ? 0 : this.#rate.take(name);
    if (wait > 0) throw rateLimited(`Too many requests of "${name}"`, wait);
  }

  /** The error for a request that is refused: `why`, or `rate_limited` after too many from its address. */
  refused(incoming: IncomingMessage, via: Via, why: unknown): unknown {
    return via === "unix" ? why : this.#refused(incoming, why);
  }

  /** Whether the header Authorization is the token or a key: a guest must not see it. */
  isOwnSecret(authorization: string | undefined): boolean {
    return this.isOwnKey(bearerOf(authorization));
  }

  /** Whether the text is the token or a key. */
  isOwnKey(given: string | undefined): boolean {
    if (given === undefined) return false;
    const digest = digestOf(given);
    const isToken = this.#tokenDigest !== undefined && timingSafeEqual(digest, this.#tokenDigest);
    return this.#options.keys.find(digest) !== undefined || isToken;
  }

  #bearer(incoming: IncomingMessage, given: string | undefined): Principal {
    const digest = digestOf(given ?? "");
    const isToken = this.#tokenDigest !== undefined && timingSafeEqual(digest, this.#tokenDigest);
    const key = this.#options.keys.find(digest);
    if (given !== undefined && isToken) return { ...anyone("token"), hold: (cut) => this.#holders.hold(cut) };
    if (key && !key.isExpired()) return keyHolder(key);
    const wrong = () => new AppError("unauthenticated", "The token is wrong");
    throw this.#refused(incoming, key ? key.expired() : given === undefined ? missing() : wrong());
  }

  /**
   * Counts refusals only: a valid key always works, also from the address of a proxy that sends many bad
   * ones.
   */
  #refused(incoming: IncomingMessage, why: unknown): unknown {
    const wait = this.#failures.take(networkOf(addressOf(incoming)));
    return wait > 0 ? rateLimited("Too many refused requests from this address", wait) : why;
  }
}

function bearerOf(authorization = ""): string | undefined {
  return /^Bearer +(\S+)$/i.exec(authorization)?.[1];
}

/** Throws `forbidden` unless the principal's scope covers it. */
export function requireScope(principal: Principal | undefined, needed: Scope, what = "This"): void {
  if (principal === undefined || scopes.indexOf(principal.scope) >= scopes.indexOf(needed)) return;
  throw new AppError(
    "forbidden",
    `${what} needs the scope "${needed}"; the key "${principal.name}" has "${principal.scope}"`,
    { details: { needed, scope: principal.scope, key: principal.name } },
  );
}

/** Some fields of an input need more than the route itself. */
export function requireInputScope(
  principal: Principal | undefined,
  route: Route,
  input: Readonly<Record<string, unknown>>,
): void {
  for (const [field, scope] of Object.entries(route.inputScopes)) {
    const value = input[field];
    if (value !== undefined && value !== false) requireScope(principal, scope, `The field ${field}`);
  }
}

function anyone(name: "local" | "token" | "anonymous"): Principal {
  return { name, scope: "admin", caller: { name }, hold: () => () => {} };
}

function keyHolder(key: Key): Principal {
  const { max_sandboxes: sandboxes, max_memory_mib: memoryMib, network, secrets } = key.record;
  key.lastUsedUnix = Math.floor(Date.now() / 1000);
  return {
    name: key.name,
    key: key.identity,
    scope: key.scope,
    caller: {
      name: key.name,
      limits: { sandboxes, memoryMib },
      ...(network && { network }),
      ...(secrets && { secrets }),
    },
    hold: (cut) => key.hold(cut),
  };
}

function rateLimited(what: string, waitSecs: number): AppError {
  const seconds = Math.max(1, Math.ceil(waitSecs));
  return new AppError("rate_limited", what, {
    details: { retry_after_secs: seconds },
    remedy: advice(`Try again in ${seconds} s.`),
  });
}

function missing(): AppError {
  return new AppError("unauthenticated", "The request has no valid token", {
    remedy: { action: "authenticate" },
  });
}
