/** Milliseconds with at most three decimals: a caller has no use for more. */
export function roundMs(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}
