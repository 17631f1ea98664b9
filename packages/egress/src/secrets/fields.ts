/** The fields of a secret: their rules and defaults. Pure. */
import { z } from "zod";
import { formatSecretHost, parseSecretHost } from "./hosts.ts";

export const maxSecrets = 1000;
const maxHosts = 32;
const maxValueBytes = 65_536;

/** Stands in the guest for the value. It is worthless outside the proxy. */
export const placeholderPattern = /^forkd-secret-[0-9a-f]{32}$/;

/**
 * Headers that frame a message, route it or belong to one connection. A value in one of them could change
 * where a request ends or which host handles it.
 */
const refusedHeaders = new Set([
  "accept-encoding",
  "connection",
  "content-encoding",
  "content-length",
  "content-type",
  "date",
  "expect",
  "forwarded",
  "host",
  "http2-settings",
  "keep-alive",
  "origin",
  "proxy-authenticate",
  "proxy-authorization",
  "proxy-connection",
  "range",
  "referer",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "via",
]);

export const secretNameSchema = z
  .string()
  .regex(/^[A-Z][A-Z0-9_]{0,63}$/, "must be 1 to 64 of A-Z, 0-9 and _, and start with a letter");

/** ASCII only: servers disagree about other characters in headers. */
const valueSchema = z
  .string()
  .min(1, "must not be empty")
  .max(maxValueBytes, `must have at most ${maxValueBytes} bytes`)
  .regex(/^[\x20-\x7e]*$/, "must be printable ASCII without control characters or line breaks")
  .refine((value) => value.trim() === value, "must not start or end with a space")
  .refine((value) => !/forkd-secret-/.test(value), "must not contain a placeholder");

const hostSchema = z.string().transform((text, context) => {
  const host = parseSecretHost(text);
  if (typeof host !== "string") return formatSecretHost(host);
  context.addIssue({ code: "custom", message: `"${text.slice(0, 100)}" ${host}` });
  return z.NEVER;
});

export const hostsSchema = z
  .array(hostSchema)
  .min(1, "must have at least one host")
  .max(maxHosts, `must have at most ${maxHosts} hosts`)
  .transform((hosts) => [...new Set(hosts)]);

export const headerSchema = z
  .string()
  .regex(/^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}$/, "must be the name of a header")
  .refine((header) => !refusedHeaders.has(header.toLowerCase()), "is a header that cannot hold a secret");

export const formatSchema = z
  .string()
  .max(256)
  .regex(/^[\x20-\x7e]*$/, "must be printable ASCII")
  .refine((format) => format.split("{}").length === 2, 'must contain "{}" exactly once');

export const newSecretSchema = z
  .strictObject({
    name: secretNameSchema,
    value: valueSchema,
    hosts: hostsSchema,
    header: headerSchema.default("Authorization"),
    format: formatSchema.optional(),
  })
  .transform(({ format, ...secret }) => ({
    ...secret,
    format: format ?? (secret.header.toLowerCase() === "authorization" ? "Bearer {}" : "{}"),
  }));

/** What the caller of set() gives. */
export type NewSecret = z.input<typeof newSecretSchema>;

/** At most three findings of zod, as one text. They name fields and rules, never a value. */
export function issuesText(error: z.ZodError): string {
  return error.issues
    .slice(0, 3)
    .map(({ path, message }) => (path.length === 0 ? message : `${path.map(String).join(".")}: ${message}`))
    .join("; ");
}
