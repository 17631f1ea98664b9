/** The network of a sandbox: where it may connect to, and which secrets are filled in on the way. */
import { z } from "zod";
import { inSandbox, sandboxIdSchema, sandboxPath } from "./ids.ts";
import { noAnswer, queryFlag, route } from "./route.ts";

export const networkModeSchema = z.enum(["none", "filtered", "open"]).meta({
  description:
    "none: no connections; filtered: only what a rule allows; open: every public address, but none that is private, local or of the host",
});
export type NetworkMode = z.output<typeof networkModeSchema>;

export const maxRules = 10_000;
export const ruleTextSchema = z.string().min(1).max(512).meta({
  description: 'A rule such as "allow api.example.com:443" or "deny 10.0.0.0/8"; the first match decides',
});

export const secretNameSchema = z
  .string()
  .regex(/^[A-Z][A-Z0-9_]{0,63}$/, "must be 1 to 64 of A-Z, 0-9 and underscore, and start with a letter")
  .meta({ description: "Name of a secret" });

const rulesSchema = z.array(ruleTextSchema).max(maxRules);
const secretNamesSchema = z.array(secretNameSchema).max(64);

export const askedNetworkSchema = z.strictObject({
  /** default: the mode of the snapshot, then that of the settings */
  mode: networkModeSchema.optional(),
  /** before those of the snapshot and of the settings */
  rules: rulesSchema.default([]),
});
export type AskedNetwork = z.output<typeof askedNetworkSchema>;

/** Fields of every request that makes sandboxes. */
export const networkFields = {
  network: askedNetworkSchema.optional(),
  secrets: secretNamesSchema.optional().meta({
    description:
      "Names of secrets; the guest sees placeholders, and requests to the hosts of a secret get its value. Default: none; for a branch those of the source, of which it may be given fewer",
  }),
};

export const jailVariantSchema = z.enum(["root", "user", "none"]).meta({
  description: "root: own uid and namespaces; user: a user namespace; none: only a filter of system calls",
});

/** As a sandbox shows it. */
export const sandboxNetworkSchema = z.object({
  mode: networkModeSchema,
  /** how its machine is connected */
  device: z.enum(["tap", "slirp", "none"]),
  /** why it has less than asked for */
  note: z.string().optional(),
});

const shownRuleSchema = z.object({
  rule: z.string(),
  from: z.enum(["sandbox", "snapshot", "settings"]),
});

export const networkSchema = sandboxNetworkSchema.extend({
  /** in the order in which they are tried */
  rules: z.array(shownRuleSchema),
  /** a connection must be allowed by each of these too */
  ceilings: z.array(
    z.object({ from: z.literal("key"), mode: networkModeSchema, rules: z.array(z.string()) }),
  ),
  secrets: z.array(secretNameSchema),
  /** since its machine started or was adopted */
  counters: z.object({
    connections: z.number(),
    open_connections: z.number(),
    denied: z.number(),
    failed: z.number(),
    bytes_sent: z.number(),
    bytes_received: z.number(),
    queries: z.number(),
  }),
});
export type NetworkInfo = z.output<typeof networkSchema>;

export const networkLogEntrySchema = z.object({
  at_unix: z.number(),
  event: z.enum(["connected", "closed", "request", "denied", "failed", "resolved"]),
  protocol: z.enum(["tcp", "udp", "dns"]),
  name: z.string().optional(),
  address: z.string().optional(),
  port: z.number().optional(),
  /** how the connection was understood */
  via: z.enum(["tls", "http", "raw", "intercepted", "gateway"]).optional(),
  method: z.string().optional(),
  status: z.number().optional(),
  /** the rule that decided */
  rule: z.string().optional(),
  reason: z.string().optional(),
  /** a rule that would allow it */
  suggestion: z.string().optional(),
  bytes_sent: z.number().optional(),
  bytes_received: z.number().optional(),
  duration_ms: z.number().optional(),
  /** entries that were left out before this one, because there were too many */
  suppressed: z.number().optional(),
});
export type NetworkLogEntry = z.output<typeof networkLogEntrySchema>;

