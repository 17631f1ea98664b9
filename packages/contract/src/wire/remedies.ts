/**
 * What a caller can do about an error, as data. Each surface (HTTP, CLI, SDK) has its own words for it, so
 * that a remedy never names an interface that the caller does not use. Imports nothing.
 */

/** Every action with its parameters; `?` marks an optional one. */
const remedyParameters = {
  /** `text` is one sentence that fits every surface */
  advice: { text: "string" },

  list_snapshots: {},
  wait_for_snapshot: { tag: "string" },
  /** the tag is taken */
  replace_snapshot: { tag: "string" },
  /** a build can be repeated under the same tag */
  build_again: { tag: "string" },
  /** a branch has to be removed first */
  remake_snapshot: { tag: "string" },
  verify_snapshots: {},
  /** its children have to be checked before they are handed out */
  verify_snapshot: { tag: "string" },
  /** the last check of its children found a fault */
  show_verification: { tag: "string" },
  /** a branch whose children need their own check */
  verify_branch: {},
  /** the snapshots that are layers over it go with it */
  remove_dependents: { tag: "string" },
  branch_with_mode: { mode: "string" },

  list_sandboxes: {},
  list_commands: { id: "string" },
  resume: { id: "string" },
  /** gives a sandbox another machine */
  pause_and_resume: { ids: "strings" },
  kill_dependents: { ids: "strings" },
  kill_children: { tag: "string" },
  /** Paused sandboxes count too: only killing helps. */
  kill_some: { setting: "string?" },
  pause_some: { setting: "string?" },
  /** one call asks for more than the limit allows, whatever runs */
  ask_for_less: { setting: "string?" },
  fork_another: { tag: "string?" },
  /** a dead sandbox can start again where it was forked */
  rewind_or_fork: { id: "string", tag: "string" },
  show_logs: { id: "string?" },
  allow_best_effort: {},
  open_port: { id: "string", port: "string" },
  /** a request to the host name of a port has no token */
  give_port_token: { id: "string", port: "string" },

  /** no pinned key has signed what the repository has */
  pin_key: { repository: "string" },
  /** this host cannot restore what was pulled, but can build it from its recipe */
  pull_and_rebuild: { reference: "string" },
  /** the user has no key to sign with */
  make_signing_key: {},

  list_workspaces: {},
  delete_workspace: { name: "string" },
  /** the daemon does not stop because a workspace could not be saved */
  keep_or_force: {},

  authenticate: {},
  list_keys: {},
  remove_key: { name: "string" },
  /** there is no secret with this name */
  list_secrets: { name: "string?" },
  new_idempotency_key: {},
  /** a registry of artifacts */
  log_in: { registry: "string" },

  retry_later: { setting: "string?" },
  /** `to` says which values would do: "a shorter path" */
  change_setting: { setting: "string", to: "string" },
  install: { packages: "strings", setting: "string?" },
  free_disk: { setting: "string?" },
  clean_up: {},
  run_doctor: {},
  make_guest_kernel: {},
  show_daemon_log: {},
  start_daemon: {},
  /** no daemon answers at the address that was given */
  check_address: {},
  /** the daemon answers at this address instead */
  use_address: { url: "string" },
  /** the address of a daemon that may use TLS */
  try_tls: { url: "string" },
  /** the daemon that was found uses another data directory */
  use_own_places: {},
  trust_certificate: {},
  /** the data directory was moved while machines of its sandboxes ran */
  move_data_back: { from: "string", to: "string" },
} as const satisfies Record<string, Record<string, ParameterType>>;

type ParameterType = "string" | "string?" | "strings";
type Parameters = typeof remedyParameters;
type Value<T> = T extends "strings" ? readonly string[] : string;
type OptionalName<P> = { [K in keyof P]: P[K] extends `${string}?` ? K : never }[keyof P];

export type RemedyAction = keyof Parameters;
export type RemedyOf<A extends RemedyAction> = { readonly action: A } & {
  readonly [K in Exclude<keyof Parameters[A], OptionalName<Parameters[A]>>]: Value<Parameters[A][K]>;
} & { readonly [K in OptionalName<Parameters[A]>]?: string };
export type Remedy = { [A in RemedyAction]: RemedyOf<A> }[RemedyAction];

/** The words of one surface: a whole sentence for every action. */
export type RemedyWording = { readonly [A in RemedyAction]: (remedy: RemedyOf<A>) => string };

/** On the wire, with words for callers of the HTTP API. */
export type RemedyBody = { action: string; text: string; [parameter: string]: unknown };

export const remedyActions = Object.keys(remedyParameters) as readonly RemedyAction[];

export function advice(text: string): RemedyOf<"advice"> {
  return { action: "advice", text };
}

export function wordRemedy(wording: RemedyWording, remedy: Remedy): string {
  // The entry of an action takes the remedies of that action, which the compiler cannot follow over a union.
  return (wording[remedy.action] as (each: Remedy) => string)(remedy);
}

/** The remedy in a body; an action that this version does not know is advice in the sender's words. */
export function parseRemedy(value: unknown): Remedy | undefined {
  if (typeof value !== "object" || value === null) return undefined;
  const given = value as Record<string, unknown>;
  const { action, text } = given;
  if (typeof action === "string" && isRemedyAction(action)) {
    const parameters: Record<string, ParameterType> = remedyParameters[action];
    const names = Object.keys(parameters).filter((name) => given[name] !== undefined);
    const isWhole = Object.entries(parameters).every(([name, type]) => fits(given[name], type));
    // Checked against the table that the type is made from.
    if (isWhole) return { action, ...Object.fromEntries(names.map((name) => [name, given[name]])) } as Remedy;
  }
  return typeof text === "string" ? advice(text) : undefined;
}

function isRemedyAction(action: string): action is RemedyAction {
  return Object.hasOwn(remedyParameters, action);
}

function fits(value: unknown, type: ParameterType): boolean {
  if (type === "strings") return Array.isArray(value) && value.every((each) => typeof each === "string");
  return typeof value === "string" || (type === "string?" && value === undefined);
}
