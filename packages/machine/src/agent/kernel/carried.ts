/**
 * An eval that was in progress in the source of a branch. Its caller has the source; here it has no reader
 * until one follows it. What it writes and displays meanwhile is kept, as far as it fits; the oldest goes
 * first. Its outcome is kept, too.
 */
import { createDeferred } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { withDropped, type EvalAnswer, type EvalOptions, type KernelRequest } from "./eval.ts";
import type { KernelDisplay, UncheckedDisplay } from "./display.ts";
import type { KernelMessage } from "./messages.ts";

const keptBytes = 1024 * 1024;
const keptPieces = 1000;
const joinedBytes = 64 * 1024;
const keptValueBytes = 2 * 1024 * 1024;

export type EvalReader = Pick<EvalOptions, "onOutput" | "onDisplay" | "hold">;

type Display = KernelDisplay | Promise<KernelDisplay>;
type Kept = { stream: 1 | 2; bytes: Buffer } | { display: Display; size: number };
type Check = (display: UncheckedDisplay) => Display;

/** Where an eval stands that a snapshot carries. */
export interface RunningEval {
  readonly id: number;
  readonly context: string;
}

export class CarriedEval implements KernelRequest {
  readonly id: number;
  readonly context: string;
  readonly isEval = true;
  readonly message = Buffer.alloc(0);
  readonly #check: Check;
  readonly #done = createDeferred<EvalAnswer>();
  #kept: Kept[] = [];
  #bytes = 0;
  #valueBytes = 0;
  #lostBytes = 0;
  #dropped = 0;
  #reader: EvalReader | undefined;
  #isFinished = false;

  constructor({ id, context }: RunningEval, check: Check) {
    this.id = id;
    this.context = context;
    this.#check = check;
    // Most evals are never followed.
    this.#done.promise.catch(() => undefined);
  }

  get isFinished(): boolean {
    return this.#isFinished;
  }

  get isFollowed(): boolean {
    return this.#reader !== undefined;
  }

  /** Gives the reader what was kept, and everything from now on. One reader at a time. */
  follow(reader: EvalReader): { outcome: Promise<EvalAnswer>; leave: () => void } {
    this.#reader = reader;
    const kept = this.#kept;
    this.#kept = [];
    this.#bytes = 0;
    for (const each of kept) {
      if ("stream" in each) void reader.onOutput?.(each.stream, each.bytes);
      else reader.onDisplay?.(each.display);
    }
    const leave = () => {
      if (this.#reader === reader) this.#reader = undefined;
    };
    return { outcome: this.#done.promise, leave };
  }

  onOutput(stream: 1 | 2, bytes: Buffer): void | Promise<void> {
    if (this.#reader) return this.#reader.onOutput?.(stream, bytes);
    const last = this.#kept.at(-1);
    // Joined, so that a guest that sends single bytes does not cost an object for each.
    if (last && "stream" in last && last.stream === stream && last.bytes.length + bytes.length <= joinedBytes)
      last.bytes = Buffer.concat([last.bytes, bytes]);
    else this.#kept.push({ stream, bytes: Buffer.from(bytes) });
    this.#keep(bytes.length);
  }

  onDisplay(unchecked: UncheckedDisplay | undefined): void {
    if (!unchecked) return void this.#dropped++;
    const display = this.#check(unchecked);
    if (this.#reader) return this.#reader.onDisplay?.(display);
    const size = sizeOf(unchecked);
    this.#kept.push({ display, size });
    this.#keep(size);
  }

  room(bytes: number, isDisplay: boolean): boolean {
    if (this.#reader?.hold) {
      try {
        this.#reader.hold(bytes);
        return true;
      } catch {
        return false;
      }
    }
    if (isDisplay) return bytes <= keptBytes;
    this.#valueBytes += bytes;
    return this.#valueBytes <= keptValueBytes;
  }

  onAnswer(answer: KernelMessage): void {
    this.#isFinished = true;
    const lost = this.#lostBytes;
    if (answer.type === "V")
      this.#done.resolve({
        ...withDropped(answer.value, this.#dropped),
        timedOut: false,
        ...(lost > 0 && { lostOutputBytes: lost }),
      });
    else this.#done.reject(notKept());
  }

  onFailure(error: AppError): void {
    this.#isFinished = true;
    this.#done.reject(error);
  }

  #keep(added: number): void {
    this.#bytes += added;
    while (this.#bytes > keptBytes || this.#kept.length > keptPieces) {
      const oldest = this.#kept.shift();
      if (!oldest) return;
      if ("stream" in oldest) {
        this.#bytes -= oldest.bytes.length;
        this.#lostBytes += oldest.bytes.length;
      } else {
        this.#bytes -= oldest.size;
        this.#dropped++;
      }
    }
  }
}

function sizeOf({ forms, unchecked }: UncheckedDisplay): number {
  const texts = Object.values(forms).map((form) =>
    typeof form === "string" ? form.length : form.text.length,
  );
  const waiting = [...unchecked.values()].map(({ length }) => length);
  return [...texts, ...waiting].reduce((sum, length) => sum + length, 0);
}

function notKept(): AppError {
  return new AppError("capacity_exhausted", "The result of the eval was not kept: it was too large", {
    details: { limit: keptValueBytes },
  });
}
