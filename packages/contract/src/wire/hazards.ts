/** Ids of the hazards of a fork; they are stable. Imports nothing. */

export const hazardIds = [
  "entropy",
  "prng",
  "identity",
  "clock",
  "network",
  "connections",
  "secrets",
  "disk",
  "pids",
  "compatibility",
  "restart",
  "instant",
] as const;
export type HazardId = (typeof hazardIds)[number];
