/**
 * The connection to a kernel: messages in order, output, and where both stand.
 *
 * The kernel handles one message at a time. Short messages do not wait for each other, so that after-fork and
 * the first eval share a packet. After an eval, nothing is sent until its answer arrives, so that an
 * interrupt only reaches the intended eval. Output belongs to the eval in progress: the agent sends it before
 * the answer to the eval, but it may arrive before the answer to an earlier short message. Output between two
 * evals goes to the second one.
 */
import { createDeferred } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { OutputTail } from "../process/output-tail.ts";
import type { AgentProcess, OutputOptions } from "../process/process.ts";
import type { AgentOutput } from "../wire/replies.ts";
import type { PerStream } from "../wire/requests.ts";
import { CarriedEval, type RunningEval } from "./carried.ts";
import { checkDisplay, type KernelDisplay, type UncheckedDisplay } from "./display.ts";
import { connectionError, encoded, exitError, garbage, tooLarge, tooOld } from "./errors.ts";
import { KernelGarbage } from "./garbage.ts";
import { KernelMessageParser, protocolOf, type KernelMessage } from "./messages.ts";
import { KernelQueue } from "./queue.ts";
import { StrayOutput } from "./stray-output.ts";

const sigint = 2;

export interface KernelOptions {
  /** called after output that belongs to no eval; the next eval gets it */
  readonly onStray?: (stream: 1 | 2, bytes: Buffer) => void;
  readonly graceMs?: number;
  /** text of its ready message, for one that is attached to */
  readonly version?: string;
}

/** Position in the streams of a kernel; stored with a snapshot so that a fork can continue from there. */
export interface KernelPosition {
  readonly processId: number;
  /** where to continue; in the control stream always the start of an answer, possibly a future one */
  readonly offsets: PerStream;
  readonly nextEvalId: number;
  /** ids of messages that the kernel has not answered; empty when idle */
  readonly unanswered: readonly number[];
  /** the eval among them */
  readonly running?: RunningEval;
}

export abstract class KernelConnection implements AsyncDisposable {
  readonly #process: AgentProcess;
  protected readonly options: KernelOptions;
  readonly #parser = new KernelMessageParser((...asked) => this.queue.hasRoom(...asked));
  readonly #stderr = new OutputTail();
  protected readonly stray = new StrayOutput();
  readonly #ready = createDeferred<string>();
  readonly #ended = createDeferred<AppError>();
  protected readonly queue: KernelQueue;
  #nextId: number;
  /** offset of the next byte for the parser; ahead of the stream when a snapshot split an answer */
  #controlOffset: number;
  /** answers to messages of an earlier daemon are ignored */
  protected allowsStale = false;
  #dead: AppError | undefined;
  protected carried: CarriedEval | undefined;
  protected protocol: number;

  protected constructor(
    open: (output: OutputOptions) => AgentProcess,
    position: Omit<KernelPosition, "processId">,
    options: KernelOptions,
  ) {
    this.options = options;
    this.#nextId = position.nextEvalId;
    this.#controlOffset = position.offsets[2];
    this.protocol = protocolOf(options.version ?? "");
    if (position.running) this.carried = new CarriedEval(position.running, (each) => this.check(each));
    // A write fails only when the process has ended, which fails every request.
    const send = (message: Buffer) => void this.#process.write(message, 3).catch(() => undefined);
    this.queue = new KernelQueue(position.unanswered, send, this.carried);
    this.#process = open({ onOutput: (output) => this.#receive(output) });
    this.#process.exit.then(
      (exit) => this.fail(exitError(exit, this.#stderr.lines())),
      (error: unknown) => this.fail(connectionError(error)),
    );
  }

  /** A kernel says only once that it is ready. */
  protected readyWhenAttached(): void {
    this.#process.started.then(
      () => this.#ready.resolve(""),
      () => undefined, // `exit` rejects with the same error and ends the kernel
    );
  }

  get processId(): number {
    return this.#process.id;
  }

  /** Resolves with the kernel's version text after start, with an empty string after attach. */
  get ready(): Promise<string> {
    return this.#ready.promise;
  }

  /** Why the kernel can no longer be used, if so; the caller starts another. */
  get dead(): AppError | undefined {
    return this.#dead;
  }

  get ended(): Promise<AppError> {
    return this.#ended.promise;
  }

  /** True while a message is partly sent: in a capture taken now, the kernel would never get the rest. */
  get isSending(): boolean {
    return this.#process.isWriteCut(3);
  }

