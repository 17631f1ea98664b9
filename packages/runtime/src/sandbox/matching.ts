/** Sandboxes that a filter names. */
import type { ParsedOf, SandboxInfo } from "@forkd/contract";
import { hasLabels } from "../observe/label-filter.ts";
import type { Registry } from "./registry.ts";

export type SandboxFilter = Omit<ParsedOf<"listSandboxes">, "limit" | "cursor">;

/** Those that match, the oldest first. */
export function matchingSandboxes(registry: Registry, filter: SandboxFilter): SandboxInfo[] {
  return registry
    .all()
    .map((sandbox) => sandbox.info())
    .filter(
      (info) =>
        (filter.tag === undefined || info.snapshot_tag === filter.tag) &&
        (filter.state === undefined || info.state === filter.state) &&
        (filter.workspace === undefined || info.workspace === filter.workspace) &&
        (filter.owner === undefined || info.owner === filter.owner) &&
        (filter.label === undefined || hasLabels(info.labels, filter.label)),
    )
    .sort(byAge);
}

/** What neither the clock nor anything that happens later can reorder. */
export function byAge(
  a: { created_at_unix: number; id: string },
  b: { created_at_unix: number; id: string },
): number {
  return a.created_at_unix - b.created_at_unix || (a.id < b.id ? -1 : 1);
}
