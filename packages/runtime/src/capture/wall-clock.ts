/** The host's wall clock in nanoseconds since the epoch; steps of the clock are followed. */
export function wallClock(): bigint {
  return BigInt(Date.now()) * 1_000_000n;
}
