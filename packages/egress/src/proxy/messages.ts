/** The messages between the daemon and the proxy process: JSON over Node's IPC channel, checked by both sides. */
import { errorBodySchema } from "@forkd/contract";
import { z } from "zod";

const text = z.string().max(4096);
const ruleText = z.string().max(512);
const count = z.number().nonnegative();
const maxRules = 20_000;

const policyText = z.object({
  mode: z.enum(["none", "filtered", "open"]),
  rules: z.array(ruleText).max(maxRules),
});

const policy = policyText.extend({ ceilings: z.array(policyText).max(16) });

const secret = z.object({
  name: text,
  placeholder: text,
  value: z.string().max(65_536),
  hosts: z.array(text).max(256),
  header: text,
  format: text,
});

const limits = z.object({
  bps: z.number().positive().optional(),
  bytes: z.number().positive().optional(),
  connections: z.number().int().positive().optional(),
});

const secrets = z.array(secret).max(256);

const machine = z.object({
  id: z.string().min(1).max(256),
  pid: z.number().int().positive(),
  startTime: z.number().nonnegative(),
  policy,
  secrets,
  limits,
  resolvers: z.array(text).max(4).optional(),
});

const configuration = z.object({
  /** path of forkd-gate */
  gate: text,
  /** where synthetic addresses are kept */
  namesFile: text.optional(),
  /** `IP:PORT` of a DNS server to use instead of the host's */
  resolver: text.optional(),
  upstreamProxies: z
    .object({ http: text.optional(), https: text.optional(), none: z.string().max(65_536).optional() })
    .optional(),
  /** without it no TLS is opened, and secrets have no effect */
  interception: z.object({ caDirectory: text, extraRoots: text.optional() }).optional(),
  maxConnections: z.number().int().positive().optional(),
  idleMs: z.number().positive().optional(),
  listenPort: z.number().int().positive().optional(),
});

export type ProxyConfiguration = z.infer<typeof configuration>;

const seq = z.number().int().nonnegative();
const id = z.string();

export const toProxySchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("configure"), configuration }),
  z.object({ type: z.literal("add"), seq, machine, used: z.object({ bytesIn: count, bytesOut: count }) }),
  z.object({
    type: z.literal("update"),
    seq,
    id,
    change: z.object({ policy: policy.optional(), secrets: secrets.optional(), limits: limits.optional() }),
  }),
  z.object({ type: z.literal("remove"), id }),
  z.object({ type: z.literal("counters"), seq, id }),
  z.object({ type: z.literal("log"), seq, id }),
  /** whether every entry is sent, or only denials */
  z.object({ type: z.literal("follow"), all: z.boolean() }),
]);

export type ToProxy = z.infer<typeof toProxySchema>;

const counters = z.object({
  bytesIn: count,
  bytesOut: count,
  connections: count,
  openConnections: count,
  denied: count,
  failed: count,
  queries: count,
});

const entry = z.object({
  time: z.number(),
  event: z.enum(["connected", "closed", "request", "denied", "failed", "resolved"]),
  protocol: z.enum(["tcp", "udp", "dns"]),
  name: text.optional(),
  address: text.optional(),
  port: z.number().optional(),
  via: z.enum(["tls", "http", "raw", "intercepted", "gateway"]).optional(),
  method: text.optional(),
  status: z.number().optional(),
  rule: text.optional(),
  reason: text.optional(),
  suggestion: text.optional(),
  bytesIn: count.optional(),
  bytesOut: count.optional(),
  durationMs: count.optional(),
  encryptedHello: z.boolean().optional(),
  suppressed: count.optional(),
});

export const fromProxySchema = z.discriminatedUnion("type", [
  z.object({ type: z.literal("ready") }),
  z.object({
    type: z.literal("done"),
    seq,
    counters: counters.optional(),
    entries: z.array(entry).max(1000).optional(),
  }),
  z.object({ type: z.literal("failed"), seq, error: errorBodySchema }),
  z.object({ type: z.literal("entries"), entries: z.array(z.object({ id, entry })).max(10_000) }),
  z.object({ type: z.literal("counted"), machines: z.array(z.object({ id, counters })) }),
]);

export type FromProxy = z.infer<typeof fromProxySchema>;
