import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { AppError } from "@forkd/contract";
import type { SavedState } from "../../src/sandbox/facts.ts";
import type { SandboxMachine } from "../../src/sandbox/sandbox-machine.ts";
import {
  hasUnreadFiles,
  isDead,
  isRestorable,
  lastAttached,
  lastConsole,
  legalIn,
  machineOf,
  needsResume,
  publicState,
  reasonOf,
  takesCalls,
  transition,
  wasKilled,
  type Origin,
  type SandboxEvent,
  type SandboxState,
} from "../../src/sandbox/states.ts";

type Kind = SandboxState["kind"];
type EventType = SandboxEvent["type"];
type StateOf<K extends Kind> = Extract<SandboxState, { kind: K }>;

// Machines are only compared by identity, and saved states only handed on.
const machine = { number: 0 } as SandboxMachine;
const otherMachine = { number: 1 } as SandboxMachine;
const savedBefore = { savedAt: 1 } as SavedState;
const savedNow = { savedAt: 2 } as SavedState;
const error = new AppError("snapshot_corrupt", "the manifest is missing");
const loss = { reason: { text: "out of memory", code: "out_of_memory" }, console: "last lines" } as const;

const nothingToResume: Origin = { snapshotTag: "py", saved: undefined, visited: [], isWorkspace: false };
const withSaved: Origin = { ...nothingToResume, saved: savedBefore };
const workspace: Origin = { ...nothingToResume, isWorkspace: true };

function statesFrom(origin: Origin): { [K in Kind]: StateOf<K> } {
  const attached = { machine, expiresAt: 100 };
  return {
    new: { kind: "new", origin },
    running: { kind: "running", origin, ...attached },
    pausing: { kind: "pausing", origin, ...attached },
    paused: { kind: "paused", origin, loss: undefined },
    unresumable: { kind: "unresumable", origin, error },
    dead: { kind: "dead", origin, ...loss, wasKilled: false, last: attached },
    unreadable: { kind: "unreadable", origin, problem: "its record is damaged" },
  };
}

const events: { [T in EventType]: Extract<SandboxEvent, { type: T }> } = {
  attached: { type: "attached", machine: otherMachine, expiresAt: 200 },
  pauseBegan: { type: "pauseBegan" },
  paused: { type: "paused", saved: savedNow },
  pauseEnded: { type: "pauseEnded" },
  machineEnded: { type: "machineEnded", machine, ...loss },
  machineAbsent: { type: "machineAbsent", loss },
  savedStateBroken: { type: "savedStateBroken", error },
  recordBroken: { type: "recordBroken", problem: "its record is damaged" },
  expiryChanged: { type: "expiryChanged", expiresAt: 300 },
  detached: { type: "detached" },
  killed: { type: "killed" },
};

/** What follows each event: a state, `same` for the same object, `-` for an event that cannot happen. */
const table: Record<EventType, Record<Kind, Kind | "same" | "-" | "paused|dead">> = {
  attached: {
    new: "running",
    running: "running",
    pausing: "-",
    paused: "running",
    unresumable: "running",
    dead: "-",
    unreadable: "-",
  },
  pauseBegan: {
    new: "-",
    running: "pausing",
    pausing: "-",
    paused: "-",
    unresumable: "-",
    dead: "-",
    unreadable: "-",
  },
  paused: {
    new: "-",
    running: "-",
    pausing: "paused",
    paused: "paused",
    unresumable: "-",
    dead: "-",
    unreadable: "-",
  },
  pauseEnded: {
    new: "-",
    running: "-",
    pausing: "running",
    paused: "same",
    unresumable: "-",
    dead: "same",
    unreadable: "-",
  },
  machineEnded: {
    new: "same",
    running: "paused|dead",
    pausing: "paused|dead",
    paused: "same",
    unresumable: "same",
    dead: "same",
    unreadable: "same",
  },
  machineAbsent: {
    new: "paused|dead",
    running: "-",
    pausing: "-",
    paused: "-",
    unresumable: "same",
    dead: "-",
    unreadable: "-",
  },
  savedStateBroken: {
    new: "unresumable",
    running: "-",
    pausing: "-",
    paused: "-",
    unresumable: "-",
    dead: "-",
    unreadable: "-",
  },
  recordBroken: {
    new: "unreadable",
    running: "-",
    pausing: "-",
    paused: "-",
    unresumable: "-",
    dead: "-",
    unreadable: "-",
  },
  expiryChanged: {
    new: "-",
    running: "running",
    pausing: "pausing",
    paused: "-",
    unresumable: "-",
    dead: "-",
    unreadable: "-",
  },
  detached: {
    new: "same",
    running: "paused",
    pausing: "paused",
    paused: "same",
    unresumable: "same",
    dead: "same",
    unreadable: "same",
  },
  killed: {
    new: "dead",
    running: "dead",
    pausing: "dead",
    paused: "dead",
    unresumable: "dead",
    dead: "same",
    unreadable: "same",
  },
};