  /**
   * Valid for a machine captured while `AgentClient.hold` is active and the kernel is not `isSending`.
   *
   * A fork cannot use an answer that has partly arrived, so it continues after that answer. If fewer than its
   * first nine bytes are here, its length is unknown and the fork reads it again from the start. The agent
   * still has the start if everything that the kernel has sent since fits in the kept window. Otherwise the
   * fork loses the kernel with `kernel_failed`.
   */
  position(): KernelPosition {
    const [first, second] = this.#process.offsets;
    const sent = this.queue.unanswered;
    const unanswered = sent.slice(0, sent.length - this.#process.unsentWrites(3));
    const cut = this.#parser.cutAnswer;
    const isKnown = cut !== undefined && cut.id === unanswered[0];
    const third = this.#controlOffset + (isKnown ? cut.missingBytes : -this.#parser.pendingBytes);
    const left = isKnown && !cut.isDisplay ? unanswered.slice(1) : unanswered;
    const { eval: running } = this.queue;
    const isLeft = running?.context !== undefined && left.includes(running.id);
    return {
      processId: this.#process.id,
      offsets: [first, second, third],
      nextEvalId: this.#nextId,
      unanswered: left,
      ...(isLeft && { running: { id: running.id, context: running.context } }),
    };
  }

  /** Sends SIGINT, which has no effect between evals. */
  interrupt(): void {
    this.#process.signal(sigint, "leader");
  }

  /** Disconnects from the kernel, which keeps running; `attach` reconnects. Pending calls reject. */
  async leave(): Promise<void> {
    const left = this.#process.detach();
    this.fail(new AppError("kernel_failed", "The interpreter was disconnected"), { kill: false });
    await left;
  }

  /** Kills the kernel, unless leave() was called. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.fail(new AppError("kernel_failed", "The interpreter was stopped"));
    await this.#process[Symbol.asyncDispose]();
  }

  protected check(display: UncheckedDisplay): KernelDisplay | Promise<KernelDisplay> {
    if (display.unchecked.size === 0) return display;
    const checked = checkDisplay(display).catch((error: unknown) => {
      throw this.fail(garbage(error));
    });
    // Its reader may have gone.
    checked.catch(() => undefined);
    return checked;
  }

  protected decoded<T>(decode: () => T): T {
    try {
      return decode();
    } catch (error) {
      throw this.fail(garbage(error));
    }
  }

  protected need(protocol: number, action: string): void {
    if (this.protocol < protocol) throw tooOld(action);
  }

  protected takeId(): number {
    const id = this.#nextId;
    this.#nextId = id >= 0xffff_ffff ? 1 : id + 1;
    return id;
  }

  /** `ignoresBytes`: only the fact of an answer counts, so that a dropped one is as good. */
  protected ask(action: string, encode: (id: number) => Buffer, ignoresBytes = false): Promise<Buffer> {
    const id = this.takeId();
    const message = encoded(() => encode(id));
    const done = createDeferred<Buffer>();
    this.queue.submit({
      id,
      isEval: false,
      message,
      onAnswer: (answer) => {
        if (answer.type === "A") return done.resolve(answer.bytes);
        if (answer.type === "dropped" && ignoresBytes) return done.resolve(Buffer.alloc(0));
        if (answer.type === "dropped") return done.reject(tooLarge(action, "the answer is too large"));
        const text = answer.type === "Z" ? answer.text : "unexpected answer";
        done.reject(new AppError("guest_refused", `Cannot ${action}: ${text}`, { details: { text } }));
      },
      onFailure: (error) => done.reject(error),
    });
    return done.promise;
  }

  #receive(output: AgentOutput): void | Promise<void> {
    const { stream, bytes } = output;
    if (stream === 3) return this.#receiveControl(output);
    if (stream === 2) this.#stderr.push(bytes);
    const { eval: running } = this.queue;
    if (running) return running.onOutput?.(stream, bytes);
    this.stray.push(stream, bytes);
    this.options.onStray?.(stream, bytes);
  }

  #receiveControl({ offset, bytes }: AgentOutput): void {
    if (this.#dead) return;
    try {
      if (offset > this.#controlOffset) throw new KernelGarbage("part of its answer was dropped");
      const wanted = bytes.subarray(this.#controlOffset - offset);
      this.#controlOffset += wanted.length;
      for (const message of this.#parser.push(wanted)) this.#answered(message);
    } catch (error) {
      this.fail(garbage(error));
    }
  }

  #answered(message: KernelMessage): void {
    if (message.type === "Y") {
      this.protocol = protocolOf(message.text);
      return this.#ready.resolve(message.text);
    }
    if (this.queue.answer(message)) return;
    if (!this.allowsStale) throw new KernelGarbage(`answer to ${message.id}, which is not pending`);
  }

  /** The first cause counts. */
  protected fail(error: AppError, { kill } = { kill: true }): AppError {
    if (this.#dead) return this.#dead;
    this.#dead = error;
    if (kill) {
      this.#process.kill();
      this.#process.forget();
    }
    this.#ready.reject(error);
    this.queue.fail(error);
    this.#ended.resolve(error);
    return error;
  }
}
