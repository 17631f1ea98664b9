/**
 * All settings, one entry each. A setting of the daemon is added here, one of the runtime in the table of
 * @forkd/runtime; everything else (schema, default, variable, flag, documentation) follows from the entry.
 */
import { join } from "node:path";
import { count, path, runtimeSettings, setting, type SettingTable } from "@forkd/runtime";
import { z } from "zod";
import { aliasOf } from "@forkd/e2b";
import { parseHost } from "../access/browser-guard.ts";
import { parsePortsDomain } from "../access/port-name.ts";
import { listenPattern } from "./exposure.ts";

const truth = z
  .union([z.boolean(), z.enum(["true", "false", "1", "0"]).transform((text) => /^(true|1)$/.test(text))], {
    error: "must be true or false",
  })
  .meta({ description: "true or false" });

const hosts = z
  .union([z.string().transform((text) => text.split(",").map((entry) => entry.trim())), z.array(z.string())])
  .transform((entries) => entries.filter((entry) => entry !== ""))
  .refine((entries) => entries.every((entry) => parseHost(entry.replace(/^\*\./, "")) !== undefined), {
    error: 'must be a comma-separated list of "name", "name:port" or "*.suffix"',
  });

const domains = z
  .union([z.string().transform((text) => text.split(",").map((entry) => entry.trim())), z.array(z.string())])
  .transform((entries) => entries.filter((entry) => entry !== ""))
  .refine((entries) => entries.every((entry) => parsePortsDomain(entry) !== undefined), {
    error: 'must be a comma-separated list of "name", "name:port" or "https://name"',
  });

const templates = z
  .union([z.string().transform((text) => text.split(",").map((entry) => entry.trim())), z.array(z.string())])
  .transform((entries) => entries.filter((entry) => entry !== ""))
  .refine((entries) => entries.every((entry) => aliasOf(entry) !== undefined), {
    error: 'must be a comma-separated list of "name=tag"',
  });

const addressSettings = {
  socket: setting({
    schema: path,
    follows: ({ runtime_dir }) => join(String(runtime_dir), "forkd.sock"),
    usually: "forkd.sock in runtime_dir",
    meaning: "Unix socket of the daemon.",
    flag: { value: "path", help: "Listen on this unix socket (default: in the runtime dir)" },
  }),
  listen: setting({
    schema: z
      .string()
      .regex(listenPattern, 'must be "off", or an IP address and a port such as "127.0.0.1:8889"'),
    default: "127.0.0.1:8889",
    allowed: '"off" or IP:PORT',
    meaning: "Address and port for HTTP over TCP.",
    flag: { value: "host:port", help: "Listen on this address for HTTP, or off" },
  }),
};

const logSettings = {
  log_level: setting({
    schema: z.enum(["debug", "info", "warn", "error", "silent"]),
    default: "info",
    meaning: "Lowest level of the records in the log.",
    flag: { value: "level", help: "Log at debug, info, warn, error or silent" },
  }),
  log_file: setting({
    schema: z.union([z.literal("stderr"), path]),
    default: "stderr",
    allowed: '"stderr" or a path',
    meaning: "File for the log; `forkd up` uses daemon.log in the data directory by default.",
    flag: { value: "path", help: "Log to this file (default: stderr)" },
    reload: "reopen",
  }),
  log_max_mib: setting({
    schema: count(0, 1 << 20),
    default: 64,
    unit: "MiB",
    meaning: "Size at which the daemon rotates the log file; 0 for never.",
  }),
  log_keep: setting({
    schema: count(0, 100),
    default: 4,
    meaning: "Number of rotated log files to keep.",
  }),
};

const processSettings = {
  nice: setting({
    schema: count(-20, 19),
    default: -5,
    meaning:
      "Scheduling priority of the daemon, but not of the machines; values below 0 put it before them, if the system allows that.",
  }),
  drain_secs: setting({
    schema: count(0, 3600),
    default: 5,
    unit: "seconds",
    meaning: "Maximum time for open requests to finish when the daemon stops.",
  }),
};

