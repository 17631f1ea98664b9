/** Routes of keys. */
import { z } from "zod";
import { createdKeySchema, createKeySchema, keyNameSchema, keySchema } from "./keys.ts";
import { route } from "./route.ts";

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
    summary: "Make a key; its text is in this answer and nowhere else",
    status: 201,
    kind: "json",
    scope: "admin",
    input: createKeySchema,
    output: createdKeySchema,
  }),
  removeKey: route({
    method: "delete",
    path: "/v1/keys/{name}",
    summary: "Remove a key; what it has open is cut off",
    status: 204,
    kind: "json",
    scope: "admin",
    input: z.strictObject({ name: keyNameSchema }),
    output: z.undefined(),
  }),
} as const;
