/** The form of a route, shared by the tables. */
import type { z } from "zod";

export type Route = {
  readonly method: "get" | "post" | "put" | "delete";
  readonly path: string;
  readonly summary: string;
  readonly status: 200 | 201 | 204;
  /** instead of `status` where the value's own `status` is "writing" */
  readonly pendingStatus?: 202;
  readonly kind: "json" | "events" | "bytes" | "upload";
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
