/** Fork safety: what is checked on the children of a snapshot, and the result. */
import { z } from "zod";
import { errorEventSchema } from "./error-body.ts";
import { tagSchema } from "./ids.ts";
import { route } from "./route.ts";
import { acceleratorSchema } from "./sandboxes.ts";
import { hazardIds } from "./wire/hazards.ts";

export const hazardIdSchema = z.enum(hazardIds);
/** Hazards that a snapshot requires to be checked; each once. */
export const requireSchema = z
  .array(hazardIdSchema)
  .min(1, "must name a hazard")
  .max(hazardIds.length)
  .refine((ids) => new Set(ids).size === ids.length, "names a hazard twice");

const hazardOutcomeSchema = z.enum(["pass", "warn", "fail", "not_applicable"]);
export type HazardOutcome = z.output<typeof hazardOutcomeSchema>;

export const hazardResultSchema = z.object({
  id: hazardIdSchema,
  title: z.string(),
  /** what must hold */
  policy: z.string(),
  /** what makes it hold */
  mechanism: z.string(),
  outcome: hazardOutcomeSchema,
  /** what was found */
  detail: z.string(),
  /** of `not_applicable`: the hazard cannot occur in this snapshot; otherwise it could not be checked */
  absent: z.boolean().optional(),
  /** what the owner of the snapshot can do about it */
  remedy: z.string().optional(),
  checked_at_unix: z.number(),
  duration_ms: z.number(),
});
export type HazardResult = z.output<typeof hazardResultSchema>;

export const verificationSchema = z.object({
  tag: tagSchema,
  /** id of the snapshot whose children were checked */
  snapshot_id: z.string(),
  verified_at_unix: z.number(),
  forkd_version: z.string(),
  engine: z.string(),
  accelerator: acceleratorSchema,
  /** the worst outcome of all hazards */
  outcome: z.enum(["pass", "warn", "fail"]),
  /** false if forkd, VMM or CPU are not those that it was checked with; such a result does not count */
  current: z.boolean(),
  hazards: z.array(hazardResultSchema),
});
export type Verification = z.output<typeof verificationSchema>;

const verifyReportSchema = verificationSchema.extend({
  /** children that were checked: forked, from the pool, and of a branch of a child */
  children: z.object({ forked: z.number(), pooled: z.number(), branched: z.number() }),
  duration_ms: z.number(),
  /** with `keep`: what was left for inspection */
  kept: z.object({ sandboxes: z.array(z.string()), snapshots: z.array(tagSchema) }).optional(),
});
export type VerifyReport = z.output<typeof verifyReportSchema>;

const verifyRequestSchema = z.strictObject({
  tag: tagSchema,
  /** children to fork; two more are forked from a branch of the first one */
  n: z.int().min(2, "must be 2 to 32").max(32, "must be 2 to 32").default(4),
  /** default: all hazards */
  only: requireSchema.optional(),
  /** leave the children and the branch for inspection */
  keep: z.boolean().default(false),
});
export type VerifyRequest = z.output<typeof verifyRequestSchema>;

/** One line of the stream that a verification writes. */
export const verifyEventSchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("progress"), message: z.string(), elapsed_ms: z.number() }),
  /** a hazard was checked */
  z.object({ type: z.literal("hazard"), hazard: hazardResultSchema }),
  z.object({ type: z.literal("report"), report: verifyReportSchema }),
  errorEventSchema,
]);
export type VerifyEvent = z.output<typeof verifyEventSchema>;

export const verifyRoutes = {
  verifySnapshot: route({
    method: "post",
    path: "/v1/snapshots/{tag}/verify",
    summary: "Fork children of a snapshot and check that they are safe; answers with lines of progress",
    status: 200,
    kind: "events",
    scope: "run",
    idempotencyKey: { refused: "each call checks new children; the result replaces the one before" },
    input: verifyRequestSchema,
    output: verifyEventSchema,
  }),
} as const;
