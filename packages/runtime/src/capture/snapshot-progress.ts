/** What listeners are told about a snapshot that is being written: that it began, and once how it ended. */
import type { EventBus } from "../observe/events.ts";

export class SnapshotProgress {
  readonly #events: EventBus;
  readonly #tag: string;
  readonly #sandbox: string;
  #state: "new" | "writing" | "told" = "new";
  #isReady = false;
  /** why it could not be written */
  reason = "it was given up";

  constructor(events: EventBus, tag: string, sandbox: string) {
    this.#events = events;
    this.#tag = tag;
    this.#sandbox = sandbox;
  }

  writing(): void {
    this.#state = "writing";
    this.#events.snapshot("snapshot.writing", this.#tag, { status: "writing", sandbox: this.#sandbox });
  }

  /** It is published. */
  succeeded(): void {
    this.#isReady = true;
  }

  /** To be called when the list tells the same. */
  tell(): void {
    if (this.#state !== "writing") return;
    this.#state = "told";
    const sandbox = this.#sandbox;
    if (this.#isReady) this.#events.snapshot("snapshot.ready", this.#tag, { status: "ready", sandbox });
    else
      this.#events.snapshot("snapshot.failed", this.#tag, { status: "failed", sandbox, reason: this.reason });
  }
}
