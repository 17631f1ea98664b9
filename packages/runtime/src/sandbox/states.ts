/**
 * The life of a sandbox: its states, the events that may happen in each, and the state that follows. Pure: no
 * I/O, no clock, no timers; machines are only compared by identity. `Sandbox` owns one state, changes it only
 * through `transition()`, and does the work around it.
 *
 *          attached            pauseBegan            paused
 *   new ──────────► running ─────────────► pausing ────────► paused
 *    │              │ ▲ ▲ ▲                   │                 │
 *    │     attached │ │ │ └─── pauseEnded ────┘                 │
 *    │     (rewind) └─┘ │      (saving failed)                  │
 *    │                  └────────── attached (resume, rewind) ──┘
 *    │
 *    ├── machineAbsent ─────► paused; if its machine was lost, as for machineEnded
 *    ├── savedStateBroken ──► unresumable ── attached (rewind, or its machine still runs) ──► running
 *    └── recordBroken ──────► unreadable
 *
 *   running, pausing ── machineEnded ──► paused, if a machine can start again; otherwise dead
 *   running, pausing ── detached ──────► paused, because the daemon stops
 *   any but unreadable ── killed ──────► dead
 *
 *   new          Its first machine is starting, or a daemon is adopting it after a restart. Not listed yet.
 *   running      It has a machine that takes calls.
 *   pausing      Its machine is being saved. It is still listed as running but takes no calls. If saving
 *                fails, it is running again.
 *   paused       It has no machine. The next one starts from the saved state, or from the snapshot if
 *                nothing was saved.
 *   unresumable  Listed as paused, but this daemon cannot read the saved state. Its files stay on disk. It
 *                cannot be resumed, only rewound.
 *   dead         Its machine has ended and nothing was saved, or it was killed. Everything of it on the host
 *                is removed; the reason and the last console lines are kept in memory.
 *   unreadable   Listed as dead: this daemon cannot read its record. Its files stay until it is killed.
 */
import { AppError, type SandboxInfo } from "@forkd/contract";
import type { EndReason, Loss } from "./exit-reason.ts";
import type { SavedState } from "./facts.ts";
import type { SandboxMachine } from "./sandbox-machine.ts";

/** Where the next machine starts from. Every state has one. */
export type Origin = {
  /** the tagged snapshot that the sandbox descends from */
  readonly snapshotTag: string;
  readonly saved: SavedState | undefined;
  /** ids of the snapshots that it came from, beside the chain of the current one */
  readonly visited: readonly string[];
  /** A workspace that loses its machine before it was saved starts again from its snapshot. */
  readonly isWorkspace: boolean;
};

/** A machine and when its time to live is over. */
type Attached = { readonly machine: SandboxMachine; readonly expiresAt: number | undefined };

export type SandboxState = { readonly origin: Origin } & (
  | { readonly kind: "new" }
  | ({ readonly kind: "running" } & Attached)
  | ({ readonly kind: "pausing" } & Attached)
  /** `loss`: why its machine ended, if that was not a pause */
  | { readonly kind: "paused"; readonly loss: Loss | undefined }
  | { readonly kind: "unresumable"; readonly error: AppError }
  | {
      readonly kind: "dead";
      readonly reason: EndReason;
      readonly console: string;
      readonly wasKilled: boolean;
      /** the machine that it had, for its owner to clean up */
      readonly last: Attached | undefined;
    }
  | { readonly kind: "unreadable"; readonly problem: string }
);

export type Rewound = { readonly to: string; readonly visited: readonly string[] };

export type SandboxEvent =
  /** A machine answers. `rewound`: it starts from that tag, so what was saved before is no longer valid. */
  | ({ readonly type: "attached"; readonly rewound?: Rewound | undefined } & Attached)
  | { readonly type: "pauseBegan" }
  /** The state of the machine is on disk and the record names it. */
  | { readonly type: "paused"; readonly saved: SavedState; readonly visited?: readonly string[] | undefined }
  /** The attempt to pause is over, successful or not. */
  | { readonly type: "pauseEnded" }
  /** A machine exited or its agent closed the connection. Ignored unless it is the current machine. */
  | ({ readonly type: "machineEnded"; readonly machine: SandboxMachine } & Loss)
  /** Adopted without a machine: the record names none, or the one that it names was lost. */
  | { readonly type: "machineAbsent"; readonly loss: Loss | undefined }
  | { readonly type: "savedStateBroken"; readonly error: AppError }
  | { readonly type: "recordBroken"; readonly problem: string }
  | { readonly type: "expiryChanged"; readonly expiresAt: number | undefined }
  /** The daemon stops: the machine is stopped, or keeps running for the next daemon. */
  | { readonly type: "detached" }
  | { readonly type: "killed" };

type Kind = SandboxState["kind"];

const allKinds = ["new", "running", "pausing", "paused", "unresumable", "dead", "unreadable"] as const;

/** The states in which each event may happen. In some of them it changes nothing. */
export const legalIn: Readonly<Record<SandboxEvent["type"], readonly Kind[]>> = {
  attached: ["new", "running", "paused", "unresumable"],
  pauseBegan: ["running"],
  // A machine may end between the moment that was saved and the end of the pause.
  paused: ["pausing", "paused"],
  pauseEnded: ["pausing", "paused", "dead"],
  machineEnded: allKinds,
  machineAbsent: ["new", "unresumable"],
  savedStateBroken: ["new"],
  recordBroken: ["new"],
  expiryChanged: ["running", "pausing"],
  detached: allKinds,
  killed: allKinds,
};

