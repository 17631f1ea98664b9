/** What crosses the boundary between the daemon and the egress proxy. */

/** `none`: no network. `filtered`: only what a rule allows. `open`: every public address, unless a rule denies it. */
export type NetworkMode = "none" | "filtered" | "open";

/** `allow|deny [tcp|udp] DESTINATION[:PORTS]`; policy/rule.ts has the grammar. */
export type RuleText = string;

export type PolicyText = { readonly mode: NetworkMode; readonly rules: readonly RuleText[] };

/** A connection must be allowed by the policy itself and by each of its ceilings. */
export type MachinePolicy = PolicyText & { readonly ceilings: readonly PolicyText[] };

export type MachineSecret = {
  readonly name: string;
  /** what the guest sees in place of the value */
  readonly placeholder: string;
  readonly value: string;
  /** names for which the placeholder is replaced */
  readonly hosts: readonly string[];
  /** lower case */
  readonly header: string;
  /** such as "Bearer {}" */
  readonly format: string;
};

export type NetworkLimits = {
  /** bytes per second, for each direction */
  readonly bps?: number | undefined;
  /** bytes in all, both directions together */
  readonly bytes?: number | undefined;
  /** open connections at a time */
  readonly connections?: number | undefined;
};

/** Pids are reused; pid and start time (clock ticks since boot) together identify a process. */
export type ProcessId = { readonly pid: number; readonly startTime: number };

export type MachineNetwork = ProcessId & {
  readonly id: string;
  readonly policy: MachinePolicy;
  readonly secrets: readonly MachineSecret[];
  readonly limits: NetworkLimits;
  /** addresses at which the guest finds its resolver; default: 10.0.2.2 */
  readonly resolvers?: readonly string[] | undefined;
};

/** What is given replaces what the machine had. */
export type NetworkChange = {
  readonly policy?: MachinePolicy | undefined;
  readonly secrets?: readonly MachineSecret[] | undefined;
  readonly limits?: NetworkLimits | undefined;
};

export type Protocol = "tcp" | "udp";

/** A name is in its normal form (policy/host.ts), an address in canonical form. */
export type Destination = {
  readonly protocol: Protocol;
  readonly port: number;
  readonly name?: string | undefined;
  readonly address?: string | undefined;
};

export type Decision =
  | {
      readonly allowed: true;
      /** what the deciding rule matched; `default`: the mode allows it and no rule matched */
      readonly by: "name" | "address" | "any" | "default";
      readonly rule?: RuleText | undefined;
    }
  | {
      readonly allowed: false;
      /** a sentence without its full stop */
      readonly reason: string;
      readonly rule?: RuleText | undefined;
      /** the rule that would allow it */
      readonly suggestion: RuleText;
    };

export type LogEntry = {
  /** milliseconds since 1970 */
  readonly time: number;
  readonly event: "connected" | "closed" | "request" | "denied" | "failed" | "resolved";
  readonly protocol: Protocol | "dns";
  readonly name?: string | undefined;
  readonly address?: string | undefined;
  readonly port?: number | undefined;
  /** how the connection was understood */
  readonly via?: "tls" | "http" | "raw" | "intercepted" | "gateway" | undefined;
  readonly method?: string | undefined;
  readonly status?: number | undefined;
  readonly rule?: RuleText | undefined;
  readonly reason?: string | undefined;
  readonly suggestion?: RuleText | undefined;
  /** received by the guest */
  readonly bytesIn?: number | undefined;
  /** sent by the guest */
  readonly bytesOut?: number | undefined;
  readonly durationMs?: number | undefined;
  /** the TLS client offers an encrypted hello, so that `name` may be an outer name */
  readonly encryptedHello?: boolean | undefined;
  /** entries that were left out before this one, because there were too many */
  readonly suppressed?: number | undefined;
};

export type Counters = {
  /** received by the guest */
  readonly bytesIn: number;
  /** sent by the guest */
  readonly bytesOut: number;
  readonly connections: number;
  readonly openConnections: number;
  readonly denied: number;
  readonly failed: number;
  readonly queries: number;
};
