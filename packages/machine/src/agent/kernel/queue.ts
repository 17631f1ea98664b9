/**
 * Messages to a kernel in order: waiting ones, and sent ones without an answer.
 *
 * Short messages do not wait for each other. After an eval, nothing is sent until its answer arrives.
 */
import type { AppError } from "@forkd/contract";
import { kernelBounds } from "../bounds.ts";
import type { KernelRequest } from "./eval.ts";
import { KernelGarbage } from "./garbage.ts";
import type { KernelMessage } from "./messages.ts";

type Answer = Exclude<KernelMessage, { type: "Y" }>;
type Display = Extract<Answer, { type: "O" }>;

export class KernelQueue {
  readonly #send: (message: Buffer) => void;
  #waiting: KernelRequest[] = [];
  #sent: KernelRequest[];
  #failure: AppError | undefined;
  /** results of the first sent message */
  #displays = { count: 0, bytes: 0 };

  /**
   * `unanswered` messages were sent before a snapshot: their answers and output are ignored, except those of
   * the eval that the snapshot `carried`.
   */
  constructor(unanswered: readonly number[], send: (message: Buffer) => void, carried?: KernelRequest) {
    this.#send = send;
    this.#sent = unanswered.map((id) =>
      id === carried?.id
        ? carried
        : {
            id,
            isEval: true,
            message: Buffer.alloc(0),
            onAnswer: () => undefined,
            onFailure: () => undefined,
            room: () => false,
          },
    );
  }

  get unanswered(): number[] {
    return this.#sent.map(({ id }) => id);
  }

  /** The message that the kernel handles now. */
  get running(): KernelRequest | undefined {
    return this.#sent[0];
  }

  /** The eval in progress, at most one. Output of after-fork callbacks before it counts as its output. */
  get eval(): KernelRequest | undefined {
    return this.#sent.find(({ isEval }) => isEval);
  }

  submit(request: KernelRequest): void {
    if (this.#failure) return request.onFailure(this.#failure);
    this.#waiting.push(request);
    this.#pump();
  }

  /** Takes back a message that was not sent; false if it was. */
  withdraw(request: KernelRequest): boolean {
    const before = this.#waiting.length;
    this.#waiting = this.#waiting.filter((other) => other !== request);
    return this.#waiting.length < before;
  }

  /** Whether so many more bytes of the answer to `id` may be kept. An answer that is not pending has no reader. */
  hasRoom(id: number, bytes: number, isDisplay: boolean): boolean {
    const request = this.#sent[0];
    return request?.id === id && (request.room?.(bytes, isDisplay) ?? true);
  }

  /** False if no sent message has that id. Throws KernelGarbage if the type does not match the message. */
  answer(message: Answer): boolean {
    const request = this.#sent[0];
    if (request?.id !== message.id) return false;
    if (message.type === "O") return this.#display(request, message);
    if (message.type === "dropped" && message.isDisplay) {
      this.#display(request, undefined);
      return true;
    }
    // The type of a message from before a snapshot is unknown here, so any answer to it fits.
    const isAnyType = message.type === "Z" || message.type === "dropped" || request.message.length === 0;
    const fits = isAnyType || (message.type === "V") === request.isEval;
    if (!fits) throw new KernelGarbage(`"${message.type}" as an answer`);
    this.#sent.shift();
    this.#displays = { count: 0, bytes: 0 };
    request.onAnswer(message);
    this.#sent[0]?.onRunning?.();
    this.#pump();
    return true;
  }

  /** A kernel keeps to the bounds; code that writes to its socket may not. */
  #display(request: KernelRequest, message: Display | undefined): true {
    if (!request.isEval) throw new KernelGarbage("result of a message other than an eval");
    this.#displays.count++;
    this.#displays.bytes += message?.bytes ?? 0;
    const { count, bytes } = this.#displays;
    // One more than the kernel's own limit counts, for the value of the last expression.
    if (count > kernelBounds.displays + 1 || bytes > kernelBounds.displaysBytes + kernelBounds.displayBytes)
      throw new KernelGarbage("too many results");
    request.onDisplay?.(message?.display);
    return true;
  }

  /** Fails all messages in the queue and all later ones. */
  fail(error: AppError): void {
    this.#failure ??= error;
    const pending = [...this.#sent, ...this.#waiting];
    this.#sent = [];
    this.#waiting = [];
    for (const request of pending) request.onFailure(error);
  }

  #pump(): void {
    while (!this.#sent.some(({ isEval }) => isEval)) {
      const request = this.#waiting.shift();
      if (!request) return;
      this.#sent.push(request);
      this.#send(request.message);
      if (this.#sent[0] === request) request.onRunning?.();
    }
  }
}
