/** The table of verbs. A verb's own module, with its options and its work, is loaded when it is asked for. */
import type { Command } from "commander";
import type { ToAction } from "./cli.ts";

/** What stands for an operand in completions. */
export type Completes =
  "tags" | "sandboxes" | "workspaces" | "recipes" | "shells" | "settings" | "keys" | "event types";

export type Verb = {
  readonly name: string;
  readonly alias?: string;
  readonly summary: string;
  readonly completes?: Completes;
  /** words that may follow the verb, and what stands for the operand of each */
  readonly subcommands?: Readonly<Record<string, Completes | undefined>>;
  readonly hidden?: true;
  readonly load: () => Promise<{ define: (command: Command, toAction: ToAction) => void }>;
};

export const verbs: readonly Verb[] = [
  {
    name: "quickstart",
    summary: "Check the host, build a snapshot, fork children and compute in each",
    load: () => import("./commands/quickstart.ts"),
  },
  { name: "up", summary: "Start the daemon in the background", load: () => import("./commands/up.ts") },
  {
    name: "down",
    summary: "Stop the daemon; sandboxes end or are kept",
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
    summary: "Install forkd as a service of systemd",
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
    name: "snapshot",
    summary: "Build a snapshot from a root file system",
    load: () => import("./commands/snapshot.ts"),
  },
  {
    name: "derive",
    alias: "snapshot-diff",
    summary: "Run a command on top of a snapshot and keep the result as another",
    load: () => import("./commands/derive.ts"),
  },
  { name: "images", summary: "List snapshots", load: () => import("./commands/images.ts") },
  {
    name: "info",
    alias: "snapshot-info",
    summary: "Show everything about a snapshot",
    completes: "tags",
    load: () => import("./commands/info.ts"),
  },
  {
    name: "tree",
    summary: "Draw the lineage of snapshots and sandboxes",
    load: () => import("./commands/tree.ts"),
  },
  {
    name: "compact",
    alias: "snapshot-compact",
    summary: "Copy a snapshot into one without a parent",
    load: () => import("./commands/compact.ts"),
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
    summary: "Fork a sandbox, run one command in it and kill it",
    completes: "tags",
    load: () => import("./commands/run.ts"),
  },
  { name: "ls", alias: "ps", summary: "List sandboxes", load: () => import("./commands/ls.ts") },
  {
    name: "top",
    summary: "Watch CPU, memory and disk of sandboxes",
    load: () => import("./commands/top.ts"),
  },
  {
    name: "events",
    summary: "Follow what happens to sandboxes and snapshots",
    load: () => import("./commands/events.ts"),
  },
  {
    name: "branch",
    summary: "Capture a running sandbox as a snapshot; it goes on",
    completes: "sandboxes",
    load: () => import("./commands/branch.ts"),
  },
  {
    name: "pause",
    summary: "Save sandboxes to disk and end their machines",
    completes: "sandboxes",
    load: () => import("./commands/pause.ts"),
  },
  {
    name: "resume",
    summary: "Go on with paused sandboxes",
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
    summary: "Change how long a sandbox may live and be left alone",
    completes: "sandboxes",
    load: () => import("./commands/timeouts.ts"),
  },
  {
    name: "workspace",
    summary: "Sandboxes with a name: create, ls, suspend, resume, delete",
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
    name: "exec",
    summary: "Run a command in a sandbox",
    completes: "sandboxes",
    load: () => import("./commands/exec.ts"),
  },
  {
    name: "eval",
    summary: "Evaluate code in a warm interpreter of a sandbox",
    completes: "sandboxes",
    load: () => import("./commands/eval.ts"),
  },
  {
    name: "cp",
    summary: "Copy files into or out of a sandbox",
    completes: "sandboxes",
    load: () => import("./commands/cp.ts"),
  },
  {
    name: "logs",
    summary: "Print the console of a sandbox, or the log of the daemon",
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
    summary: "Remove flat images, unfinished snapshots and strays that nothing needs",
    load: () => import("./commands/gc.ts"),
  },
  {
    name: "cleanup",
    summary: "Remove what dead daemons and sandboxes left behind",
    load: () => import("./commands/cleanup.ts"),
  },
  {
    name: "keys",
    summary: "Keys for callers over HTTP: create, ls, rm",
    subcommands: { create: undefined, ls: undefined, rm: "keys" },
    load: () => import("./commands/keys.ts"),
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