/** The next state, or the same object if nothing changes. Throws `internal` if the event is not legal. */
export function transition(state: SandboxState, event: SandboxEvent): SandboxState {
  if (!legalIn[event.type].includes(state.kind))
    throw new AppError("internal", `A sandbox that is ${state.kind} got the event ${event.type}`);
  const { origin } = state;
  switch (event.type) {
    case "attached": {
      const { machine, expiresAt, rewound } = event;
      const from = rewound
        ? { ...origin, snapshotTag: rewound.to, saved: undefined, visited: rewound.visited }
        : origin;
      return { kind: "running", origin: from, machine, expiresAt };
    }
    case "pauseBegan":
      return hasMachine(state) ? { ...state, kind: "pausing" } : state;
    case "paused":
      return {
        kind: "paused",
        origin: { ...origin, saved: event.saved, visited: event.visited ?? origin.visited },
        loss: undefined,
      };
    case "pauseEnded":
      return state.kind === "pausing" ? { ...state, kind: "running" } : state;
    case "machineEnded":
      if (!hasMachine(state) || state.machine !== event.machine) return state;
      return afterLoss(state, { reason: event.reason, console: event.console });
    case "machineAbsent":
      if (state.kind === "unresumable") return state;
      return event.loss ? afterLoss(state, event.loss) : { kind: "paused", origin, loss: undefined };
    case "savedStateBroken":
      return { kind: "unresumable", origin, error: event.error };
    case "recordBroken":
      return { kind: "unreadable", origin, problem: event.problem };
    case "expiryChanged":
      return hasMachine(state) ? { ...state, expiresAt: event.expiresAt } : state;
    case "detached":
      return hasMachine(state) ? { kind: "paused", origin, loss: undefined } : state;
    case "killed":
      return isDead(state) ? state : dead(state, { reason: { text: "killed" }, console: "" }, true);
  }
}

function afterLoss(state: SandboxState, loss: Loss): SandboxState {
  return isRestorable(state) ? { kind: "paused", origin: state.origin, loss } : dead(state, loss, false);
}

function dead(state: SandboxState, { reason, console }: Loss, wasKilled: boolean): SandboxState {
  return { kind: "dead", origin: state.origin, reason, console, wasKilled, last: lastAttached(state) };
}

function hasMachine(state: SandboxState): state is Extract<SandboxState, Attached> {
  return state.kind === "running" || state.kind === "pausing";
}

/** The state that the API shows. */
export function publicState(state: SandboxState): SandboxInfo["state"] {
  if (isDead(state)) return "dead";
  return hasMachine(state) ? "running" : "paused";
}

export function isDead({ kind }: SandboxState): boolean {
  return kind === "dead" || kind === "unreadable";
}

export function wasKilled(state: SandboxState): boolean {
  return state.kind === "dead" && state.wasKilled;
}

/** Its machine may be called. */
export function takesCalls({ kind }: SandboxState): boolean {
  return kind === "running";
}

/** A call must resume it first, or wait until it is paused and then resume it. */
export function needsResume(state: SandboxState): boolean {
  return !isDead(state) && !takesCalls(state);
}

/** It gets another machine when it loses the one it has. */
export function isRestorable({ origin }: SandboxState): boolean {
  return origin.saved !== undefined || origin.isWorkspace;
}

/** It has files that this daemon cannot read and another may be able to. */
export function hasUnreadFiles({ kind }: SandboxState): boolean {
  return kind === "unresumable" || kind === "unreadable";
}

/** The machine, saved or not; undefined if it has none. */
export function machineOf(state: SandboxState): SandboxMachine | undefined {
  return hasMachine(state) ? state.machine : undefined;
}

/** As machineOf(), but a dead sandbox still has the one that it had. */
export function lastAttached(state: SandboxState): Attached | undefined {
  if (hasMachine(state)) return { machine: state.machine, expiresAt: state.expiresAt };
  return state.kind === "dead" ? state.last : undefined;
}

/** Last console lines of a machine that ended. */
export function lastConsole(state: SandboxState): string {
  if (state.kind === "dead") return state.console;
  return state.kind === "paused" ? (state.loss?.console ?? "") : "";
}

/** For a person: why it is dead, or what to know before it is resumed. */
export function reasonOf(state: SandboxState): EndReason | undefined {
  switch (state.kind) {
    case "dead":
      return state.reason;
    case "unreadable":
      return { text: state.problem };
    case "unresumable":
      return { text: `its saved state cannot be used: ${state.error.message}` };
    case "paused":
      return pausedReason(state.origin, state.loss);
    default:
      return undefined;
  }
}

function pausedReason({ saved, snapshotTag }: Origin, loss: Loss | undefined): EndReason | undefined {
  if (loss) {
    const from = saved ? "the state that was saved" : `snapshot "${snapshotTag}"`;
    return {
      ...loss.reason,
      text: `its machine ended (${loss.reason.text}); it can be resumed from ${from}`,
    };
  }
  if (saved) return undefined;
  return { text: "its machine was lost before it was saved; resume starts it again from its snapshot" };
}
