/** The table of verbs. The module of a verb, with its options and its code, is loaded on demand. */
import type { Command } from "commander";
import type { ToAction } from "./cli.ts";

/** What completes an operand. */
export type Completes =
  | "tags"
  | "sandboxes"
  | "snapshots and sandboxes"
  | "workspaces"
  | "commands"
  | "contexts"
  | "services"
  | "ports"
  | "recipes"
  | "shelf"
  | "demos"
  | "shells"
  | "settings"
  | "keys"
  | "secrets"
  | "presets"
  | "repositories"
  | "signing keys"
  | "network actions"
  | "rules"
  | "hazards"
  | "event types";

export type Verb = {
  readonly name: string;
  readonly alias?: string;
  readonly summary: string;
  readonly completes?: Completes;
  /** What completes the second operand; default: the same as the first. */
  readonly completesNext?: Completes;
  /** What completes the operands after the second; default: the same as the second. */
  readonly completesRest?: Completes;
  /** Words that may follow the verb, and what completes the operand of each. */
  readonly subcommands?: Readonly<Record<string, Completes | undefined>>;
  readonly hidden?: true;
  readonly load: () => Promise<{ define: (command: Command, toAction: ToAction) => void }>;
};

export const verbs: readonly Verb[] = [
  {
    name: "quickstart",
    summary: "Check the host, build a snapshot and fork children from it",
    load: () => import("./commands/quickstart.ts"),
  },
  { name: "up", summary: "Start the daemon in the background", load: () => import("./commands/up.ts") },
  {
    name: "down",
    summary: "Stop the daemon, and stop or keep its sandboxes",
    load: () => import("./commands/down.ts"),
  },
  { name: "serve", summary: "Run the daemon in the foreground", load: () => import("./commands/serve.ts") },
  {
    name: "doctor",
    summary: "Check whether this host can run sandboxes",
    load: () => import("./commands/doctor.ts"),
  },
  {
    name: "config",
    summary: "Show and change the settings of the daemon",
    subcommands: { show: undefined, get: "settings", set: "settings", unset: "settings", check: undefined },
    load: () => import("./commands/config.ts"),
  },
  {
    name: "service",
    summary: "Install forkd as a systemd service",
    subcommands: { install: undefined, uninstall: undefined, print: undefined },
    load: () => import("./commands/service.ts"),
  },
  {
    name: "build",
    summary: "Build a snapshot from a recipe",
    completes: "recipes",
    load: () => import("./commands/build.ts"),
  },
  {
    name: "recipes",
    summary: "List the recipes that come with forkd; run demos",
    completes: "shelf",
    subcommands: { demo: "demos" },
    load: () => import("./commands/recipes.ts"),
  },
  {
    name: "snapshot",
    summary: "Build a snapshot from a root file system",
    load: () => import("./commands/snapshot.ts"),
  },
  {
    name: "derive",
    alias: "snapshot-diff",
    summary: "Run a command on a snapshot and save the result as another",
    load: () => import("./commands/derive.ts"),
  },
  { name: "images", summary: "List snapshots", load: () => import("./commands/images.ts") },
  {
    name: "info",
    alias: "snapshot-info",
    summary: "Show a snapshot, a sandbox or a workspace",
    completes: "snapshots and sandboxes",
    load: () => import("./commands/info.ts"),
  },
  {
    name: "sbom",
    summary: "List the packages of a snapshot",
    completes: "tags",
    load: () => import("./commands/sbom.ts"),
  },
  {
    name: "verify",
    summary: "Check that children of a snapshot are safe",
    completes: "tags",
    load: () => import("./commands/verify.ts"),
  },
  {
    name: "tree",
    summary: "Draw the lineage of snapshots and sandboxes",
    completes: "tags",
    load: () => import("./commands/tree.ts"),
  },
  {
    name: "compact",
    alias: "snapshot-compact",
    summary: "Copy a snapshot into one without a parent",
    load: () => import("./commands/compact.ts"),
  },
  {
    name: "push",
    summary: "Send a snapshot to a registry",
    completes: "tags",
    load: () => import("./commands/push.ts"),
  },
  {
    name: "pull",
    summary: "Fetch a snapshot from a registry",
    load: () => import("./commands/pull.ts"),
  },
  {
    name: "search",
    summary: "List the snapshots of a registry",
    load: () => import("./commands/search.ts"),
  },
  {
    name: "login",
    summary: "Log in to a registry of snapshots",
    load: () => import("./commands/login.ts"),
  },
  {
    name: "logout",
    summary: "Forget the password for a registry",
    load: () => import("./commands/logout.ts"),
  },
  {
    name: "pack",
    summary: "Write a snapshot with its parents to a file",
    completes: "tags",
    load: () => import("./commands/pack.ts"),
  },
  {
    name: "unpack",
    summary: "Make the snapshots of a file that pack wrote",
    load: () => import("./commands/unpack.ts"),
  },
  { name: "rmi", summary: "Remove snapshots", completes: "tags", load: () => import("./commands/rmi.ts") },
  {
    name: "fork",
    alias: "spawn",
    summary: "Fork sandboxes from a snapshot",
    completes: "tags",
    load: () => import("./commands/fork.ts"),
  },
  {
    name: "run",
    summary: "Fork a sandbox, run one command in it, then kill it",
    completes: "tags",
    load: () => import("./commands/run.ts"),
  },
  { name: "ls", summary: "List sandboxes", load: () => import("./commands/ls.ts") },
  {
    name: "ps",
    summary: "List the commands of a sandbox",
    completes: "sandboxes",
    load: () => import("./commands/ps.ts"),
  },
  {
    name: "top",
    summary: "Watch CPU, memory and disk of sandboxes",
    load: () => import("./commands/top.ts"),
  },
  {
    name: "events",
    summary: "Follow the events of sandboxes and snapshots",
    load: () => import("./commands/events.ts"),
  },
  {
    name: "branch",
    summary: "Snapshot a running sandbox, which continues",
    completes: "sandboxes",
    load: () => import("./commands/branch.ts"),
  },
  {
    name: "pause",
    summary: "Save sandboxes to disk and stop their machines",
    completes: "sandboxes",
    load: () => import("./commands/pause.ts"),
  },
  {
    name: "resume",
    summary: "Resume paused sandboxes",
    completes: "sandboxes",
    load: () => import("./commands/resume.ts"),
  },
  {
    name: "rewind",
    summary: "Return a sandbox to a snapshot of its lineage",
    completes: "sandboxes",
    load: () => import("./commands/rewind.ts"),
  },
  {
    name: "timeouts",
    summary: "Change the timeouts of a sandbox",
    completes: "sandboxes",
    load: () => import("./commands/timeouts.ts"),
  },
  {
    name: "workspace",
    summary: "Manage workspaces: sandboxes that have a name",
    subcommands: {
      create: undefined,
      ls: undefined,
      suspend: "workspaces",
      resume: "workspaces",
      delete: "workspaces",
    },
    load: () => import("./commands/workspace.ts"),
  },
  {
    name: "net",
    summary: "Show and change the network of a sandbox",
    completes: "sandboxes",
    completesNext: "network actions",
    completesRest: "rules",
    subcommands: { presets: "presets" },
    load: () => import("./commands/net.ts"),
  },
  {
    name: "secrets",
    summary: "Manage secrets that guests use without seeing them",
    subcommands: { set: "secrets", ls: undefined, rm: "secrets" },
    load: () => import("./commands/secrets.ts"),
  },
  {
    name: "trust",
    summary: "Say whose signatures a pull asks for",
    subcommands: {
      pin: "repositories",
      unpin: "repositories",
      policy: "repositories",
      ls: undefined,
      rm: "repositories",
    },
    load: () => import("./commands/trust.ts"),
  },
  {
    name: "signing-keys",
    summary: "Create and show your keys to sign snapshots with",
    subcommands: { create: undefined, show: "signing keys", ls: undefined },
    load: () => import("./commands/signing-keys.ts"),
  },
  {
    name: "pool",
    summary: "Show and set how many children wait ready",
    subcommands: { set: "tags", unset: "tags" },
    load: () => import("./commands/pool.ts"),
  },
  {
    name: "exec",
    summary: "Run a command in a sandbox",
    completes: "sandboxes",
    load: () => import("./commands/exec.ts"),
  },
  {
    name: "attach",
    summary: "Follow a running or ended command of a sandbox",
    completes: "sandboxes",
    completesNext: "commands",
    load: () => import("./commands/attach.ts"),
  },
  {
    name: "eval",
    summary: "Evaluate code in a warm interpreter of a sandbox",
    completes: "sandboxes",
    load: () => import("./commands/eval.ts"),
  },
  {
    name: "interrupt",
    summary: "Interrupt the code that a sandbox evaluates",
    completes: "sandboxes",
    load: () => import("./commands/interrupt.ts"),
  },
  {
    name: "contexts",
    summary: "List or drop the sets of variables of evaluated code",
    completes: "sandboxes",
    load: () => import("./commands/contexts.ts"),
  },
  {
    name: "cp",
    summary: "Copy files into or out of a sandbox",
    completes: "sandboxes",
    load: () => import("./commands/cp.ts"),
  },
  {
    name: "port",
    summary: "Open a port of a sandbox and print its address",
    completes: "sandboxes",
    completesNext: "ports",
    load: () => import("./commands/port.ts"),
  },
  {
    name: "ports",
    summary: "List the open ports of a sandbox",
    completes: "sandboxes",
    load: () => import("./commands/ports.ts"),
  },
  {
    name: "forward",
    summary: "Forward local TCP ports to ports of a sandbox",
    completes: "sandboxes",
    completesNext: "ports",
    load: () => import("./commands/forward.ts"),
  },
  {
    name: "logs",
    summary: "Print the console of a sandbox, or the daemon's log",
    completes: "sandboxes",
    load: () => import("./commands/logs.ts"),
  },
  {
    name: "kill",
    alias: "rm",
    summary: "Kill sandboxes",
    completes: "sandboxes",
    load: () => import("./commands/kill.ts"),
  },
  {
    name: "gc",
    summary: "Remove unused flat images, unfinished snapshots, leftovers",
    load: () => import("./commands/gc.ts"),
  },
  {
    name: "cleanup",
    summary: "Remove leftovers of stopped daemons and sandboxes",
    load: () => import("./commands/cleanup.ts"),
  },
  {
    name: "keys",
    summary: "Manage keys for callers over HTTP",
    subcommands: { create: undefined, ls: undefined, rm: "keys" },
    load: () => import("./commands/keys.ts"),
  },
  {
    name: "mcp",
    summary: "Serve sandboxes to MCP clients, over stdio or HTTP",
    load: () => import("./commands/mcp.ts"),
  },
  {
    name: "e2b",
    summary: "Print what the SDKs of E2B need to use this daemon",
    subcommands: { env: undefined },
    load: () => import("./commands/e2b.ts"),
  },
  {
    name: "completion",
    summary: "Print a completion script for a shell",
    completes: "shells",
    load: () => import("./commands/completion.ts"),
  },
  {
    name: "version",
    summary: "Print the versions of the CLI and the daemon",
    load: () => import("./commands/version.ts"),
  },
  {
    name: "__complete",
    summary: "Print candidates for a completion script",
    hidden: true,
    load: () => import("./commands/complete.ts"),
  },
];

/** The verb with this name or alias. */
export function findVerb(name: string | undefined): Verb | undefined {
  return verbs.find((verb) => verb.name === name || (verb.alias !== undefined && verb.alias === name));
}
