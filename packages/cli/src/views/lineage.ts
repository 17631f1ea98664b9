/** Draws the lineage of snapshots and sandboxes as lines of text. */
import type { Tree } from "@forkd/contract";
import { byTime } from "./order.ts";
import { cutText } from "../terminal/fit-table.ts";
import { shortIds } from "../terminal/short-id.ts";
import { clean, formatAge, formatBytes } from "../terminal/table.ts";

type Snapshot = Tree["snapshots"][number];
type Sandbox = Tree["sandboxes"][number];
type Node = {
  readonly text: string;
  readonly created_at_unix: number;
  readonly tag?: string;
};
type Style = {
  readonly branch: string;
  readonly last: string;
  readonly through: string;
  readonly blank: string;
  /** before the only child of the line above, which is not indented */
  readonly chain: string;
};

const boxes: Style = { branch: "├── ", last: "└── ", through: "│   ", blank: "    ", chain: "↓ " };
const plain: Style = { branch: "|-- ", last: "`-- ", through: "|   ", blank: "    ", chain: "v " };

type TreeView = {
  readonly ascii?: boolean;
  readonly nowMs?: number;
  /** Columns of a terminal: lines are cut, ids shortened, and straight chains not indented if they are deep. */
  readonly width?: number | undefined;
};
type Drawing = {
  readonly style: Style;
  readonly children: ReadonlyMap<string, readonly Node[]>;
  /** Do not indent an only child. */
  readonly isFlat: boolean;
};

/**
 * Draws snapshots below their parents, and running and paused sandboxes below their snapshots, the oldest
 * first. A removed parent appears as `missing`.
 */
export function renderTree(tree: Tree, view: TreeView = {}): string[] {
  const { ascii = false, nowMs = Date.now(), width } = view;
  const style = ascii ? plain : boxes;
  const describe = describer(tree, nowMs, width !== undefined);
  const children = childrenByTag(tree, describe);
  const roots = rootsOf(tree, describe);
  const lines = drawAll(roots, { style, children, isFlat: false });
  if (width === undefined) return lines;
  const isDeep = lines.some((line) => indentOf(line) > width / 2);
  const shown = isDeep ? drawAll(roots, { style, children, isFlat: true }) : lines;
  return shown.map((line) => cutText(line, width));
}

function drawAll(roots: readonly Node[], { style, children, isFlat }: Drawing): string[] {
  const lines: string[] = [];
  const drawn = new Set<string>();
  for (const root of roots) if (root.tag === undefined || !drawn.has(root.tag)) draw(root, "", "");
  return lines;

  function draw(node: Node, first: string, rest: string): void {
    lines.push(first + clean(node.text));
    if (node.tag === undefined) return;
    drawn.add(node.tag);
    const below = (children.get(node.tag) ?? []).filter(({ tag }) => tag === undefined || !drawn.has(tag));
    const [only] = below;
    if (isFlat && below.length === 1 && only?.tag !== undefined) return draw(only, rest + style.chain, rest);
    for (const [index, child] of below.entries()) {
      const isLast = index === below.length - 1;
      draw(child, rest + (isLast ? style.last : style.branch), rest + (isLast ? style.blank : style.through));
    }
  }
}

function indentOf(line: string): number {
  return /^[│├└─|`\- ]*/.exec(line)?.[0].length ?? 0;
}

type Describe = { readonly snapshot: (each: Snapshot) => Node; readonly sandbox: (each: Sandbox) => Node };

function describer(tree: Tree, nowMs: number, hasShortIds: boolean): Describe {
  const ids = [
    ...tree.sandboxes.map(({ id }) => id),
    ...tree.snapshots.flatMap(({ branched_from }) => branched_from ?? []),
  ];
  const short = hasShortIds ? shortIds(ids) : new Map<string, string>();
  const nameOf = (id: string) => short.get(id) ?? id;
  return {
    snapshot: ({ tag, status, created_at_unix, physical_bytes, branched_from }) => {
      const facts = [
        status,
        formatAge(created_at_unix, nowMs),
        formatBytes(physical_bytes),
        ...(branched_from === undefined ? [] : [`branched from ${nameOf(branched_from)}`]),
      ];
      return { tag, created_at_unix, text: `${tag}  ${facts.join(", ")}` };
    },
    sandbox: ({ id, state, workspace, created_at_unix }) => {
      const name = workspace === undefined ? "" : `, workspace ${workspace}`;
      return {
        created_at_unix,
        text: `${nameOf(id)}  ${state}, ${formatAge(created_at_unix, nowMs)}${name}`,
      };
    },
  };
}

/** Also every snapshot: if a removed tag is used again, one can have its own descendant as its parent. */
function rootsOf(tree: Tree, describe: Describe): Node[] {
  const known = new Set(tree.snapshots.map(({ tag }) => tag));
  const named = [
    ...tree.snapshots.map(({ parent_tag }) => parent_tag),
    ...shown(tree.sandboxes).map(({ snapshot_tag }) => snapshot_tag),
  ].filter((tag) => tag !== undefined);
  const missing = [...new Set(named)]
    .filter((tag) => !known.has(tag))
    .map((tag) => ({ tag, created_at_unix: 0, text: `${tag}  missing` }));
  const isRoot = ({ parent_tag }: Snapshot) => parent_tag === undefined;
  const roots = tree.snapshots.filter(isRoot).map((each) => describe.snapshot(each));
  const others = tree.snapshots.filter((each) => !isRoot(each)).map((each) => describe.snapshot(each));
  return [...byTime(missing), ...byTime(roots), ...byTime(others)];
}

function childrenByTag(tree: Tree, describe: Describe): Map<string, Node[]> {
  const children = new Map<string, Node[]>();
  const add = (parent: string, node: Node) => {
    const known = children.get(parent);
    if (known) known.push(node);
    else children.set(parent, [node]);
  };
  for (const snapshot of byTime(tree.snapshots))
    if (snapshot.parent_tag !== undefined) add(snapshot.parent_tag, describe.snapshot(snapshot));
  for (const sandbox of byTime(shown(tree.sandboxes))) add(sandbox.snapshot_tag, describe.sandbox(sandbox));
  return children;
}

function shown(sandboxes: readonly Sandbox[]): Sandbox[] {
  return sandboxes.filter(({ state }) => state !== "dead");
}

/** The snapshot with its ancestors, its descendants and their sandboxes; undefined if there is none. */
export function lineageOf(tree: Tree, tag: string): Tree | undefined {
  const parents = new Map(tree.snapshots.map((each) => [each.tag, each.parent_tag]));
  if (!parents.has(tag)) return undefined;
  const ancestors = new Set<string>();
  for (let at = parents.get(tag); at !== undefined && !ancestors.has(at); at = parents.get(at))
    ancestors.add(at);
  const below = new Set([tag]);
  // A set that grows while it is read.
  for (const each of below)
    for (const { tag: child, parent_tag } of tree.snapshots) if (parent_tag === each) below.add(child);
  return {
    snapshots: tree.snapshots.filter((each) => below.has(each.tag) || ancestors.has(each.tag)),
    sandboxes: tree.sandboxes.filter(({ snapshot_tag }) => below.has(snapshot_tag)),
  };
}

/** Tags in the order of their age. */
export function tagsOf(tree: Tree): string[] {
  return byTime(tree.snapshots).map(({ tag }) => tag);
}
