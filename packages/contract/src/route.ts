/** The form of a route, shared by the tables. */
import type { z } from "zod";
import type { Scope } from "./keys.ts";

export type HeaderNote = { readonly name: string; readonly description: string };

/** On calls that make something: the same key and the same request give the same answer, once made. */
export const idempotencyKeyHeader = {
  name: "Idempotency-Key",
  description: "1 to 128 printable characters; a call repeated with it is answered as the first was",
} as const satisfies HeaderNote;

export const replayedHeader = {
  name: "Idempotent-Replayed",
  description: '"true" where the answer is that of an earlier call with the same key',
} as const satisfies HeaderNote;

/** Longest JSON body of a route that does not say another */
export const usualBodyBytes = 1024 * 1024;
/** Of routes that carry content: input of commands, code, values of children */
export const contentBodyBytes = 32 * 1024 * 1024;

export type Route = {
  readonly method: "get" | "post" | "put" | "delete";
  readonly path: string;
  readonly summary: string;
  readonly status: 200 | 201 | 204;
  /** instead of `status` where the value's own `status` is "writing" */
  readonly pendingStatus?: 202;
  /** what a caller must be allowed; `open` asks for no token */
  readonly scope: Scope | "open";
  /** fields of the input that need the scope `admin` when they are given and not false */
  readonly adminInputs?: readonly string[];
  readonly kind: "json" | "events" | "bytes" | "upload" | "sse" | "text";
  /** longest JSON body */
  readonly maxBodyBytes?: number;
  /** query fields that may be given more than once */
  readonly repeatable?: readonly string[];
  /** headers of the request that have a meaning of their own here */
  readonly headers?: readonly HeaderNote[];
  /** headers of the answer, likewise */
  readonly answerHeaders?: readonly HeaderNote[];
  readonly input: z.ZodObject;
  /** of the value, or of one line */
  readonly output: z.ZodType;
  /** lines of this instead when the input says `stream: true` */
  readonly streamed?: z.ZodType;
};

/** Keeps the exact types of a definition. */
export function route<const R extends Route>(definition: R): R {
  return definition;
}
