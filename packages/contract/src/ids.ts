/** The grammar of names. One rule each, used everywhere. */
import { z } from "zod";
import { contextNamePattern, sandboxIdPattern, tagPattern } from "./wire/names.ts";

const tagRule =
  "must be 1 to 64 of letters, digits, dot, underscore and dash, and start with a letter or a digit";
export const tagSchema = z.string().regex(tagPattern, tagRule).meta({ description: "Snapshot tag" });

export const sandboxIdSchema = z
  .string()
  .regex(sandboxIdPattern, 'must look like "sb-" and 24 hexadecimal digits')
  .meta({ description: "Sandbox id" });

/** Input and path of every route about one sandbox. */
export const inSandbox = z.strictObject({ id: sandboxIdSchema });
export const sandboxPath = "/v1/sandboxes/{id}";

export const execIdSchema = z.coerce
  .number()
  .int()
  .min(1)
  .max(0x7fffffff)
  .meta({ description: "Command id" });

export const contextNameSchema = z
  .string()
  .regex(contextNamePattern, tagRule)
  .meta({ description: "Name of an eval context" });

export const envSchema = z
  .record(
    z
      .string()
      .regex(
        /^[A-Za-z_][A-Za-z0-9_]{0,127}$/,
        "use letters, digits and underscores, and do not begin with a digit",
      ),
    z
      .string()
      .max(65536)
      .refine((value) => !value.includes("\0"), "must not contain NUL"),
  )
  .refine(
    (env) =>
      Object.entries(env).reduce((sum, [name, value]) => sum + name.length + value.length, 0) <= 32_768,
    "must not be longer than 32 KiB in all",
  )
  .meta({ description: "Environment variables" });

const labelRule =
  "use 1 to 63 letters, digits, dots, underscores, slashes and dashes, and begin with a letter or a digit";
export const labelsSchema = z
  .record(z.string().regex(/^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$/, labelRule), z.string().max(256))
  .refine((labels) => Object.keys(labels).length <= 32, "must have at most 32 entries");

export const languageSchema = z.enum(["python", "node"]);
export type Language = z.output<typeof languageSchema>;

export const evalIdSchema = z
  .string()
  .regex(/^(python|node)-[1-9][0-9]{0,9}$/, 'must look like "python-12"')
  .meta({ description: "Eval id" });
