/**
 * Messages to a kernel in their order: those that wait and those that were sent and are not answered.
 *
 * Short messages are sent without waiting for each other; behind an eval nothing is sent until it is answered.
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

  /** `unanswered` were asked before a snapshot: their answers and output are passed over. */
  constructor(unanswered: readonly number[], send: (message: Buffer) => void) {
    this.#send = send;
    this.#sent = unanswered.map((id) => ({
      id,
      isEval: true,
      message: Buffer.alloc(0),
      onAnswer: () => undefined,
      onFailure: () => undefined,
    }));
  }

  get unanswered(): number[] {
    return this.#sent.map(({ id }) => id);
  }

  /** The message that the kernel serves now. */
  get running(): KernelRequest | undefined {
    return this.#sent[0];
  }

  /** The eval on its way, of which there is one at most. What after-fork callbacks print ahead of it counts as its own. */
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

  /** False if it answers nothing that was asked. Throws KernelGarbage if it is no answer to what was asked. */
  answer(message: Answer): boolean {
    const request = this.#sent[0];
    if (request?.id !== message.id) return false;
    // What was asked before a snapshot is not known here, so any answer to it fits.
    const fits =
      message.type === "Z" || request.message.length === 0 || (message.type === "V") === request.isEval;
    if (!fits) throw new KernelGarbage(`"${message.type}" as an answer`);
    this.#sent.shift();
    request.onAnswer(message);
    this.#sent[0]?.onRunning?.();
    this.#pump();
    return true;
  }

  /** Fails everything that is in it and everything that will be submitted. */
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
