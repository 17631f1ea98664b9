/** Log entries for one reader. A reader that is too slow loses the oldest ones. */
import { Wakeup } from "@forkd/base";
import type { LogEntry } from "../types.ts";

const maxWaiting = 1000;

export class Follower {
  #entries: LogEntry[] = [];
  #lost = 0;
  readonly #wakeup = new Wakeup();
  #isEnded = false;

  push(entry: LogEntry): void {
    this.#entries.push(entry);
    if (this.#entries.length > maxWaiting) {
      this.#entries.shift();
      this.#lost++;
    }
    this.#wakeup.notify();
  }

  end(): void {
    this.#isEnded = true;
    this.#wakeup.notify();
  }

  async *entries(): AsyncGenerator<LogEntry, undefined> {
    for (;;) {
      const [next] = this.#entries.splice(0, 1);
      if (next) {
        const lost = this.#lost;
        this.#lost = 0;
        yield lost > 0 ? { ...next, suppressed: (next.suppressed ?? 0) + lost } : next;
      } else if (this.#isEnded) return;
      else await this.#wakeup.wait();
    }
  }
}
