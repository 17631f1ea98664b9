/** Keys: who may call the daemon over TCP, and what for. */
import { z } from "zod";
import { tagSchema } from "./ids.ts";
import { networkModeSchema, ruleTextSchema, secretNameSchema } from "./network.ts";
import { noAnswer, route } from "./route.ts";
import { scopes } from "./wire/names.ts";

export const keyScopeSchema = z.enum(scopes).meta({
  description: "read: lists and facts; run: also sandboxes and their content; admin: everything",
});

export const keyNameSchema = tagSchema.meta({
  description: "Name of a key; sandboxes that it makes have it as their owner",
});

const limit = (max: number, description: string) => z.int().min(1).max(max).meta({ description });
const limitShape = {
  max_sandboxes: limit(100_000, "Sandboxes that all callers of this name may have at a time").optional(),
  max_memory_mib: limit(1 << 30, "Guest memory that all their sandboxes may have together").optional(),
  network: z
    .strictObject({
      mode: networkModeSchema.default("filtered"),
      rules: z.array(ruleTextSchema).max(1000).default([]),
    })
    .optional()
    .meta({
      description: "Sandboxes that it makes connect only where this allows it, whatever they ask for",
    }),
  secrets: z
    .array(secretNameSchema)
    .max(256)
    .optional()
    .meta({ description: "Secrets that its sandboxes may have; default: all" }),
};

const createKeySchema = z.strictObject({
  name: keyNameSchema,
  scope: keyScopeSchema.default("run"),
  expires_at_unix: z.int().min(1).max(253_402_300_799).optional().meta({ description: "Default: never" }),
  ...limitShape,
});

const keySchema = z.object({
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

const createdKeySchema = keySchema.extend({
  key: z.string().meta({ description: "The key itself; only in this answer" }),
});
export type CreatedKey = z.output<typeof createdKeySchema>;

export const keyRoutes = {
  listKeys: route({
    method: "get",
    path: "/v1/keys",
    summary: "List keys, without their text",
    status: 200,
    kind: "json",
    scope: "admin",
    input: z.strictObject({}),
    output: z.array(keySchema),
  }),
  createKey: route({
    method: "post",
    path: "/v1/keys",
    summary: "Make a key; only this answer holds its text",
    status: 201,
    kind: "json",
    scope: "admin",
    input: createKeySchema,
    output: createdKeySchema,
  }),
  removeKey: route({
    method: "delete",
    path: "/v1/keys/{name}",
    summary: "Remove a key; its open requests are ended",
    status: 204,
    kind: "json",
    scope: "admin",
    input: z.strictObject({ name: keyNameSchema }),
    output: noAnswer,
  }),
} as const;
