/**
 * One user of a daemon: makes sandboxes and snapshots at random and knows what each must hold. Operations of
 * one lane follow each other; lanes run at the same time.
 *
 * Before an operation the model allows every outcome that it can have; its success leaves one. If a fault of
 * the world ended the operation, the daemon is asked which outcome it was.
 */
import assert from "node:assert/strict";
import { ForkdError } from "@forkd/sdk";
import { until } from "@forkd/test-support";
import type { Random } from "../random.ts";
import { processExists } from "../sandboxes.ts";
import { LaneState, union, type Known } from "./lane-state.ts";
import { put, withLink } from "./ledger.ts";
import { baseTag, type World } from "./world.ts";

const modes = ["live", "diff", "full"] as const;
const maxSandboxes = 3;
const maxTags = 4;
const daySecs = 86_400;

export class Lane {
  readonly #world: World;
  readonly #random: Random;
  readonly #name: string;
  readonly #state: LaneState;
  #count = 0;

  constructor(world: World, random: Random, name: string) {
    this.#world = world;
    this.#random = random;
    this.#name = name;
    this.#state = new LaneState(world, name);
  }

  /** One operation, and what the faults during it left to be found out. */
  async step(): Promise<void> {
    await this.#world.up();
    const moment = this.#world.now;
    const [name, run] = this.#choose();
    this.#world.note(name, this.#name);
    try {
      await run();
      if (!this.#world.diskWasFull(moment) && !this.#world.daemonWasKilled(moment)) return;
    } catch (error) {
      if (!this.#world.excuses(error, moment)) throw new Error(`${this.#name}: ${name}`, { cause: error });
      this.#world.note(
        "excused",
        `${this.#name} ${error instanceof ForkdError ? error.code : String(error)}`,
      );
    }
    await this.#state.settle();
  }

  /** Everything that this lane knows is there, and holds what it must. */
  async settle(): Promise<void> {
    await this.#state.settle();
    for (const known of this.#state.sandboxes.values()) {
      if (known.phase === "paused") await this.#resume(known);
      await this.#state.check(known);
    }
  }

  get #forkd() {
    return this.#world.forkd;
  }