describe("transition()", () => {
  const origins = { "nothing to resume": nothingToResume, "a saved state": withSaved, workspace };
  for (const [name, origin] of Object.entries(origins)) {
    for (const event of Object.values(events)) {
      test(`follows the table for ${event.type} with origin: ${name}`, () => {
        for (const state of Object.values(statesFrom(origin))) {
          const expected = table[event.type][state.kind];
          const when = `${state.kind}, ${event.type}`;
          assert.equal(legalIn[event.type].includes(state.kind), expected !== "-", when);
          if (expected === "-") {
            assert.throws(() => transition(state, event), { code: "internal" }, when);
            continue;
          }
          const before = structuredClone({ ...state, error: undefined });
          const next = transition(state, event);
          assert.deepEqual({ ...state, error: undefined }, before, `${when}: the old state is changed`);
          if (expected === "same") assert.equal(next, state, when);
          else if (expected === "paused|dead")
            assert.equal(next.kind, origin === nothingToResume ? "dead" : "paused", when);
          else assert.equal(next.kind, expected, when);
        }
      });
    }
  }

  test("keeps what belongs to the next state", () => {
    const { new: fresh, running, pausing, paused } = statesFrom(withSaved);
    const attached = { machine: otherMachine, expiresAt: 200 };
    assert.deepEqual(transition(paused, events.attached), {
      kind: "running",
      origin: withSaved,
      ...attached,
    });
    assert.deepEqual(transition(running, events.pauseBegan), pausing);
    assert.deepEqual(transition(pausing, events.pauseEnded), running);
    assert.deepEqual(transition(running, events.expiryChanged), { ...running, expiresAt: 300 });
    assert.deepEqual(transition(pausing, events.paused), {
      kind: "paused",
      origin: { ...withSaved, saved: savedNow },
      loss: undefined,
    });
    assert.deepEqual(transition(running, events.machineEnded), { kind: "paused", origin: withSaved, loss });
    assert.deepEqual(transition(fresh, events.machineAbsent), { kind: "paused", origin: withSaved, loss });
  });

  test("a rewind replaces the tag and drops the saved state together with the machine", () => {
    const { running } = statesFrom(withSaved);
    const next = transition(running, { ...events.attached, rewound: { to: "older", visited: ["id"] } });
    assert.deepEqual(next.origin, {
      snapshotTag: "older",
      saved: undefined,
      visited: ["id"],
      isWorkspace: false,
    });
    assert.equal(machineOf(next), otherMachine);
  });

  test("ignores the end of a machine that was replaced", () => {
    for (const state of Object.values(statesFrom(nothingToResume)))
      assert.equal(transition(state, { ...events.machineEnded, machine: otherMachine }), state);
  });

  test("a sandbox adopted without a machine and without a loss is paused, whatever it can start from", () => {
    for (const origin of [nothingToResume, withSaved, workspace])
      assert.deepEqual(transition(statesFrom(origin).new, { type: "machineAbsent", loss: undefined }), {
        kind: "paused",
        origin,
        loss: undefined,
      });
  });

  test("a machine that ends after it was saved loses nothing", () => {
    const reverted = transition(statesFrom(workspace).pausing, events.machineEnded);
    const paused = transition(reverted, events.paused);
    assert.equal(reasonOf(paused), undefined);
    assert.equal(paused.origin.saved, savedNow);
    assert.equal(transition(paused, events.pauseEnded), paused);
  });

  test("a dead sandbox keeps its first reason and the machine that it had", () => {
    const dead = transition(statesFrom(nothingToResume).running, events.machineEnded);
    assert.deepEqual(dead, {
      kind: "dead",
      origin: nothingToResume,
      ...loss,
      wasKilled: false,
      last: { machine, expiresAt: 100 },
    });
    assert.equal(transition(dead, events.killed), dead);
    const killed = transition(statesFrom(withSaved).running, events.killed);
    assert.equal(transition(killed, events.machineEnded), killed);
    assert.deepEqual(reasonOf(killed), { text: "killed" });
    assert.deepEqual(lastAttached(killed), { machine, expiresAt: 100 });
  });
});

