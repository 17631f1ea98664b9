export type {
  Counters,
  LogEntry,
  MachineNetwork,
  MachinePolicy,
  MachineSecret,
  NetworkLimits,
  NetworkMode,
  PolicyText,
} from "./types.ts";
export { Policy } from "./policy/policy.ts";
export { builtInPresets, expandPresets, parseRules, type Presets } from "./policy/presets.ts";
export { SecretStore, type SecretInfo } from "./secrets/store.ts";
export { buildBundle, guestTrustVariables } from "./tls/bundle.ts";
export { InstallationCa } from "./tls/ca.ts";
export { EgressProxy, type EgressProxyOptions } from "./client/egress-proxy.ts";
export { Gate } from "./gate/gate.ts";
