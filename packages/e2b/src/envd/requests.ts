/** Messages that clients send to the agent. */
import { z } from "zod";
import { bytesSchema, uint32Schema } from "../connect/messages.ts";

const noNul = (text: string) => !text.includes("\0");
const text = z.string().refine(noNul, "must not contain NUL");

const selectorSchema = z.object({ pid: uint32Schema.optional(), tag: z.string().optional() });
export type ProcessSelector = z.output<typeof selectorSchema>;

const side = z.union([uint32Schema]).pipe(z.int().min(1).max(65_535));
const ptySchema = z.object({ size: z.object({ cols: side, rows: side }).optional() });

const environmentName = z
  .string()
  .min(1)
  .refine((name) => !name.includes("=") && noNul(name), 'must not contain "=" or NUL');

export const startSchema = z.object({
  process: z.object({
    cmd: text.min(1, "must name a program"),
    args: z.array(text).max(4095).default([]),
    envs: z.record(environmentName, text).default({}),
    cwd: text.optional(),
  }),
  pty: ptySchema.optional(),
  tag: z.string().optional(),
  /** absent: open, as for clients that do not know the field */
  stdin: z.boolean().default(true),
});
export type StartRequest = z.output<typeof startSchema>;

export const selectedSchema = z.object({ process: selectorSchema });

export const inputSchema = selectedSchema.extend({
  input: z.object({ stdin: bytesSchema.optional(), pty: bytesSchema.optional() }).default({}),
});

export const signalSchema = selectedSchema.extend({
  signal: z.union([
    z.enum(["SIGNAL_SIGTERM", "SIGNAL_SIGKILL"]),
    z.literal(15).transform(() => "SIGNAL_SIGTERM" as const),
    z.literal(9).transform(() => "SIGNAL_SIGKILL" as const),
  ]),
});

export const updateSchema = selectedSchema.extend({ pty: ptySchema.optional() });

export const emptySchema = z.object({});
export const pathSchema = z.object({ path: z.string().default("") });
export const listSchema = pathSchema.extend({ depth: uint32Schema.default(1) });
export const moveSchema = z.object({ source: z.string(), destination: z.string() });
export const watchSchema = pathSchema.extend({
  recursive: z.boolean().default(false),
  includeEntry: z.boolean().default(false),
  allowNetworkMounts: z.boolean().default(false),
});
export const watcherSchema = z.object({ watcherId: z.string() });