const accessSettings = {
  auth: setting({
    schema: z.enum(["token", "off"]),
    default: "token",
    meaning: "Whether requests over TCP need a token; off is allowed only on a loopback address.",
    flag: { value: "how", help: "Require a token, or off (only on a loopback address)" },
  }),
  token_file: setting({
    schema: path.optional(),
    usually: "token in data_dir",
    meaning: "File with the token; the daemon creates only the default file.",
    flag: { value: "path", help: "Read the token from here (default: in the data directory)" },
    reload: "reread",
  }),
  allowed_hosts: setting({
    schema: hosts,
    default: [],
    allowed: "names, comma-separated",
    meaning: "Host names under which clients and web pages may call the daemon: name, name:port or *.suffix.",
    flag: { value: "names", help: "Accept these host names, separated by commas" },
  }),
  ports_domain: setting({
    schema: domains,
    default: ["localhost"],
    allowed: "names, comma-separated",
    meaning:
      "Domains of the host names of ports: PORT-SANDBOX.DOMAIN leads to a port of a sandbox. The first one is in the addresses that the daemon shows, with the scheme and port of the entry if it has them.",
    flag: { value: "names", help: "Serve ports of sandboxes below these domains" },
  }),
  e2b_templates: setting({
    schema: templates,
    default: [],
    allowed: "NAME=TAG, comma-separated",
    meaning:
      "Names of templates for clients of E2B, and the snapshots that they stand for. Without an entry, base is the snapshot base, and code-interpreter-v1 the snapshot code-interpreter.",
  }),
  tls_cert: setting({
    schema: path.optional(),
    meaning: "Certificate for HTTPS (PEM), together with tls_key.",
    flag: { value: "path", help: "Use the certificate in this PEM file for HTTPS" },
    reload: "watch",
  }),
  tls_key: setting({
    schema: path.optional(),
    meaning: "Private key of the certificate (PEM), together with tls_cert.",
    flag: { value: "path", help: "Use the private key in this PEM file" },
    reload: "watch",
  }),
  allow_plain_http: setting({
    schema: truth,
    default: false,
    meaning: "Whether the daemon may listen without TLS on an address that other machines can reach.",
    flag: { help: "Listen without TLS where other machines can connect" },
  }),
  max_connections: setting({
    schema: count(1, 1_000_000),
    default: 4096,
    meaning: "Maximum number of open TCP connections.",
  }),
  max_connections_per_address: setting({
    schema: count(0, 1_000_000),
    default: 512,
    meaning:
      "Maximum number of open TCP connections from one remote address (IPv6: one /64); 0 for no limit, such as behind a proxy on another machine.",
  }),
  rate_limit_per_second: setting({
    schema: count(0, 1_000_000),
    default: 1000,
    meaning: "Maximum sustained rate of one caller over TCP, in requests per second; 0 for no limit.",
  }),
  rate_limit_burst: setting({
    schema: count(1, 1_000_000),
    default: 2000,
    meaning: "Maximum number of requests of one caller over TCP at once.",
  }),
  audit_log: setting({
    schema: z.union([z.literal("off"), path]).optional(),
    usually: "audit.jsonl in data_dir",
    allowed: '"off" or a path',
    meaning: "File for the audit log.",
    flag: { value: "path", help: "Write the audit log here, or off (default: in the data dir)" },
    reload: "reopen",
  }),
  audit_reads: setting({
    schema: truth,
    default: true,
    meaning: "Whether the audit log includes requests that only read.",
  }),
  audit_commands: setting({
    schema: truth,
    default: false,
    meaning: "Whether the audit log includes commands and code in full, not only their digests.",
  }),
};

const { data_dir, runtime_dir, ...otherRuntimeSettings } = runtimeSettings;

/** In the order in which listings, the help of `forkd serve` and the documentation show them. */
export const settingTable = {
  data_dir,
  runtime_dir,
  ...addressSettings,
  ...otherRuntimeSettings,
  ...logSettings,
  ...processSettings,
  ...accessSettings,
};

export type Table = typeof settingTable;
export type SettingName = keyof Table;
type Shape = { readonly [Name in SettingName]: Table[Name]["schema"] };
export type Settings = Readonly<z.output<z.ZodObject<Shape>>>;

// Cast: Object.keys() has the type string[], although the table has no other keys.
export const settingNames = Object.keys(settingTable) as SettingName[];

export function schemaOf(table: Table): z.ZodObject<Shape, z.core.$strict> {
  const shape = Object.fromEntries(Object.entries(table).map(([name, { schema }]) => [name, schema]));
  // Cast: Object.fromEntries() forgets which schema has which name.
  return z.strictObject(shape as Shape);
}

/** The environment variable of a setting. */
export function variableOf(name: string): string {
  return `FORKD_${name.toUpperCase()}`;
}

type SettingFlag = {
  readonly name: string;
  /** as commander takes it: "--pool-size <count>" */
  readonly option: string;
  readonly help: string;
};

/** The settings that have their own flag of `forkd serve`. */
export function flagsOf(table: SettingTable = settingTable): SettingFlag[] {
  return Object.entries(table).flatMap(([name, { flag }]) => {
    if (flag === undefined) return [];
    const option = `--${name.replaceAll("_", "-")}`;
    return [{ name, option: flag.value ? `${option} <${flag.value}>` : option, help: flag.help }];
  });
}

/** For the log. */
export function withoutSecrets(
  values: Settings,
  table: SettingTable = settingTable,
): Record<string, unknown> {
  const shown = Object.entries(values).map(([name, value]) => [
    name,
    table[name]?.secret ? "[hidden]" : value,
  ]);
  return Object.fromEntries(shown) as Record<string, unknown>;
}
