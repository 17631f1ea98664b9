/** Files in a sandbox. */
import { z } from "zod";

export const guestPathSchema = z
  .string()
  .min(1)
  .max(4096)
  .regex(/^\//, "must be an absolute path in the guest")
  .refine((path) => !path.includes("\0"), "must not contain NUL");
const user = z.string().max(128).optional();
/** octal text such as "0644" */
export const modeSchema = z.string().regex(/^[0-7]{3,5}$/, 'must be octal, such as "0644"');
const flag = z
  .union([
    z.boolean(),
    z.enum(["true", "false", "1", "0"]).transform((text) => text === "true" || text === "1"),
  ])
  .default(false);

export const fileEntrySchema = z.object({
  name: z.string(),
  path: z.string(),
  type: z.enum(["file", "directory", "symlink", "fifo", "socket", "block", "char"]),
  size: z.number(),
  /** octal text */
  mode: z.string(),
  mtime_unix: z.number(),
  uid: z.number(),
  gid: z.number(),
  target: z.string().optional(),
});
export type FileEntry = z.output<typeof fileEntrySchema>;

export const pathQuerySchema = z.strictObject({ path: guestPathSchema, user });
export const readQuerySchema = pathQuerySchema.extend({
  offset: z.coerce.number().int().min(0).default(0),
  /** 0 = to the end */
  limit: z.coerce.number().int().min(0).default(0),
});
export const writeQuerySchema = pathQuerySchema.extend({
  mode: modeSchema.optional(),
  append: flag,
  exclusive: flag,
});
export const mkdirSchema = pathQuerySchema.extend({
  mode: modeSchema.optional(),
  parents: z.boolean().default(true),
});
export const moveSchema = z.strictObject({ from: guestPathSchema, to: guestPathSchema, user });
export const removeSchema = pathQuerySchema.extend({ recursive: z.boolean().default(false) });
export const chmodSchema = pathQuerySchema.extend({
  mode: modeSchema,
  recursive: z.boolean().default(false),
});
export const statQuerySchema = pathQuerySchema.extend({ follow: flag });
