/**
 * Which sandboxes, snapshots, workspaces and keys a request touched or made, and which registry it names: from its
 * input and its result. Pure.
 */

const kinds = ["sandboxes", "snapshots", "workspaces", "keys", "references"] as const;
type Kind = (typeof kinds)[number];
type Objects = { readonly [K in Kind]?: readonly string[] };

/** Most names of one kind in one line; the rest is counted */
const maxNames = 2000;
const maxReference = 1024;

type Fields = Readonly<Record<string, unknown>>;

export class ObjectCollector {
  readonly #found: Record<Kind, Set<string>> = {
    sandboxes: new Set(),
    snapshots: new Set(),
    workspaces: new Set(),
    keys: new Set(),
    references: new Set(),
  };
  readonly #path: string;

  /** `path` is the path of the route, which says what `name` names. */
  constructor(path: string) {
    this.#path = path;
  }

  input(input: Fields): void {
    this.#add("sandboxes", input["id"]);
    for (const field of ["tag", "snapshot_tag", "to"]) this.#add("snapshots", input[field]);
    this.#addName(input["name"]);
    if (!this.#path.startsWith("/v1/hub/")) return;
    for (const field of ["reference", "repository", "registry"]) this.#add("references", shown(input[field]));
  }

  result(result: unknown): void {
    if (Array.isArray(result)) for (const entry of result) this.#made(entry);
    else this.#made(result);
  }

  /** undefined if there are none */
  all(): Objects | undefined {
    const found = kinds.flatMap((kind) => {
      const names = [...this.#found[kind]];
      if (names.length === 0) return [];
      const more = names.length - maxNames;
      return [[kind, more > 0 ? [...names.slice(0, maxNames), `and ${more} more`] : names] as const];
    });
    return found.length === 0 ? undefined : Object.fromEntries(found);
  }

  /** `value`: a sandbox, a snapshot, a branch with children, a workspace, or a list of killed sandboxes. */
  #made(value: unknown): void {
    if (!isFields(value)) return;
    if (isSandboxId(value["id"])) this.#add("sandboxes", value["id"]);
    this.#add("snapshots", value["tag"]);
    if (isSandboxId(value["id"])) this.#addName(value["name"]);
    for (const field of ["children", "killed"]) {
      const list = value[field];
      if (!Array.isArray(list)) continue;
      for (const entry of list as unknown[]) this.#add("sandboxes", isFields(entry) ? entry["id"] : entry);
    }
  }

  #addName(name: unknown): void {
    if (this.#path.startsWith("/v1/workspaces")) this.#add("workspaces", name);
    if (this.#path.startsWith("/v1/keys")) this.#add("keys", name);
  }

  #add(kind: Kind, name: unknown): void {
    if (typeof name === "string") this.#found[kind].add(name);
  }
}

/** Where a snapshot is sent to or comes from, without the query of a URL, which may be a signature. */
function shown(reference: unknown): unknown {
  if (typeof reference !== "string") return undefined;
  return reference
    .replace(/[?#].*$/s, "")
    .replace(/^([a-z]+:\/\/)[^/]*@/i, "$1")
    .slice(0, maxReference);
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null;
}

function isSandboxId(value: unknown): boolean {
  return typeof value === "string" && value.startsWith("sb-");
}
