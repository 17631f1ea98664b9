/** Draws the lineage of snapshots and sandboxes as lines of text. */
import type { Tree } from "@forkd/contract";
import { clean, formatAge, formatBytes } from "../terminal/table.ts";

type Snapshot = Tree["snapshots"][number];
type Sandbox = Tree["sandboxes"][number];
type Node = { readonly text: string; readonly tag?: string };
type Style = {
  readonly branch: string;
  readonly last: string;
  readonly through: string;
  readonly blank: string;
};

const boxes: Style = { branch: "├── ", last: "└── ", through: "│   ", blank: "    " };
const plain: Style = { branch: "|-- ", last: "`-- ", through: "|   ", blank: "    " };

/**
 * Draws snapshots below their parents, and running and paused sandboxes below their snapshots. A removed
 * parent appears as `missing`.
 */
export function renderTree(tree: Tree, options: { ascii?: boolean; nowMs?: number } = {}): string[] {
  const { ascii = false, nowMs = Date.now() } = options;
  const style = ascii ? plain : boxes;
  const children = childrenByTag(tree, nowMs);
  const lines: string[] = [];
  const drawn = new Set<string>();

  function draw(node: Node, first: string, rest: string): void {
    lines.push(first + clean(node.text));
    if (node.tag === undefined) return;
    drawn.add(node.tag);
    const below = (children.get(node.tag) ?? []).filter(({ tag }) => tag === undefined || !drawn.has(tag));
    for (const [index, child] of below.entries()) {
      const isLast = index === below.length - 1;
      draw(child, rest + (isLast ? style.last : style.branch), rest + (isLast ? style.blank : style.through));
    }
  }

  for (const root of rootsOf(tree, nowMs)) draw(root, "", "");
  // If a removed tag is used again, a snapshot can have its own descendant as its parent.
  for (const snapshot of byTag(tree.snapshots))
    if (!drawn.has(snapshot.tag)) draw(snapshotNode(snapshot, nowMs), "", "");
  return lines;
}

function rootsOf(tree: Tree, nowMs: number): Node[] {
  const known = new Set(tree.snapshots.map(({ tag }) => tag));
  const named = [
    ...tree.snapshots.map(({ parent_tag }) => parent_tag),
    ...shown(tree.sandboxes).map(({ snapshot_tag }) => snapshot_tag),
  ].filter((tag) => tag !== undefined);
  const missing = [...new Set(named)]
    .filter((tag) => !known.has(tag))
    .map((tag) => ({ tag, text: `${tag}  missing` }));
  const roots = tree.snapshots
    .filter(({ parent_tag }) => parent_tag === undefined)
    .map((snapshot) => snapshotNode(snapshot, nowMs));
  return byTag([...missing, ...roots]);
}

function childrenByTag(tree: Tree, nowMs: number): Map<string, Node[]> {
  const children = new Map<string, Node[]>();
  const add = (parent: string, node: Node) => children.set(parent, [...(children.get(parent) ?? []), node]);
  for (const snapshot of byTag(tree.snapshots))
    if (snapshot.parent_tag !== undefined) add(snapshot.parent_tag, snapshotNode(snapshot, nowMs));
  const sandboxes = shown(tree.sandboxes).toSorted((a, b) => a.created_at_unix - b.created_at_unix);
  for (const sandbox of sandboxes) add(sandbox.snapshot_tag, sandboxNode(sandbox, nowMs));
  return children;
}

function snapshotNode(snapshot: Snapshot, nowMs: number): Node {
  const { tag, status, branched_from } = snapshot;
  const facts = [
    status,
    formatAge(snapshot.created_at_unix, nowMs),
    formatBytes(snapshot.physical_bytes),
    ...(branched_from === undefined ? [] : [`branched from ${branched_from}`]),
  ];
  return { tag, text: `${tag}  ${facts.join(", ")}` };
}

function sandboxNode({ id, state, workspace, created_at_unix }: Sandbox, nowMs: number): Node {
  const name = workspace === undefined ? "" : `, workspace ${workspace}`;
  return { text: `${id}  ${state}, ${formatAge(created_at_unix, nowMs)}${name}` };
}

function shown(sandboxes: readonly Sandbox[]): Sandbox[] {
  return sandboxes.filter(({ state }) => state !== "dead");
}

function byTag<T extends { readonly tag?: string | undefined }>(nodes: readonly T[]): T[] {
  return nodes.toSorted((a, b) => ((a.tag ?? "") < (b.tag ?? "") ? -1 : 1));
}