const secretSchema = z.object({
  name: secretNameSchema,
  hosts: z.array(z.string()),
  header: z.string(),
  format: z.string(),
  /** what guests see instead of the value */
  placeholder: z.string(),
  created_at_unix: z.number(),
  /** when its value, hosts, header or format were set last */
  updated_at_unix: z.number(),
});
export type SecretInfo = z.output<typeof secretSchema>;

const presetNameSchema = z
  .string()
  .regex(/^[a-z][a-z0-9-]{0,31}$/, "must be 1 to 32 of a-z, 0-9 and dash, and start with a letter")
  .meta({ description: "Name of a preset" });
const presetSchema = z.object({
  name: presetNameSchema,
  rules: z.array(z.string()),
  /** whether it is bundled, bundled and changed, or added */
  origin: z.enum(["bundled", "changed", "added"]),
});
export type PresetInfo = z.output<typeof presetSchema>;

export const networkRoutes = {
  getNetwork: route({
    method: "get",
    path: `${sandboxPath}/network`,
    summary: "Rules, secrets and counters of the network of a sandbox",
    status: 200,
    kind: "json",
    scope: "read",
    input: inSandbox,
    output: networkSchema,
  }),
  setNetwork: route({
    method: "post",
    path: `${sandboxPath}/network`,
    summary: "Change the network of a running sandbox; connections that are no longer allowed are closed",
    status: 200,
    kind: "json",
    scope: "run",
    input: z.strictObject({
      id: sandboxIdSchema,
      mode: networkModeSchema.optional(),
      /** put before the other rules of the sandbox, in this order */
      add: rulesSchema.default([]),
      /** as they are listed; unknown ones are refused */
      remove: rulesSchema.default([]),
      /** replaces the rules of the sandbox */
      rules: rulesSchema.optional(),
      /** replaces the secrets; they may be fewer than before, or more if the caller may use them */
      secrets: secretNamesSchema.optional(),
    }),
    output: networkSchema,
  }),
  networkLog: route({
    method: "get",
    path: `${sandboxPath}/network/log`,
    summary: "Connections and look-ups of a sandbox, allowed and denied",
    status: 200,
    kind: "events",
    scope: "run",
    endless: true,
    input: inSandbox.extend({
      follow: queryFlag.optional(),
      tail: z.coerce.number().int().min(1).max(1000).optional(),
    }),
    output: networkLogEntrySchema,
  }),
  listPresets: route({
    method: "get",
    path: "/v1/network/presets",
    summary: "List presets of rules",
    status: 200,
    kind: "json",
    scope: "read",
    input: z.strictObject({}),
    output: z.array(presetSchema),
  }),
  setPreset: route({
    method: "post",
    path: "/v1/network/presets",
    summary: "Add or change a preset",
    status: 200,
    kind: "json",
    scope: "admin",
    input: z.strictObject({ name: presetNameSchema, rules: rulesSchema.min(1) }),
    output: presetSchema,
  }),
  removePreset: route({
    method: "delete",
    path: "/v1/network/presets/{name}",
    summary: "Remove a preset; a bundled one becomes what it was",
    status: 204,
    kind: "json",
    scope: "admin",
    input: z.strictObject({ name: presetNameSchema }),
    output: noAnswer,
  }),
  listSecrets: route({
    method: "get",
    path: "/v1/secrets",
    summary: "List secrets, without their values",
    status: 200,
    kind: "json",
    scope: "run",
    input: z.strictObject({}),
    output: z.array(secretSchema),
  }),
  setSecret: route({
    method: "post",
    path: "/v1/secrets",
    summary: "Add or replace a secret; sandboxes that have it use the new value at once",
    status: 200,
    kind: "json",
    scope: "admin",
    input: z.strictObject({
      name: secretNameSchema,
      value: z.string().min(1).max(65_536),
      hosts: z.array(z.string().min(1).max(260)).min(1).max(64),
      header: z.string().min(1).max(128).optional(),
      format: z.string().min(1).max(256).optional(),
    }),
    output: secretSchema,
  }),
  removeSecret: route({
    method: "delete",
    path: "/v1/secrets/{name}",
    summary: "Remove a secret; sandboxes that have it lose it at once",
    status: 204,
    kind: "json",
    scope: "admin",
    input: z.strictObject({ name: secretNameSchema }),
    output: noAnswer,
  }),
} as const;
