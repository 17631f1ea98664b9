/**
 * Progress on stderr for operations that take longer than a second: one line that is redrawn on a terminal,
 * plain lines otherwise, nothing with --quiet or --json.
 */
import { clean } from "./table.ts";

const delayMs = 1000;
const redrawMs = 200;
const eraseLine = "\r\u001b[2K";

type ProgressTarget = {
  readonly stream: { write(text: string): unknown; readonly columns?: number | undefined };
  /** Redraw one line. */
  readonly live: boolean;
  readonly silent: boolean;
};

export class Progress implements Disposable {
  readonly #target: ProgressTarget;
  readonly #startedAt = performance.now();
  readonly #timer: NodeJS.Timeout;
  #message: string;
  #shown = "";
  #isVisible = false;

  constructor(target: ProgressTarget, message: string) {
    this.#target = target;
    this.#message = clean(message);
    this.#timer = setInterval(() => this.#draw(), target.live ? redrawMs : delayMs);
    this.#timer.unref();
  }

  /** One line is redrawn, so that frequent updates add no lines. */
  get isLive(): boolean {
    return this.#target.live;
  }

  update(message: string): void {
    // The message may contain a file name of the guest.
    this.#message = clean(message);
    if (this.#isVisible || !this.#target.live) this.#draw();
  }

  /** For a message that changes often, such as a count: it is shown at most once a second, or redrawn. */
  sample(message: string): void {
    this.#message = clean(message);
  }

  [Symbol.dispose](): void {
    clearInterval(this.#timer);
    this.hide();
  }

  /** Erases the line so that another can be written; the next redraw appears below that. */
  hide(): void {
    if (this.#isVisible && this.#target.live) this.#target.stream.write(eraseLine);
    this.#isVisible = false;
  }

  #draw(): void {
    const elapsedMs = performance.now() - this.#startedAt;
    if (this.#target.silent || elapsedMs < delayMs - redrawMs / 2) return;
    this.#isVisible = true;
    if (this.#target.live) {
      const line = `${this.#message} ${(elapsedMs / 1000).toFixed(0)}s`;
      this.#target.stream.write(eraseLine + line.slice(0, (this.#target.stream.columns ?? 80) - 1));
    } else if (this.#shown !== this.#message) {
      this.#shown = this.#message;
      this.#target.stream.write(`${this.#message}\n`);
    }
  }
}
