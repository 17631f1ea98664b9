/**
 * One eval from request to answer: its timeout, its cancellation and the resulting interrupts.
 *
 * The timeout starts when the eval runs, not when it is requested. Interrupts repeat until the eval ends,
 * because the code may catch one, and an interrupt has no effect before the kernel starts the eval.
 */
import { createDeferred, maxTimerMs } from "@forkd/base";
import { AppError } from "@forkd/contract";
import type { KernelDisplay, UncheckedDisplay } from "./display.ts";
import type { KernelMessage } from "./messages.ts";
import type { TakenOutput } from "./stray-output.ts";
import type { KernelValue } from "./value.ts";

export const interruptEveryMs = 1_000;

export interface EvalOptions {
  readonly code: string;
  readonly context: string;
  /** variables for this eval */
  readonly env?: Readonly<Record<string, string>>;
  /** 0 = none */
  readonly timeoutMs?: number;
  readonly signal?: AbortSignal;
  /** a promise delays further output until it resolves */
  readonly onOutput?: (stream: 1 | 2, bytes: Buffer) => void | Promise<void>;
  /** a promise if the check of the result takes long; it rejects if the kernel sent garbage */
  readonly onDisplay?: (display: KernelDisplay | Promise<KernelDisplay>) => void;
  /**
   * Counts the bytes of the value while it arrives. If it throws, the value is dropped and the call rejects; a
   * displayed result is only left out.
   */
  readonly hold?: (bytes: number) => void;
}

export type EvalAnswer = KernelValue & {
  readonly timedOut: boolean;
  /** bytes of output since the eval before that were not kept */
  readonly lostOutputBytes?: number;
};
export type EvalOutcome = Omit<EvalAnswer, "uncheckedJson">;

/** A message to the kernel and its callbacks. */
export interface KernelRequest {
  readonly id: number;
  readonly isEval: boolean;
  /** of an eval */
  readonly context?: string;
  readonly message: Buffer;
  onAnswer(message: KernelMessage): void;
  onFailure(error: AppError): void;
  /** The kernel starts to handle this message. */
  onRunning?(): void;
  onOutput?(stream: 1 | 2, bytes: Buffer): void | Promise<void>;
  /** undefined: there was no room for it */
  onDisplay?(display: UncheckedDisplay | undefined): void;
  /** Whether so many more bytes of the answer, or of a result before it, may be kept; default: yes. */
  room?(bytes: number, isDisplay: boolean): boolean;
}

interface EvalHost {
  readonly graceMs: number;
  interrupt(): void;
  isRunning(request: KernelRequest): boolean;
  /** Takes back a message that was not sent; false if it was. */
  withdraw(request: KernelRequest): boolean;
  giveUp(reason: AppError): void;
  /** The output since the eval before. */
  takeStray(): TakenOutput;
  check(display: UncheckedDisplay): KernelDisplay | Promise<KernelDisplay>;
}

export function createEvalRequest(
  id: number,
  message: Buffer,
  options: EvalOptions,
  host: EvalHost,
): { request: KernelRequest; outcome: Promise<EvalAnswer> } {
  const done = createDeferred<EvalAnswer>();
  const lifetime = new AbortController();
  const timers: NodeJS.Timeout[] = [];
  let timedOut = false;
  let stopReason: Error | undefined;
  let stopping = false;
  let noRoom: Error | undefined;
  let hasStray = false;
  let lostOutputBytes = 0;
  let droppedDisplays = 0;

  const finish = (settle: () => void): void => {
    lifetime.abort();
    for (const timer of timers) clearTimeout(timer);
    settle();
  };
  const interruptNow = (): void => {
    host.interrupt();
    timers.push(setInterval(() => host.interrupt(), interruptEveryMs));
    const reason = `Code did not stop within ${host.graceMs} ms of an interrupt, so its interpreter was killed`;
    timers.push(setTimeout(() => host.giveUp(new AppError("kernel_failed", reason)), host.graceMs));
  };
  const stop = (reason: Error | undefined): void => {
    stopReason ??= reason;
    if (stopping) return;
    stopping = true;
    if (stopReason && host.withdraw(request))
      return finish(() => done.reject(stopReason ?? evalCancelled(undefined)));
    if (host.isRunning(request)) interruptNow();
  };
  const deliver = (stream: 1 | 2, bytes: Buffer): void | Promise<void> => {
    // A failing consumer ends its own eval, not the kernel.
    if (stopReason) return;
    try {
      return options.onOutput?.(stream, bytes)?.catch((error: unknown) => stop(toError(error)));
    } catch (error) {
      stop(toError(error));
    }
  };
  const deliverStray = (): void => {
    if (hasStray) return;
    hasStray = true;
    const { pieces, lostBytes } = host.takeStray();
    lostOutputBytes = lostBytes;
    for (const { stream, bytes } of pieces) void deliver(stream, bytes);
  };
  const request: KernelRequest = {
    id,
    isEval: true,
    context: options.context,
    message,
    onRunning() {
      deliverStray();
      if (stopping) interruptNow();
      if (!options.timeoutMs) return;
      const onTimeout = (): void => {
        timedOut = true;
        stop(undefined);
      };
      timers.push(setTimeout(onTimeout, Math.min(options.timeoutMs, maxTimerMs)));
    },
    onOutput(stream, bytes) {
      deliverStray();
      return deliver(stream, bytes);
    },
    onDisplay(display) {
      deliverStray();
      if (!display) droppedDisplays++;
      if (!display || stopReason) return;
      try {
        options.onDisplay?.(host.check(display));
      } catch (error) {
        stop(toError(error));
      }
    },
    room(bytes, isDisplay) {
      if (stopReason) return false;
      try {
        options.hold?.(bytes);
        return true;
      } catch (error) {
        if (!isDisplay) noRoom = toError(error);
        return false;
      }
    },
    onAnswer(answer) {
      finish(() => {
        const failure = stopReason ?? noRoom;
        if (failure) done.reject(failure);
        else if (answer.type === "V")
          done.resolve({
            ...withDropped(answer.value, droppedDisplays),
            timedOut,
            ...(lostOutputBytes > 0 && { lostOutputBytes }),
          });
        else
          done.reject(
            new AppError("guest_refused", `Cannot evaluate: ${answer.type === "Z" ? answer.text : ""}`),
          );
      });
    },
    onFailure(error) {
      finish(() => done.reject(error));
    },
  };
  const onAbort = (): void => stop(evalCancelled(options.signal?.reason));
  options.signal?.addEventListener("abort", onAbort, { signal: lifetime.signal });
  return { request, outcome: done.promise };
}

/** Adds results that the host left out to those that the kernel did. */
export function withDropped(value: KernelValue, dropped: number): KernelValue {
  const droppedResults = (value.droppedResults ?? 0) + dropped;
  return droppedResults > 0 ? { ...value, droppedResults } : value;
}

export function evalCancelled(cause: unknown): AppError {
  return new AppError("cancelled", "Eval was cancelled", { cause });
}

function toError(error: unknown): Error {
  return error instanceof Error ? error : new Error(String(error));
}
