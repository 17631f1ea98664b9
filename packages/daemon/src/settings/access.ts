/** Settings of who may call, how, and what is written down about it. */
import { resolve } from "node:path";
import { z } from "zod";
import { parseHost } from "../access/browser-guard.ts";

const path = z
  .string()
  .min(1)
  .transform((value) => resolve(value));
const flag = z.union(
  [z.boolean(), z.enum(["true", "false", "1", "0"]).transform((text) => /^(true|1)$/.test(text))],
  {
    error: "must be true or false",
  },
);
const count = (min: number, max: number) => z.coerce.number().int().min(min).max(max);
const hosts = z
  .union([z.string().transform((text) => text.split(",").map((entry) => entry.trim())), z.array(z.string())])
  .transform((entries) => entries.filter((entry) => entry !== ""))
  .refine((entries) => entries.every((entry) => parseHost(entry.replace(/^\*\./, "")) !== undefined), {
    error: 'must be a comma-separated list of "name", "name:port" or "*.suffix"',
  });

export const accessSettings = {
  /** "off": TCP asks for no token; only on a loopback address */
  auth: z.enum(["token", "off"]),
  /** file with the token; default: token in the data directory, made at the first start */
  token_file: path.optional(),
  /** names by which the daemon may be called on TCP, and sites whose pages may call it */
  allowed_hosts: hosts,
  /** PEM files; both or neither */
  tls_cert: path.optional(),
  tls_key: path.optional(),
  /** listen on an address that others can reach without TLS */
  allow_plain_http: flag,
  /** connections on TCP at the same time */
  max_connections: count(1, 1_000_000),
  /** of them from one address that is not this machine's; 0 = as many as there may be in all */
  max_connections_per_address: count(0, 1_000_000),
  /** requests of one principal over TCP in the long run; 0 = no limit */
  rate_limit_per_second: count(0, 1_000_000),
  /** and at once */
  rate_limit_burst: count(1, 1_000_000),
  /** file, or "off"; default: audit.jsonl in the data directory */
  audit_log: z.union([z.literal("off"), path]).optional(),
  /** also requests that only look */
  audit_reads: flag,
  /** commands and code in full, not only their digests */
  audit_commands: flag,
};

export const accessDefaults = {
  auth: "token" as const,
  allowed_hosts: [] as string[],
  allow_plain_http: false,
  max_connections: 4096,
  max_connections_per_address: 512,
  rate_limit_per_second: 1000,
  rate_limit_burst: 2000,
  audit_reads: true,
  audit_commands: false,
};
