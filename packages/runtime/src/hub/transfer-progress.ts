/** Progress of a transfer: bytes as they move, reported a few times a second. */

type HubProgress = {
  readonly step: string;
  readonly message: string;
  readonly doneBytes?: number;
  readonly totalBytes?: number;
};
export type OnHubProgress = (progress: HubProgress) => void;

const everyMs = 200;

/** Counts the bytes of one step, until it is disposed. */
export class Meter implements Disposable {
  readonly #onProgress: OnHubProgress;
  readonly #step: string;
  readonly #message: string;
  #done = 0;
  #total: number | undefined;
  #timer: NodeJS.Timeout | undefined;

  constructor(
    onProgress: OnHubProgress,
    facts: { step: string; message: string; totalBytes?: number | undefined },
  ) {
    this.#onProgress = onProgress;
    this.#step = facts.step;
    this.#message = facts.message;
    this.#total = facts.totalBytes;
    this.#report();
  }

  get doneBytes(): number {
    return this.#done;
  }

  set totalBytes(bytes: number) {
    this.#total = bytes;
  }

  readonly add = (bytes: number): void => {
    this.#done += bytes;
    this.#timer ??= setTimeout(() => this.#report(), everyMs);
  };

  /** For work that reports how far it is. */
  reach(doneBytes: number, totalBytes: number): void {
    this.#total = totalBytes;
    this.add(doneBytes - this.#done);
  }

  end(): void {
    this.#report();
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
  }

  #report(): void {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    this.#onProgress({
      step: this.#step,
      message: this.#message,
      doneBytes: this.#done,
      ...(this.#total !== undefined && { totalBytes: this.#total }),
    });
  }
}
