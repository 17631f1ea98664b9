/** Draws the lineage of snapshots and sandboxes as an indented text. Pure. */
import type { Tree } from "@forkd/contract";

export function drawLineage({ snapshots, sandboxes }: Tree): string {
  const tags = new Set(snapshots.map(({ tag }) => tag));
  const drawn = new Set<string>();
  const lines: string[] = [];
  const draw = (tag: string, depth: number): void => {
    const snapshot = snapshots.find((each) => each.tag === tag);
    if (snapshot === undefined || drawn.has(tag)) return;
    drawn.add(tag);
    const notes = [
      ...(snapshot.status === "ready" ? [] : [snapshot.status]),
      ...(snapshot.branched_from === undefined ? [] : [`branch of ${snapshot.branched_from}`]),
    ];
    lines.push(`${indent(depth)}snapshot ${tag}${notes.length > 0 ? ` (${notes.join(", ")})` : ""}`);
    for (const { id, state, snapshot_tag, workspace } of sandboxes)
      if (snapshot_tag === tag)
        lines.push(`${indent(depth + 1)}sandbox ${id} (${[state, workspace].filter(Boolean).join(", ")})`);
    for (const child of snapshots) if (child.parent_tag === tag) draw(child.tag, depth + 1);
  };
  for (const { tag, parent_tag } of snapshots)
    if (parent_tag === undefined || !tags.has(parent_tag)) draw(tag, 0);
  return lines.length === 0 ? "There are no snapshots.\n" : `${lines.join("\n")}\n`;
}

function indent(depth: number): string {
  return "  ".repeat(depth);
}
