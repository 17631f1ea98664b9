/**
 * KernelClient: a warm interpreter in the guest (docs/spec/kernel-protocol.md), over a process's control
 * stream.
 */
import { randomInt } from "node:crypto";
import { withDeadline, createDeferred } from "@forkd/base";
import { AppError } from "@forkd/contract";
import type { AgentClient } from "../client.ts";
import { kernelBounds } from "../bounds.ts";
import type { EvalReader, RunningEval } from "./carried.ts";
import { KernelConnection, type KernelOptions, type KernelPosition } from "./connection.ts";
import { decodeContexts, type KernelContext } from "./contexts.ts";
import {
  encodeContexts,
  encodeDropContext,
  encodeEval,
  encodeKernelAfterFork,
  encodeNewContext,
  encodeRehearse,
  encodeWarmed,
} from "./messages.ts";
import {
  createEvalRequest,
  evalCancelled,
  interruptEveryMs,
  type EvalAnswer,
  type EvalOptions,
  type EvalOutcome,
} from "./eval.ts";
import { encoded, garbage, noAnswer, notReady, tooLarge } from "./errors.ts";
import { longJson } from "./value.ts";
import type { AgentProcess, OutputOptions } from "../process/process.ts";

export type { KernelOptions, KernelPosition } from "./connection.ts";

const defaultReadyTimeoutMs = 60_000;
/** How long an interrupted eval may take to stop. */
const defaultGraceMs = 5_000;

interface KernelSpec {
  readonly language: string;
  readonly argv: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  readonly user?: string;
  readonly readyTimeoutMs?: number;
}

/** An eval that the kernel runs, or that a snapshot carried and that has ended. */
interface KernelEval extends RunningEval {
  readonly isFinished: boolean;
  readonly isFollowed: boolean;
}

/** What is known of a kernel that has rehearsed: its generators were re-seeded in this machine. */
type Rehearsed = {
  /** the variables that were set; undefined: a kernel of an older snapshot has set none */
  readonly env: Readonly<Record<string, string>> | undefined;
  /** whether the user's code has callbacks, which afterFork() runs */
  readonly hasCallbacks: boolean;
};

