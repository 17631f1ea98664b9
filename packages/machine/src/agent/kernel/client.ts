/**
 * KernelClient: a warm interpreter in the guest (docs/spec/kernel-protocol.md), over a process's control
 * stream.
 *
 * The kernel handles one message at a time. Short messages do not wait for each other, so that after-fork and
 * the first eval share a packet. After an eval, nothing is sent until its answer arrives, so that an
 * interrupt only reaches the intended eval. Output belongs to the eval in progress: the agent sends it before
 * the answer to the eval, but it may arrive before the answer to an earlier short message. Output between two
 * evals goes to the second one.
 */
import { randomInt } from "node:crypto";
import { withDeadline, createDeferred } from "@forkd/base";
import { AppError } from "@forkd/contract";
import type { AgentClient } from "../client.ts";
import { kernelBounds } from "../bounds.ts";
import { OutputTail } from "../process/output-tail.ts";
import { CarriedEval, type EvalReader, type RunningEval } from "./carried.ts";
import { decodeContexts, type KernelContext } from "./contexts.ts";
import { checkDisplay, type KernelDisplay, type UncheckedDisplay } from "./display.ts";
import {
  encodeContexts,
  encodeDropContext,
  encodeEval,
  encodeKernelAfterFork,
  encodeNewContext,
  encodeWarmed,
  KernelMessageParser,
  protocolOf,
  type KernelMessage,
} from "./messages.ts";
import {
  createEvalRequest,
  evalCancelled,
  interruptEveryMs,
  type EvalAnswer,
  type EvalOptions,
  type EvalOutcome,
} from "./eval.ts";
import { connectionError, exitError, garbage, noAnswer, notReady, tooLarge, tooOld } from "./errors.ts";
import { KernelGarbage } from "./garbage.ts";
import { longJson } from "./value.ts";
import { KernelQueue } from "./queue.ts";
import { StrayOutput } from "./stray-output.ts";
import type { AgentProcess, OutputOptions } from "../process/process.ts";
import type { AgentOutput } from "../wire/replies.ts";
import type { PerStream } from "../wire/requests.ts";

const defaultReadyTimeoutMs = 60_000;
/** How long an interrupted eval may take to stop. */
const defaultGraceMs = 5_000;
const sigint = 2;

interface KernelSpec {
  readonly language: string;
  readonly argv: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly user?: string;
  readonly readyTimeoutMs?: number;
}

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

/** An eval that the kernel runs, or that a snapshot carried and that has ended. */
export interface KernelEval extends RunningEval {
  readonly isFinished: boolean;
  readonly isFollowed: boolean;
}

export class KernelClient implements AsyncDisposable {
  readonly #process: AgentProcess;
  readonly #options: KernelOptions;
  readonly #parser = new KernelMessageParser((...asked) => this.#queue.hasRoom(...asked));
  readonly #stderr = new OutputTail();
  readonly #stray = new StrayOutput();
  readonly #ready = createDeferred<string>();
  readonly #ended = createDeferred<AppError>();
  readonly #queue: KernelQueue;
  #nextId: number;
  /** offset of the next byte for the parser; ahead of the stream when a snapshot split an answer */
  #controlOffset: number;
  /** answers to messages of an earlier daemon are ignored */
  #allowsStale = false;
  #dead: AppError | undefined;
  #carried: CarriedEval | undefined;
  #protocol: number;

  /** Starts a kernel and waits until it is ready. */
  static async start(
    client: AgentClient,
    spec: KernelSpec,
    options: KernelOptions = {},
  ): Promise<KernelClient> {
    const { language, readyTimeoutMs = defaultReadyTimeoutMs, ...command } = spec;
    const open = (output: OutputOptions): AgentProcess =>
      client.start({ ...command, control: true, label: `kernel:${language}` }, output);
    const kernel = new KernelClient(open, { offsets: [0, 0, 0], nextEvalId: 1, unanswered: [] }, options);
    try {
      await withDeadline(kernel.ready, readyTimeoutMs, () => notReady(language, readyTimeoutMs));
    } catch (error) {
      await kernel[Symbol.asyncDispose]();
      throw error;
    }
    return kernel;
  }

