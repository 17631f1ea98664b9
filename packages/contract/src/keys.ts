/** Keys: who may call the daemon over TCP, and what for. */
import { z } from "zod";
import { tagSchema } from "./ids.ts";

/** Each includes those before it. */
export const scopes = ["read", "run", "admin"] as const;
export type Scope = (typeof scopes)[number];
export const keyScopeSchema = z.enum(scopes).meta({
  description: "read: lists and facts; run: also sandboxes and what is in them; admin: everything",
});

export const keyNameSchema = tagSchema.meta({
  description: "Name of a key; sandboxes that it makes have it as their owner",
});

const limit = (max: number, description: string) => z.int().min(1).max(max).meta({ description });
const limitShape = {
  max_sandboxes: limit(100_000, "Sandboxes that all callers of this name may have at a time").optional(),
  max_memory_mib: limit(1 << 30, "Guest memory that all their sandboxes may have together").optional(),
};

export const createKeySchema = z.strictObject({
  name: keyNameSchema,
  scope: keyScopeSchema.default("run"),
  expires_at_unix: z.int().min(1).max(253_402_300_799).optional().meta({ description: "Default: never" }),
  ...limitShape,
});

export const keySchema = z.object({
  name: keyNameSchema,
  scope: keyScopeSchema,
  created_at_unix: z.number(),
  expires_at_unix: z.number().optional(),
  expired: z.boolean(),
  /** since the daemon started */
  last_used_unix: z.number().optional(),
  ...limitShape,
});
export type KeyInfo = z.output<typeof keySchema>;

export const createdKeySchema = keySchema.extend({
  key: z.string().meta({ description: "The key itself; told only here" }),
});
export type CreatedKey = z.output<typeof createdKeySchema>;
