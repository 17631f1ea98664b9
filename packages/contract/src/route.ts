/** One route: everything that server, documents and clients know of it. The scope is not optional. */
import { z } from "zod";
import type { Scope } from "./wire/names.ts";

/** Longest JSON body of a route that does not name another length */
export const usualBodyBytes = 1024 * 1024;
/** Longest body of a route that carries content: input of commands, code, values of children */
export const contentBodyBytes = 32 * 1024 * 1024;

/** Output of a route that answers without a value. */
export const noAnswer = z.void();
/** A boolean in a query. */
export const queryFlag = z
  .enum(["true", "false", "1", "0"])
  .transform((text) => text === "true" || text === "1");

type Facts = {
  readonly method: "get" | "post" | "put" | "delete";
  readonly path: string;
  readonly summary: string;
  readonly status: 200 | 201 | 204;
  /** used instead of `status` when the value's own `status` is "writing" */
  readonly pendingStatus?: 202;
  /** what a caller must be allowed; `open` asks for no token */
  readonly scope: Scope | "open";
  /**
   * Body of the answer: one JSON value, lines of JSON (`events`), server-sent events (`sse`), raw bytes
   * (`bytes`) or plain text (`text`). `upload` takes raw bytes in the request and answers with JSON.
   */
  readonly kind: "json" | "events" | "bytes" | "upload" | "sse" | "text";
  /** path parameters, and the query (GET, DELETE, PUT) or the JSON body (POST), in one object */
  readonly input: z.ZodObject;
  /** of the value, or of one line */
  readonly output: z.ZodType;
  /** one line of the answer when the input says `stream: true` */
  readonly streamed?: z.ZodType;
};

type RouteColumns = {
  /** fields of the input that need the scope `admin` when they are given and not false; default: none */
  readonly adminInputs: readonly string[];
  /** longest JSON body; default: `usualBodyBytes` */
  readonly maxBodyBytes: number;
  /** query fields that may be given more than once; default: none */
  readonly repeatable: readonly string[];
  /** a list that takes `limit` and `cursor` and names the next page in its headers; default: false */
  readonly paged: boolean;
  /**
   * When the audit log gets a line. `read`: if reads are audited; `change`: always; `command`: always, with a
   * digest of the command or code; `none`: never. Failures are always audited. Default: `read` for GET,
   * otherwise `change`.
   */
  readonly audit: "read" | "change" | "command" | "none";
  /**
   * The operation calls into the guest: it resumes a paused sandbox that has auto-resume, and the sandbox is
   * not idle while it runs; default: false
   */
  readonly intoGuest: boolean;
  /** level of the log line of a request that succeeds; default: info */
  readonly log: "info" | "debug";
  /** the client decides how long the answer lasts, so that its duration is not measured; default: false */
  readonly endless: boolean;
  /**
   * `honoured`: a repeated call with the same Idempotency-Key and the same request gets the answer of the
   * first. `refused`, with the reason: every call does its work again, so that ignoring the key would mislead
   * the caller. `ignored` (default): a repeated call changes nothing more.
   */
  readonly idempotencyKey: "honoured" | "ignored" | { readonly refused: string };
};

export type Route = Facts & RouteColumns;
type RouteDefinition = Facts & Partial<RouteColumns>;

/** Fills in the defaults and keeps the exact types of the definition. */
export function route<const R extends RouteDefinition>(definition: R): R & RouteColumns {
  return {
    adminInputs: [],
    maxBodyBytes: usualBodyBytes,
    repeatable: [],
    paged: false,
    audit: definition.method === "get" ? "read" : "change",
    intoGuest: false,
    log: "info",
    endless: false,
    idempotencyKey: "ignored",
    ...definition,
  };
}