  /** Attaches to a kernel of a snapshot. Returns at once; messages may be sent at once. */
  static attach(client: AgentClient, position: KernelPosition, options: KernelOptions = {}): KernelClient {
    const open = (output: OutputOptions): AgentProcess =>
      client.attach(position.processId, position.offsets, output);
    const kernel = new KernelClient(open, position, options);
    kernel.#process.started.then(
      () => kernel.#ready.resolve(""),
      () => undefined, // `exit` rejects with the same error and ends the kernel
    );
    return kernel;
  }

  /** After a daemon restart: finds a kernel with unknown position, interrupts its eval and attaches. */
  static async recover(
    client: AgentClient,
    language: string,
    options: KernelOptions = {},
  ): Promise<KernelClient | undefined> {
    const listings = await client.list();
    const found = listings.find(({ label, finished }) => label === `kernel:${language}` && !finished);
    if (!found) return undefined;
    const { id: processId, offsets } = found;
    const nextEvalId = randomInt(1, 2 ** 31);
    const kernel = KernelClient.attach(client, { processId, offsets, nextEvalId, unanswered: [] }, options);
    kernel.#allowsStale = true;
    kernel.interrupt();
    const again = setInterval(() => kernel.interrupt(), interruptEveryMs);
    try {
      // An answer to this message proves that the kernel has finished all earlier ones.
      await withDeadline(
        kernel.#ask("list contexts", encodeContexts, true),
        options.graceMs ?? defaultGraceMs,
        () => noAnswer(language),
      );
    } catch (error) {
      await kernel[Symbol.asyncDispose]();
      throw error;
    } finally {
      clearInterval(again);
    }
    kernel.#allowsStale = false;
    return kernel;
  }

  private constructor(
    open: (output: OutputOptions) => AgentProcess,
    position: Omit<KernelPosition, "processId">,
    options: KernelOptions,
  ) {
    this.#options = options;
    this.#nextId = position.nextEvalId;
    this.#controlOffset = position.offsets[2];
    this.#protocol = protocolOf(options.version ?? "");
    if (position.running) this.#carried = new CarriedEval(position.running, (each) => this.#check(each));
    // A write fails only when the process has ended, which fails every request.
    const send = (message: Buffer) => void this.#process.write(message, 3).catch(() => undefined);
    this.#queue = new KernelQueue(position.unanswered, send, this.#carried);
    this.#process = open({ onOutput: (output) => this.#receive(output) });
    this.#process.exit.then(
      (exit) => this.#fail(exitError(exit, this.#stderr.lines())),
      (error: unknown) => this.#fail(connectionError(error)),
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
    const sent = this.#queue.unanswered;
    const unanswered = sent.slice(0, sent.length - this.#process.unsentWrites(3));
    const cut = this.#parser.cutAnswer;
    const isKnown = cut !== undefined && cut.id === unanswered[0];
    const third = this.#controlOffset + (isKnown ? cut.missingBytes : -this.#parser.pendingBytes);
    const left = isKnown && !cut.isDisplay ? unanswered.slice(1) : unanswered;
    const { eval: running } = this.#queue;
    const isLeft = running?.context !== undefined && left.includes(running.id);
    return {
      processId: this.#process.id,
      offsets: [first, second, third],
      nextEvalId: this.#nextId,
      unanswered: left,
      ...(isLeft && { running: { id: running.id, context: running.context } }),
    };
  }

  /** Reseeds the kernel's random number generators and sets environment variables. */
  async afterFork(entropy: Uint8Array, env: Readonly<Record<string, string>> = {}): Promise<void> {
    const action = "prepare the interpreter after a fork";
    const left = await this.#ask(action, (id) => encodeKernelAfterFork(id, entropy, env));
    // All children would share the state that the kernel could not reset.
    if (left.length > 0)
      throw new AppError("kernel_failed", `Cannot ${action}: ${left.toString("utf8").slice(0, 200)}`);
  }

  /** Rejects with `guest_refused` if there are more than the host lists. */
  async contexts(): Promise<KernelContext[]> {
    const action = "list contexts";
    const bytes = await this.#ask(action, encodeContexts);
    const contexts = this.#decoded(() => decodeContexts(bytes, this.#protocol));
    if (contexts) return contexts;
    throw tooLarge(action, `there are more than ${kernelBounds.contexts}`);
  }

  /**
   * Makes a context that begins with what the warm-up defined, and resolves with its working directory.
   * `replace`: makes it again if it exists, with the directory and variables that it was made with.
   */
  async newContext(
    context: string,
    { replace = false, cwd = "", env = {} }: { replace?: boolean; cwd?: string; env?: Record<string, string> },
  ): Promise<string> {
    const action = `make context "${context}"`;
    this.#need(3, action);
    const bytes = await this.#ask(action, (id) => encodeNewContext(id, context, { replace, cwd, env }));
    return bytes.toString("utf8", 0, kernelBounds.cwdBytes);
  }

  /** The warm-up is done: new contexts begin with what there is now, and evals count from 1. */
  async warmed(): Promise<void> {
    if (this.#protocol >= 3) await this.#ask("keep the warm-up", encodeWarmed);
  }

  async dropContext(context: string): Promise<void> {
    await this.#ask(`drop context "${context}"`, (id) => encodeDropContext(id, context));
  }

  /**
   * Runs code. After `timeoutMs` the code is interrupted and the outcome says so; on abort it is interrupted
   * and the call rejects with `cancelled`. If it does not stop within `graceMs`, the kernel is killed:
   * `kernel_failed`.
   */
  async evaluate(options: EvalOptions): Promise<EvalOutcome> {
    if (options.signal?.aborted) throw evalCancelled(options.signal.reason);
    const { context, code, env = {} } = options;
    if (Object.keys(env).length > 0) this.#need(3, "set variables for an eval");
    const id = this.#takeId();
    const message = encoded(() => encodeEval(id, context, code, env));
    const { request, outcome } = createEvalRequest(id, message, options, {
      interrupt: () => this.interrupt(),
      withdraw: (unsent) => this.#queue.withdraw(unsent),
      isRunning: (sent) => this.#queue.running === sent,
      giveUp: (reason) => {
        this.#fail(reason);
      },
      takeStray: () => this.#stray.take(),
      check: (display) => this.#check(display),
      graceMs: this.#options.graceMs ?? defaultGraceMs,
    });
    this.#queue.submit(request);
    const answer = await outcome;
    // Only the last eval can be asked for.
    this.#carried = undefined;
    return this.#outcome(answer);
  }

  /** The eval in progress, and one that a snapshot carried and that has ended since. */
  get evals(): KernelEval[] {
    const { eval: running } = this.#queue;
    const carried = this.#carried;
    const others =
      running?.context === undefined || running === carried
        ? []
        : [{ id: running.id, context: running.context, isFinished: false, isFollowed: true }];
    return [...(carried ? [carried] : []), ...others];
  }

  /** Follows an eval of `evals` that has no reader. Leaving it does not interrupt it. */
  async follow(id: number, reader: EvalReader, signal?: AbortSignal): Promise<EvalOutcome> {
    const carried = this.#carried;
    if (carried?.id !== id || carried.isFollowed)
      throw new AppError("wrong_state", `Cannot follow eval ${id}: it has a reader`);
    const { outcome, leave } = carried.follow(reader);
    const gone = createDeferred<never>();
    const onAbort = () => gone.reject(evalCancelled(signal?.reason));
    if (signal?.aborted) onAbort();
    signal?.addEventListener("abort", onAbort, { once: true });
    try {
      return await this.#outcome(await Promise.race([outcome, gone.promise]));
    } finally {
      signal?.removeEventListener("abort", onAbort);
      leave();
    }
  }

  async #outcome({ uncheckedJson, ...answer }: EvalAnswer): Promise<EvalOutcome> {
    if (!uncheckedJson) return answer;
    try {
      return { ...answer, ...(await longJson(uncheckedJson)) };
    } catch (error) {
      throw this.#fail(garbage(error));
    }
  }

  /** The context of the eval in progress; undefined if there is none, or if an earlier daemon sent it. */
  get runningContext(): string | undefined {
    return this.#queue.eval?.context;
  }

  /** Sends SIGINT, which has no effect between evals. */
  interrupt(): void {
    this.#process.signal(sigint, "leader");
  }

  /** Disconnects from the kernel, which keeps running; `attach` reconnects. Pending calls reject. */
  async leave(): Promise<void> {
    const left = this.#process.detach();
    this.#fail(new AppError("kernel_failed", "The interpreter was disconnected"), { kill: false });
    await left;
  }

  /** Kills the kernel, unless leave() was called. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#fail(new AppError("kernel_failed", "The interpreter was stopped"));
    await this.#process[Symbol.asyncDispose]();
  }

  #check(display: UncheckedDisplay): KernelDisplay | Promise<KernelDisplay> {
    if (display.unchecked.size === 0) return display;
    const checked = checkDisplay(display).catch((error: unknown) => {
      throw this.#fail(garbage(error));
    });
    // Its reader may have gone.
    checked.catch(() => undefined);
    return checked;
  }

  #decoded<T>(decode: () => T): T {
    try {
      return decode();
    } catch (error) {
      throw this.#fail(garbage(error));
    }
  }

  #need(protocol: number, action: string): void {
    if (this.#protocol < protocol) throw tooOld(action);
  }

  #takeId(): number {
    const id = this.#nextId;
    this.#nextId = id >= 0xffff_ffff ? 1 : id + 1;
    return id;
  }

  /** `ignoresBytes`: only the fact of an answer counts, so that a dropped one is as good. */
  #ask(action: string, encode: (id: number) => Buffer, ignoresBytes = false): Promise<Buffer> {
    const id = this.#takeId();
    const message = encoded(() => encode(id));
    const done = createDeferred<Buffer>();
    this.#queue.submit({
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
    const { eval: running } = this.#queue;
    if (running) return running.onOutput?.(stream, bytes);
    this.#stray.push(stream, bytes);
    this.#options.onStray?.(stream, bytes);
  }

  #receiveControl({ offset, bytes }: AgentOutput): void {
    if (this.#dead) return;
    try {
      if (offset > this.#controlOffset) throw new KernelGarbage("part of its answer was dropped");
      const wanted = bytes.subarray(this.#controlOffset - offset);
      this.#controlOffset += wanted.length;
      for (const message of this.#parser.push(wanted)) this.#answered(message);
    } catch (error) {
      this.#fail(garbage(error));
    }
  }

  #answered(message: KernelMessage): void {
    if (message.type === "Y") {
      this.#protocol = protocolOf(message.text);
      return this.#ready.resolve(message.text);
    }
    if (this.#queue.answer(message)) return;
    if (!this.#allowsStale) throw new KernelGarbage(`answer to ${message.id}, which is not pending`);
  }

  /** The first cause counts. */
  #fail(error: AppError, { kill } = { kill: true }): AppError {
    if (this.#dead) return this.#dead;
    this.#dead = error;
    if (kill) {
      this.#process.kill();
      this.#process.forget();
    }
    this.#ready.reject(error);
    this.#queue.fail(error);
    this.#ended.resolve(error);
    return error;
  }
}

function encoded(encode: () => Buffer): Buffer {
  try {
    return encode();
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new AppError("invalid_request", error.message, { cause: error });
  }
}