  #choose(): [string, () => Promise<void>] {
    const running = [...this.#state.sandboxes.values()].filter(({ phase }) => phase === "running");
    const paused = [...this.#state.sandboxes.values()].filter(({ phase }) => phase === "paused");
    if (this.#state.sandboxes.size === 0) return ["fork", () => this.#fork()];
    if (this.#state.tags.size > maxTags) return ["rmi", () => this.#removeTag()];
    const choices: [weight: number, name: string, run: () => Promise<void>][] = [];
    if (running.length > 0) {
      const one = this.#random.pick(running);
      choices.push(
        [30, "put", () => this.#put(one)],
        [5, "look", () => this.#state.check(one)],
        [12, "branch", () => this.#branch(one)],
        [5, "put during branch", () => this.#putDuringBranch(one)],
        [8, "pause", () => this.#pause(one)],
        [6, "rewind", () => this.#rewind(one)],
        [3, "kill", () => this.#kill(one)],
        [4, "lose machine", () => this.#loseMachine(one)],
        [4, "lose machine during branch", () => this.#loseMachineDuringBranch(one)],
        [4, "stop machine", () => this.#stopMachine(one)],
        [3, "set guest clock", () => this.#setGuestClock(one)],
      );
    }
    if (paused.length > 0) choices.push([15, "resume", () => this.#resume(this.#random.pick(paused))]);
    if (this.#state.sandboxes.size < maxSandboxes) choices.push([10, "fork", () => this.#fork()]);
    if (this.#state.tags.size > 0) {
      choices.push([4, "rmi", () => this.#removeTag()], [3, "compact", () => this.#compact()]);
    }
    choices.push([2, "gc", async () => void (await this.#forkd.gc())]);
    let at = this.#random.next() * choices.reduce((sum, [weight]) => sum + weight, 0);
    for (const [weight, name, run] of choices) if ((at -= weight) < 0) return [name, run];
    return ["gc", async () => void (await this.#forkd.gc())];
  }

  #newTag(): string {
    return `${this.#name}-${++this.#count}`;
  }

  #pickTag(): string {
    const sure = [...this.#state.tags].filter(([, { isSure }]) => isSure).map(([tag]) => tag);
    return this.#random.pick([baseTag, ...sure]);
  }

  async #fork(): Promise<void> {
    const tag = this.#pickTag();
    const states = this.#state.statesOf(tag);
    const moment = this.#world.now;
    const child = await this.#forkd.create(tag, { labels: { lane: this.#name } });
    const known: Known = {
      id: child.id,
      phase: "running",
      states: [...states],
      saved: undefined,
      mayLackSaved: false,
      may: new Set(),
      since: moment,
    };
    this.#state.sandboxes.set(child.id, known);
    await this.#state.check(known);
  }

  async #put(known: Known): Promise<void> {
    const token = BigInt(Math.floor(this.#random.next() * 2 ** 48));
    const before = known.states;
    known.states = union(
      before,
      before.map((chain) => withLink(chain, token)),
    );
    const chain = await put(await this.#state.get(known), token);
    assert.ok(
      before.some((one) => withLink(one, token) === chain),
      `${known.id} holds ${chain} after a link to ${before.join(" or ")}`,
    );
    known.states = [chain];
  }

  async #branch(known: Known, { check = true } = {}): Promise<void> {
    const tag = this.#newTag();
    const mode = this.#random.pick(modes);
    const wait = this.#random.chance(0.7);
    const states = [...known.states];
    this.#state.tags.set(tag, { states, isSure: false });
    await (await this.#state.get(known)).branch({ tag, mode, wait });
    if (!wait) await this.#forkd.snapshots.ready(tag);
    this.#state.tags.set(tag, { states, isSure: true });
    if (check) await this.#state.check(known);
  }

  /** The branch has the link or not; the sandbox has it. */
  async #putDuringBranch(known: Known): Promise<void> {
    const tag = this.#newTag();
    const before = [...known.states];
    const outcome = { states: before, isSure: false };
    this.#state.tags.set(tag, outcome);
    const sandbox = await this.#state.get(known);
    const putting = this.#put(known);
    outcome.states = union(before, known.states);
    const [branched, added] = await Promise.allSettled([
      sandbox.branch({ tag, mode: this.#random.pick(modes) }),
      putting,
    ]);
    if (branched.status === "rejected") throw branched.reason;
    if (added.status === "rejected") throw added.reason;
    outcome.isSure = true;
  }

  async #pause(known: Known): Promise<void> {
    known.may.add("paused");
    known.mayLackSaved ||= known.saved === undefined;
    known.saved = union(known.saved, known.states);
    await (await this.#state.get(known)).pause();
    known.phase = "paused";
    known.saved = [...known.states];
    known.mayLackSaved = false;
    known.may.clear();
  }

  async #resume(known: Known): Promise<void> {
    known.may.add("running");
    await (await this.#state.get(known)).resume();
    known.phase = "running";
    known.may.clear();
    await this.#state.check(known);
  }

  async #rewind(known: Known): Promise<void> {
    const tag = this.#pickTag();
    const target = this.#state.statesOf(tag);
    const before = [...known.states];
    const couldLackSaved = known.mayLackSaved;
    known.states = union(before, target);
    known.mayLackSaved = true;
    try {
      await (await this.#state.get(known)).rewind(tag);
    } catch (error) {
      // Neither an ancestor nor a branch of it.
      if (!(error instanceof ForkdError) || !["invalid_request", "wrong_state"].includes(error.code))
        throw error;
      known.states = before;
      known.mayLackSaved = couldLackSaved;
      return;
    }
    known.states = [...target];
    known.saved = undefined;
    known.mayLackSaved = false;
    await this.#state.check(known);
  }

  async #kill(known: Known): Promise<void> {
    known.may.add("gone");
    await (await this.#state.get(known)).kill();
    this.#state.sandboxes.delete(known.id);
  }

  async #removeTag(): Promise<void> {
    const tag = this.#random.pick([...this.#state.tags.keys()]);
    const outcome = this.#state.tags.get(tag);
    if (!outcome) return;
    outcome.isSure = false;
    try {
      await this.#forkd.snapshots.remove(tag);
      this.#state.tags.delete(tag);
    } catch (error) {
      if (!(error instanceof ForkdError) || error.code !== "snapshot_in_use") throw error;
      outcome.isSure = true;
      // Its users are in the way of it for ever otherwise.
      const known = this.#random.pick([...this.#state.sandboxes.values()]);
      if (this.#state.tags.size > maxTags && known) await this.#kill(known);
    }
  }

  async #compact(): Promise<void> {
    const from = this.#pickTag();
    const to = this.#newTag();
    const states = [...this.#state.statesOf(from)];
    this.#state.tags.set(to, { states, isSure: false });
    await this.#forkd.snapshots.compact(from, to);
    this.#state.tags.set(to, { states, isSure: true });
  }

  /** Its VMM is killed: it returns to what was saved, or it is dead. */
  async #loseMachine(known: Known): Promise<void> {
    if (known.saved === undefined && this.#random.chance(0.7)) {
      await this.#pause(known);
      await this.#resume(known);
      await this.#put(known);
    }
    await this.#killMachine(known);
    await until(
      "the daemon has noticed",
      async () => (await this.#state.get(known)).info.state !== "running",
    );
    await this.#state.settle();
  }

  async #loseMachineDuringBranch(known: Known): Promise<void> {
    const branching = this.#branch(known, { check: false }).then(
      () => undefined,
      (error: unknown) => error,
    );
    await new Promise((resolve) => setTimeout(resolve, this.#random.below(150)));
    await this.#killMachine(known);
    const error = await branching;
    const codes = ["engine_failed", "agent_unreachable", "sandbox_dead", "sandbox_paused", "wrong_state"];
    if (error !== undefined && !(error instanceof ForkdError && codes.includes(error.code)))
      throw error as Error;
    await until(
      "the daemon has noticed",
      async () => (await this.#state.get(known)).info.state !== "running",
    );
    await this.#state.settle();
  }

  async #killMachine(known: Known): Promise<void> {
    const { pid } = (await this.#state.get(known)).info;
    known.may.add("lost");
    if (pid === undefined) return;
    process.kill(pid, "SIGKILL");
    await until("its VMM has ended", () => !processExists(pid));
  }

  /** Back or forth by days. Commands in the guest continue; a branch or a resume sets the clock again. */
  async #setGuestClock(known: Known): Promise<void> {
    const offset = (this.#random.below(5) - 2) * daySecs;
    const time = Math.floor(Date.now() / 1000) + offset;
    const sandbox = await this.#state.get(known);
    await sandbox.commands.run(["date", "-s", `@${time}`], { check: true, timeoutMs: 60_000 });
    await this.#put(known);
  }

  /** Its VMM is stopped for a moment, during a branch or a link. */
  async #stopMachine(known: Known): Promise<void> {
    const { pid } = (await this.#state.get(known)).info;
    if (pid === undefined) return;
    process.kill(pid, "SIGSTOP");
    const work = this.#random.chance(0.5) ? this.#branch(known) : this.#put(known);
    work.catch(() => undefined);
    await new Promise((resolve) => setTimeout(resolve, 200 + this.#random.below(1000)));
    if (processExists(pid)) process.kill(pid, "SIGCONT");
    await work;
  }
}
