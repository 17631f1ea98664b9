/** The schema of an error on the wire. */
import { z } from "zod";

export const errorBodySchema = z.object({
  /** what failed, for a person */
  error: z.string(),
  /** stable, from the table */
  code: z.string(),
  details: z.record(z.string(), z.unknown()).default({}),
  /** what the caller can do about it: an action with its parameters, and the same as a sentence */
  remedy: z.looseObject({ action: z.string(), text: z.string() }).optional(),
  request_id: z.string().optional(),
});

/** The last line of a stream that failed. */
export const errorEventSchema = z.object({ type: z.literal("error"), ...errorBodySchema.shape });
