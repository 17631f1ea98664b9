/**
 * Bounds the look-ups that occupy threads. A look-up at a name server that does not answer occupies its thread long after
 * everyone has given up, so a slot is free only when the look-up itself has ended.
 */
import { withDeadline } from "@forkd/base";
import { AppError } from "@forkd/contract";

type Waiter = { readonly machine: string; readonly go: () => void };

export class LookupSlots {
  readonly #limits: { readonly perMachine: number; readonly inAll: number };
  readonly #taken = new Map<string, number>();
  readonly #waiters = new Set<Waiter>();
  #inAll = 0;

  constructor(limits: { perMachine: number; inAll: number }) {
    this.#limits = limits;
  }

  /** Returns what releases the slot. Rejects with AppError capacity_exhausted if there is none in time. */
  async take(machine: string, deadlineMs: number): Promise<() => void> {
    if (this.#isFree(machine)) this.#occupy(machine);
    else await this.#wait(machine, deadlineMs);
    let isTaken = true;
    return () => {
      if (isTaken) this.#release(machine);
      isTaken = false;
    };
  }

  async #wait(machine: string, deadlineMs: number): Promise<void> {
    let waiter: Waiter | undefined;
    const turn = new Promise<void>((resolve) => {
      waiter = { machine, go: resolve };
      this.#waiters.add(waiter);
    });
    const late = () => {
      if (waiter) this.#waiters.delete(waiter);
      return new AppError("capacity_exhausted", "Too many names are being resolved");
    };
    await withDeadline(turn, deadlineMs, late);
  }

  #isFree(machine: string): boolean {
    return this.#inAll < this.#limits.inAll && (this.#taken.get(machine) ?? 0) < this.#limits.perMachine;
  }

  #occupy(machine: string): void {
    this.#inAll++;
    this.#taken.set(machine, (this.#taken.get(machine) ?? 0) + 1);
  }

  #release(machine: string): void {
    this.#inAll--;
    const left = (this.#taken.get(machine) ?? 0) - 1;
    if (left > 0) this.#taken.set(machine, left);
    else this.#taken.delete(machine);
    for (const waiter of this.#waiters) {
      if (!this.#isFree(waiter.machine)) continue;
      this.#waiters.delete(waiter);
      this.#occupy(waiter.machine);
      waiter.go();
      return;
    }
  }
}
