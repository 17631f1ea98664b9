/** Filters and pages of lists. */
import { z } from "zod";

/** One label or several, all of which must match. */
export const labelFilterSchema = z
  .union([z.string().max(512), z.array(z.string().max(512)).max(32)])
  .transform((given) => (typeof given === "string" ? [given] : given))
  .meta({ description: "name or name=value; repeated: all must match" });

/** Query fields that every list takes. */
export const pageFields = {
  limit: z.coerce
    .number()
    .int()
    .min(1, "must be 1 to 1000")
    .max(1000, "must be 1 to 1000")
    .optional()
    .meta({ description: "Longest page; without it everything is listed" }),
  cursor: z.string().max(512).optional().meta({ description: "X-Next-Cursor of the previous page" }),
};
