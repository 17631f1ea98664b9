/** What can be around a VMM, and what is on this host. */

export type JailVariant = "root" | "user" | "none";
export type UidRange = { readonly first: number; readonly count: number };
export type JailOptions = {
  /** auto: the strongest variant that works here; require: fail without one; off: variant none */
  readonly mode: "auto" | "require" | "off";
  readonly uids: UidRange;
};

/** How a machine is connected to a network. */
export type NetworkDevice = "tap" | "slirp" | "none";

/** What the host allows. `missing` says in words what is weaker than it could be. */
export type JailFacts = {
  readonly variant: JailVariant;
  /** of new machines */
  readonly netdev: NetworkDevice;
  readonly missing: readonly string[];
};
