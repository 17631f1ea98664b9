/** Settings of jail and network; a part of the table in config.ts. */
import { networkModeSchema, ruleTextSchema } from "@forkd/contract";
import { z } from "zod";
import { count, runtimeSetting as setting } from "./setting.ts";

/** Rules, separated by semicolons because a rule may contain commas. */
const rules = z
  .union([z.string().transform((text) => text.split(";").map((rule) => rule.trim())), z.array(z.string())])
  .transform((entries) => entries.filter((entry) => entry !== ""))
  .pipe(z.array(ruleTextSchema).max(10_000));

const uidRange = z
  .string()
  .regex(/^[1-9]\d{2,9}-[1-9]\d{2,9}$/, 'must be two uids such as "1900000000-1904194303"')
  .refine(
    (text) => {
      const [first = 0, last = 0] = text.split("-").map(Number);
      return last >= first && last < 0xffff_fffe;
    },
    { error: "must be a range, the smaller uid first" },
  );

export const isolationSettings = {
  jail: setting({
    schema: z.enum(["auto", "require", "off"]),
    default: "auto",
    meaning:
      "Whether VMMs run in a jail: auto uses the strongest that the host allows, require refuses to start without one, off uses none.",
    flag: { value: "how", help: "Jail VMMs: auto, require or off" },
    becomes: (mode) => ({ jail: { mode } }),
  }),
  jail_uids: setting({
    schema: uidRange,
    // Above the ranges of users, of containers and of systemd, and as many as there are process ids.
    default: "1900000000-1904194303",
    allowed: "FIRST-LAST",
    meaning:
      "Range of user ids for VMMs if the daemon runs as root; each machine has its own. Nothing else may use them.",
    becomes: (text) => {
      const [first = 0, last = 0] = text.split("-").map(Number);
      return { jail: { uids: { first, count: last - first + 1 } } };
    },
  }),
  network: setting({
    schema: networkModeSchema,
    default: "filtered",
    meaning:
      "Network of sandboxes that are forked without one: none, filtered (only what a rule allows) or open (every public address).",
    flag: { value: "mode", help: "Give sandboxes a network: none, filtered or open" },
    becomes: (mode) => ({ network: { mode } }),
  }),
  network_rules: setting({
    schema: rules,
    default: [],
    allowed: "rules, separated by semicolons",
    meaning: "Rules for all sandboxes, tried after those of sandbox and snapshot.",
    becomes: (rules) => ({ network: { rules } }),
  }),
  network_deny: setting({
    schema: rules.refine((given) => given.every((rule) => /^deny\s/.test(rule)), {
      error: 'must be rules that begin with "deny"',
    }),
    default: [],
    allowed: 'rules that begin with "deny", separated by semicolons',
    meaning: "Rules that no sandbox can override.",
    becomes: (deny) => ({ network: { deny } }),
  }),
  network_resolver: setting({
    schema: z.string().regex(/^(system|(\d{1,3}\.){3}\d{1,3}(:\d{1,5})?|\[[0-9a-fA-F:]+\](:\d{1,5})?)$/, {
      error: 'must be "system", or an address such as "192.0.2.1:53"',
    }),
    default: "system",
    allowed: '"system" or ADDRESS[:PORT]',
    meaning: "DNS server that resolves the names to which sandboxes connect; system uses that of the host.",
    becomes: (resolver): { networkResolver: string | undefined } => ({
      networkResolver: resolver === "system" ? undefined : resolver,
    }),
  }),
  network_proxy: setting({
    schema: z.union([z.enum(["auto", "off"]), z.url({ protocol: /^http$/ })], {
      error: 'must be "auto", "off" or a URL such as "http://proxy.example:3128"',
    }),
    default: "auto",
    allowed: '"auto", "off" or an http URL',
    meaning:
      "HTTP proxy through which sandboxes reach the outside; auto uses that of the daemon's environment (https_proxy, no_proxy).",
    becomes: (networkProxy) => ({ networkProxy }),
  }),
  network_max_connections: setting({
    schema: count(1, 1_000_000),
    default: 16_384,
    meaning: "Maximum number of open network connections of all sandboxes together.",
    becomes: (networkMaxConnections) => ({ networkMaxConnections }),
  }),
};