describe("predicates", () => {
  const states = Object.values(statesFrom(nothingToResume));
  const kindsThat = (holds: (state: SandboxState) => boolean) => states.filter(holds).map(({ kind }) => kind);

  test("publicState() shows three states", () => {
    assert.deepEqual(Object.fromEntries(states.map((state) => [state.kind, publicState(state)])), {
      new: "paused",
      running: "running",
      pausing: "running",
      paused: "paused",
      unresumable: "paused",
      dead: "dead",
      unreadable: "dead",
    });
  });

  test("each holds in the states that it names", () => {
    assert.deepEqual(kindsThat(isDead), ["dead", "unreadable"]);
    assert.deepEqual(kindsThat(takesCalls), ["running"]);
    assert.deepEqual(kindsThat(needsResume), ["new", "pausing", "paused", "unresumable"]);
    assert.deepEqual(kindsThat(hasUnreadFiles), ["unresumable", "unreadable"]);
    assert.deepEqual(
      kindsThat((state) => machineOf(state) === machine),
      ["running", "pausing"],
    );
    assert.deepEqual(
      kindsThat((state) => lastAttached(state)?.machine === machine),
      ["running", "pausing", "dead"],
    );
    assert.deepEqual(kindsThat(wasKilled), []);
    assert.equal(wasKilled(transition(statesFrom(withSaved).paused, events.killed)), true);
  });

  test("isRestorable() holds for a sandbox with a saved state and for a workspace", () => {
    assert.deepEqual(
      [nothingToResume, withSaved, workspace].map((origin) => isRestorable(statesFrom(origin).running)),
      [false, true, true],
    );
  });

  test("reasonOf() gives the text for a person and keeps the code", () => {
    const of = (state: SandboxState) => reasonOf(state);
    const { running, paused, dead, unresumable, unreadable } = statesFrom(withSaved);
    assert.deepEqual([of(running), of(paused)], [undefined, undefined]);
    assert.deepEqual(of(dead), loss.reason);
    assert.deepEqual(of(unreadable), { text: "its record is damaged" });
    assert.deepEqual(of(unresumable), { text: `its saved state cannot be used: ${error.message}` });
    assert.deepEqual(of({ ...paused, loss }), {
      text: "its machine ended (out of memory); it can be resumed from the state that was saved",
      code: "out_of_memory",
    });
    assert.deepEqual(of({ ...statesFrom(workspace).paused, loss }), {
      text: 'its machine ended (out of memory); it can be resumed from snapshot "py"',
      code: "out_of_memory",
    });
    assert.match(of(statesFrom(workspace).paused)?.text ?? "", /lost before it was saved/);
  });

  test("lastConsole() gives the last lines of a machine that ended", () => {
    const { paused, dead, running } = statesFrom(withSaved);
    assert.deepEqual([lastConsole(dead), lastConsole({ ...paused, loss })], ["last lines", "last lines"]);
    assert.deepEqual([lastConsole(paused), lastConsole(running)], ["", ""]);
  });
});
