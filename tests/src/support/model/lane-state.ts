/**
 * What a lane knows: its sandboxes and snapshots, and every state that each may be in. `settle` asks the daemon
 * which of them it is after a fault, and fails on any other.
 */
import assert from "node:assert/strict";
import { ForkdError, type Sandbox } from "@forkd/sdk";
import { until } from "@forkd/test-support";
import { emptyChain, look, type Chain } from "./ledger.ts";
import { baseTag, type Moment, type World } from "./world.ts";

const maxAttempts = 600;

export type Known = {
  id: string;
  phase: "running" | "paused";
  /** what the guest may hold now */
  states: Chain[];
  /** what it may hold after it has lost its machine; undefined: nothing was saved */
  saved: Chain[] | undefined;
  /** a pause or a rewind was cut short, so that `saved` may not be there */
  mayLackSaved: boolean;
  /** outcomes that a failed operation may have had */
  may: Set<"gone" | "paused" | "running" | "lost">;
  /** its disk may have failed since this moment */
  since: Moment;
};

export function union(...sets: (readonly Chain[] | undefined)[]): Chain[] {
  return [...new Set(sets.flatMap((set) => set ?? []))];
}

export class LaneState {
  readonly sandboxes = new Map<string, Known>();
  /** what each tag holds; `isSure` is false for one that may not be there */
  readonly tags = new Map<string, { states: Chain[]; isSure: boolean }>();
  readonly #world: World;
  readonly #name: string;

  constructor(world: World, name: string) {
    this.#world = world;
    this.#name = name;
  }

  get(known: Known): Promise<Sandbox> {
    return this.#world.forkd.sandboxes.get(known.id);
  }

  statesOf(tag: string): Chain[] {
    return tag === baseTag ? [emptyChain] : (this.tags.get(tag)?.states ?? []);
  }

  async check(known: Known): Promise<void> {
    const chain = await look(await this.get(known));
    const allowed = known.states.join(" or ");
    assert.ok(known.states.includes(chain), `${known.id} holds ${chain} and must hold ${allowed}`);
    known.states = [chain];
  }

  /** Compares what the daemon has with what the model allows, and removes what no caller has received. */
  async settle(): Promise<void> {
    for (let attempt = 0; ; attempt++) {
      await this.#world.up();
      const moment = this.#world.now;
      try {
        await this.#settleSandboxes(moment);
        await this.#settleTags();
        return;
      } catch (error) {
        if (!this.#world.excuses(error, moment) || attempt >= maxAttempts) throw error;
        // The fault may last: the disk is full for some seconds.
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
    }
  }

  async #settleSandboxes(moment: Moment): Promise<void> {
    const listed = await this.#world.forkd.sandboxes.list({ label: `lane=${this.#name}` }).all();
    for (const { id } of listed) if (!this.sandboxes.has(id)) await this.#world.forkd.sandboxes.kill(id);
    for (const known of [...this.sandboxes.values()]) await this.#settleSandbox(known, moment);
  }

  async #settleSandbox(known: Known, moment: Moment): Promise<void> {
    const info = await this.get(known).then(
      (sandbox) => sandbox.info,
      (error: unknown) => {
        const isGone = error instanceof ForkdError && error.code === "sandbox_not_found";
        if (!isGone || !known.may.has("gone")) throw error as Error;
        return undefined;
      },
    );
    if (!info) return void this.sandboxes.delete(known.id);
    const hadTrouble = this.#world.diskWasFull(known.since);
    if (info.state === "dead") {
      const isFair =
        (known.may.has("lost") && (known.saved === undefined || known.mayLackSaved)) || hadTrouble;
      assert.ok(isFair, `${known.id} is dead: ${info.reason}`);
      return this.drop(known);
    }
    if (info.state === "paused" && known.phase === "running") {
      const isLost = known.may.has("lost") || hadTrouble;
      assert.ok(isLost || known.may.has("paused"), `${known.id} is paused: ${info.reason}`);
      known.states = union(known.saved, known.may.has("paused") ? known.states : []);
    } else if (info.state === "running" && known.phase === "paused") {
      assert.ok(known.may.has("running"), `${known.id} runs and must be paused`);
    }
    known.phase = info.state === "paused" ? "paused" : "running";
    known.may.clear();
    if (known.phase === "running") await this.#checkDisk(known, moment, hadTrouble);
  }

  /** A guest whose disk failed while the host had no space is of no use any more. */
  async #checkDisk(known: Known, moment: Moment, hadTrouble: boolean): Promise<void> {
    try {
      await this.check(known);
      known.since = moment;
    } catch (error) {
      if (!hadTrouble || this.#world.daemonWasKilled(moment)) throw error;
      if (error instanceof ForkdError && !this.#world.excuses(error, known.since)) throw error;
      this.#world.note("guest disk failed", known.id);
      await this.drop(known);
    }
  }

  async drop(known: Known): Promise<void> {
    known.may.add("gone");
    await this.#world.forkd.sandboxes.kill(known.id);
    this.sandboxes.delete(known.id);
  }

  async #settleTags(): Promise<void> {
    const listed = await this.#world.forkd.snapshots.list().all();
    const mine = listed.filter(({ tag }) => tag.startsWith(`${this.#name}-`));
    for (const [tag, { isSure }] of this.tags) {
      const found = mine.find((each) => each.tag === tag);
      if (found?.status === "ready") continue;
      assert.ok(!isSure, `snapshot ${tag} is ${found?.status ?? "gone"}: ${found?.warning}`);
      if (found?.status === "writing") await until("it is written", () => this.#isWritten(tag));
      this.tags.delete(tag);
    }
    for (const { tag } of mine) if (!this.tags.has(tag)) await this.#remove(tag);
    for (const outcome of this.tags.values()) outcome.isSure = true;
  }

  /** One that could not be written may be gone already. */
  async #remove(tag: string): Promise<void> {
    try {
      await this.#world.forkd.snapshots.remove(tag);
    } catch (error) {
      if (!(error instanceof ForkdError && error.code === "snapshot_not_found")) throw error;
    }
  }

  async #isWritten(tag: string): Promise<boolean> {
    const found = (await this.#world.forkd.snapshots.list().all()).find((each) => each.tag === tag);
    return found?.status !== "writing";
  }
}
