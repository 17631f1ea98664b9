/** The form of a route, shared by the tables. */
import type { z } from "zod";
import type { Scope } from "./keys.ts";

export type Route = {
  readonly method: "get" | "post" | "put" | "delete";
  readonly path: string;
  readonly summary: string;
  readonly status: 200 | 201 | 204;
  /** instead of `status` where the value's own `status` is "writing" */
  readonly pendingStatus?: 202;
  readonly kind: "json" | "events" | "bytes" | "upload";
  /** what a caller must be allowed; `open` asks for no token */
  readonly scope: Scope | "open";
  /** fields of the input that need the scope `admin` when they are given and not false */
  readonly adminInputs?: readonly string[];
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
