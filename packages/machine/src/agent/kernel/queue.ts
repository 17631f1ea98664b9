/**
 * Messages to a kernel in order: waiting ones, and sent ones without an answer.
 *
 * Short messages do not wait for each other. After an eval, nothing is sent until its answer arrives.
 */
import type { AppError } from "@forkd/contract";
import type { KernelRequest } from "./eval.ts";
import { KernelGarbage, type KernelMessage } from "./messages.ts";

type Answer = Exclude<KernelMessage, { type: "Y" }>;

export class KernelQueue {
  readonly #send: (message: Buffer) => void;
  #waiting: KernelRequest[] = [];
  #sent: KernelRequest[];
  #failure: AppError | undefined;

  /** `unanswered` messages were sent before a snapshot: their answers and output are ignored. */
  constructor(unanswered: readonly number[], send: (message: Buffer) => void) {
    this.#send = send;
    this.#sent = unanswered.map((id) => ({
      id,
      isEval: true,
      message: Buffer.alloc(0),
      onAnswer: () => undefined,
      onFailure: () => undefined,
      room: () => false,
    }));
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
  hasRoom(id: number, bytes: number): boolean {
    const request = this.#sent[0];
    return request?.id === id && (request.room?.(bytes) ?? true);
  }

  /** False if no sent message has that id. Throws KernelGarbage if the type does not match the message. */
  answer(message: Answer): boolean {
    const request = this.#sent[0];
    if (request?.id !== message.id) return false;
    // The type of a message from before a snapshot is unknown here, so any answer to it fits.
    const isAnyType = message.type === "Z" || message.type === "dropped" || request.message.length === 0;
    const fits = isAnyType || (message.type === "V") === request.isEval;
    if (!fits) throw new KernelGarbage(`"${message.type}" as an answer`);
    this.#sent.shift();
    request.onAnswer(message);
    this.#sent[0]?.onRunning?.();
    this.#pump();
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
