/** Names of events; they are stable. Imports nothing. */

export const eventTypes = [
  "sandbox.created",
  "sandbox.paused",
  "sandbox.resumed",
  "sandbox.rewound",
  "sandbox.died",
  "sandbox.killed",
  "sandbox.expired",
  "network.denied",
  "port.opened",
  "port.closed",
  "snapshot.writing",
  "snapshot.ready",
  "snapshot.failed",
  "snapshot.compacted",
  "snapshot.removed",
  "daemon.stopping",
  "reset",
  "overflow",
  "revoked",
] as const;

/** Sent to every stream regardless of its filter, because they are about the stream itself. */
export const controlTypes: readonly string[] = ["reset", "overflow", "revoked"];

/** A type, or all of a kind: `sandbox.*`. */
export function isEventFilter(name: string): boolean {
  return (
    /^(sandbox|snapshot|network|port)\.\*$/.test(name) || (eventTypes as readonly string[]).includes(name)
  );
}

export function matchesType(type: string, filters: readonly string[]): boolean {
  return filters.some(
    (filter) => filter === type || (filter.endsWith(".*") && type.startsWith(filter.slice(0, -1))),
  );
}