export class KernelClient extends KernelConnection {
  #rehearsed: Rehearsed | undefined;

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
    kernel.readyWhenAttached();
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
    kernel.allowsStale = true;
    kernel.interrupt();
    const again = setInterval(() => kernel.interrupt(), interruptEveryMs);
    try {
      // An answer to this message proves that the kernel has finished all earlier ones.
      await withDeadline(
        kernel.ask("list contexts", encodeContexts, true),
        options.graceMs ?? defaultGraceMs,
        () => noAnswer(language),
      );
    } catch (error) {
      await kernel[Symbol.asyncDispose]();
      throw error;
    } finally {
      clearInterval(again);
    }
    kernel.allowsStale = false;
    return kernel;
  }

  /**
   * Reseeds the kernel's random number generators, sets environment variables and runs the callbacks of the user.
   * Without entropy it does not re-seed, for a kernel that has rehearsed in this machine.
   */
  async afterFork(entropy: Uint8Array, env: Readonly<Record<string, string>> = {}): Promise<void> {
    const action = "prepare the interpreter after a fork";
    const left = await this.ask(action, (id) => encodeKernelAfterFork(id, entropy, env));
    // All children would share the state that the kernel could not reset.
    if (left.length > 0)
      throw new AppError("kernel_failed", `Cannot ${action}: ${left.toString("utf8").slice(0, 200)}`);
  }

  /** Rejects with `guest_refused` if there are more than the host lists. */
  async contexts(): Promise<KernelContext[]> {
    const action = "list contexts";
    const bytes = await this.ask(action, encodeContexts);
    const contexts = this.decoded(() => decodeContexts(bytes, this.protocol));
    if (contexts) return contexts;
    throw tooLarge(action, `there are more than ${kernelBounds.contexts}`);
  }

  /**
   * Makes a context that begins with what the warm-up defined, and resolves with its working directory.
   * `replace`: makes it again if it exists, with the directory and variables that it was made with.
   */
  async newContext(
    context: string,
    {
      replace = false,
      cwd = "",
      env = {},
    }: { replace?: boolean; cwd?: string; env?: Record<string, string> },
  ): Promise<string> {
    const action = `make context "${context}"`;
    this.need(3, action);
    const bytes = await this.ask(action, (id) => encodeNewContext(id, context, { replace, cwd, env }));
    return bytes.toString("utf8", 0, kernelBounds.cwdBytes);
  }

  /**
   * The warm-up is done: new contexts begin with what there is now, and evals count from 1. `rehearsal` is the
   * code for rehearse(); default: the kernel's own.
   */
  async warmed(rehearsal = ""): Promise<void> {
    if (this.protocol >= 3) await this.ask("keep the warm-up", (id) => encodeWarmed(id, rehearsal));
  }

  /**
   * Sets variables, and runs the code of an after-fork step and of an eval once, without another effect on what
   * evals see, so that the next ones are fast. Does nothing for a kernel of an older snapshot.
   */
  async rehearse(env: Readonly<Record<string, string>>): Promise<void> {
    if (this.protocol < 4) return;
    try {
      const [callbacks] = await this.ask("rehearse", (id) => encodeRehearse(id, env));
      this.#rehearsed = { env: callbacks === undefined ? undefined : env, hasCallbacks: callbacks !== 0 };
    } finally {
      // What it printed belongs to no eval.
      this.stray.take();
    }
  }

  get rehearsed(): Rehearsed | undefined {
    return this.#rehearsed;
  }

  async dropContext(context: string): Promise<void> {
    await this.ask(`drop context "${context}"`, (id) => encodeDropContext(id, context));
  }

  /**
   * Runs code. After `timeoutMs` the code is interrupted and the outcome says so; on abort it is interrupted
   * and the call rejects with `cancelled`. If it does not stop within `graceMs`, the kernel is killed:
   * `kernel_failed`.
   */
  async evaluate(options: EvalOptions): Promise<EvalOutcome> {
    if (options.signal?.aborted) throw evalCancelled(options.signal.reason);
    const { context, code, env = {} } = options;
    if (Object.keys(env).length > 0) this.need(3, "set variables for an eval");
    const id = this.takeId();
    const message = encoded(() => encodeEval(id, context, code, env));
    const { request, outcome } = createEvalRequest(id, message, options, {
      interrupt: () => this.interrupt(),
      withdraw: (unsent) => this.queue.withdraw(unsent),
      isRunning: (sent) => this.queue.running === sent,
      giveUp: (reason) => {
        this.fail(reason);
      },
      takeStray: () => this.stray.take(),
      check: (display) => this.check(display),
      graceMs: this.options.graceMs ?? defaultGraceMs,
    });
    this.queue.submit(request);
    const answer = await outcome;
    // Only the last eval can be asked for.
    this.carried = undefined;
    return this.#outcome(answer);
  }

  /** The eval in progress, and one that a snapshot carried and that has ended since. */
  get evals(): KernelEval[] {
    const { eval: running } = this.queue;
    const carried = this.carried;
    const others =
      running?.context === undefined || running === carried
        ? []
        : [{ id: running.id, context: running.context, isFinished: false, isFollowed: true }];
    return [...(carried ? [carried] : []), ...others];
  }

  /** Follows an eval of `evals` that has no reader. Leaving it does not interrupt it. */
  async follow(id: number, reader: EvalReader, signal?: AbortSignal): Promise<EvalOutcome> {
    const carried = this.carried;
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
      throw this.fail(garbage(error));
    }
  }

  /** The context of the eval in progress; undefined if there is none, or if an earlier daemon sent it. */
  get runningContext(): string | undefined {
    return this.queue.eval?.context;
  }
}
