/** One line of the audit log per request: who, what, on which objects, with which outcome. */
import { roundMs } from "@forkd/base";
import { createHash } from "node:crypto";
import type { IncomingMessage } from "node:http";
import type { AppError, AuditStatus, Route } from "@forkd/contract";
import type { Principal, Via } from "../access/gate.ts";
import { addressOf, networkOf } from "../access/peer.ts";
import { RateLimiter } from "../access/rate-limit.ts";
import type { AuditLog } from "./audit-log.ts";
import { ObjectCollector } from "./objects.ts";

type AuditSettings = {
  /** undefined if auditing is off */
  readonly log: AuditLog | undefined;
  /** also write requests that only read and succeed */
  readonly reads: boolean;
  /** write arguments and code in full, beside their digests */
  readonly commands: boolean;
};

const maxPath = 1024;
const maxCode = 65_536;
const maxUserAgent = 256;

type RequestFacts = {
  readonly incoming: IncomingMessage;
  readonly via: Via;
  readonly requestId: string;
  /** name in the table of routes */
  readonly route: string;
  /** what the table says about auditing it */
  readonly kind: Route["audit"];
};
export type Outcome = {
  readonly status: number;
  readonly durationMs: number;
  readonly failure: AppError | undefined;
};

export class Audit {
  readonly #settings: AuditSettings;
  /**
   * At most one refusal by a rate limit per second and caller is written: a flood of requests must not flood
   * the log.
   */
  readonly #refusals = new RateLimiter({ perSecond: 1, burst: 1 });
  #suppressed = 0;

  constructor(settings: AuditSettings) {
    this.#settings = settings;
  }

  begin(facts: RequestFacts): Trail {
    return new Trail(facts, this.#settings.commands, (trail, outcome) => this.#end(trail, outcome));
  }

  event(
    event: "daemon.start" | "daemon.stop" | "network.denied",
    fields: Readonly<Record<string, unknown>>,
  ): void {
    this.#settings.log?.write({ event, ...fields });
  }

  reopen(): void {
    this.#settings.log?.reopen();
  }

  /** undefined if auditing is off */
  status(): AuditStatus | undefined {
    return this.#settings.log?.status();
  }

  #end(trail: Trail, outcome: Outcome): void {
    const { log, reads } = this.#settings;
    const { incoming, kind } = trail.facts;
    const isWanted = outcome.status >= 400 || (kind !== "none" && (kind !== "read" || reads));
    if (log === undefined || !isWanted) return;
    if (outcome.failure?.code === "rate_limited") {
      const name = trail.principal?.name ?? networkOf(addressOf(incoming));
      if (this.#refusals.take(name) > 0) {
        this.#suppressed += 1;
        return;
      }
    }
    if (this.#suppressed > 0) {
      log.write({ event: "audit.suppressed", count: this.#suppressed, code: "rate_limited" });
      this.#suppressed = 0;
    }
    log.write(trail.line(outcome));
  }
}

/** What is known of one request, collected while it runs. */
export class Trail {
  principal: Principal | undefined;
  readonly facts: RequestFacts;
  readonly #commands: boolean;
  readonly #onEnd: (trail: Trail, outcome: Outcome) => void;
  #objects: ObjectCollector | undefined;
  #command: Readonly<Record<string, unknown>> | undefined;

  constructor(facts: RequestFacts, commands: boolean, onEnd: (trail: Trail, outcome: Outcome) => void) {
    this.facts = facts;
    this.#commands = commands;
    this.#onEnd = onEnd;
  }

  input(route: Pick<Route, "path" | "audit">, input: Readonly<Record<string, unknown>>): void {
    this.#objects = new ObjectCollector(route.path);
    this.#objects.input(input);
    if (route.audit === "command") this.#command = commandOf(input, this.#commands);
  }

  /** Only for requests that change something: a list does not touch the objects that it shows. */
  result(result: unknown): void {
    if (this.facts.kind === "change" || this.facts.kind === "command") this.#objects?.result(result);
  }

  end(outcome: Outcome): void {
    this.#onEnd(this, outcome);
  }

  line({ status, durationMs, failure }: Outcome): Record<string, unknown> {
    const { incoming, via, requestId, route } = this.facts;
    const peer = addressOf(incoming);
    const path = (incoming.url ?? "").replace(/\?.*/s, "").slice(0, maxPath);
    const objects = this.#objects?.all();
    const userAgent = incoming.headers["user-agent"]?.slice(0, maxUserAgent);
    return {
      event: "request",
      request_id: requestId,
      principal: this.principal?.name ?? null,
      ...(this.principal && { scope: this.principal.scope }),
      via,
      ...(peer !== "" && { peer }),
      method: incoming.method,
      route,
      path,
      ...(objects && { objects }),
      ...this.#command,
      status,
      ...(failure && { code: failure.code }),
      duration_ms: roundMs(durationMs),
      ...(userAgent !== undefined && { user_agent: userAgent }),
    };
  }
}

/** Digests of the arguments or the code, and in full if that is wanted. */
function commandOf(input: Readonly<Record<string, unknown>>, inFull: boolean): Record<string, unknown> {
  const { args, code } = input;
  if (Array.isArray(args)) {
    const argv = args.map(String);
    return { argv_sha256: sha256(argv.join("\0")), ...(inFull && { argv: shortened(argv) }) };
  }
  const text = String(code);
  return { code_sha256: sha256(text), ...(inFull && { code: text.slice(0, maxCode) }) };
}

/** The first arguments, as many as code may have characters; the digest is of all. */
function shortened(args: readonly string[]): readonly string[] {
  let left = maxCode;
  const kept: string[] = [];
  for (const arg of args) {
    if (left <= 0) break;
    kept.push(arg.slice(0, left));
    left -= arg.length + 1;
  }
  return kept;
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
