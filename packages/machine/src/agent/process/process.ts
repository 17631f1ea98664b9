/**
 * AgentProcess: one process in the guest, as seen through one connection.
 *
 *   starting/attaching ──STARTED/OK──► running ──EXIT──► ended
 *           └──────ERROR──► ended          └──detach()──► leaving ──answer to a ping──► ended
 *
 * The guest is not trusted: output beyond the credit, at a wrong offset, after its end or after EXIT throws
 * ProtocolError, on which the client closes the connection.
 */
import { createDeferred, withDeadline, within, type Deferred } from "@forkd/base";
import { AppError } from "@forkd/contract";
import type { GuestDeadlines } from "../../deadlines.ts";
import { ProtocolError, refusal, silentGuest } from "../errors.ts";
import { encodeFrame, frameType, type Frame } from "../wire/frames.ts";
import { InputStream, type FrameSink } from "./input-stream.ts";
import { OutputCredit } from "./output-credit.ts";
import { OutputQueue } from "./output-queue.ts";
import {
  decodeError,
  decodeExit,
  decodeInputClosed,
  decodeInputCredit,
  decodeOutput,
  decodeOutputEof,
  decodeStarted,
  type AgentExit,
  type AgentOutput,
} from "../wire/replies.ts";
import {
  encodeCredit,
  encodeResize,
  encodeSignal,
  type InputStreamNumber,
  type OutputStreamNumber,
  type PerStream,
} from "../wire/requests.ts";

/** Output that the guest may send ahead of the consumer, for each stream, in bytes. */
export const defaultWindowBytes = 256 * 1024;
const sigkill = 9;

export interface OutputOptions {
  readonly windowBytes?: number;
  /** Called for each piece instead of queueing it; the bytes are a view. A promise delays the credit. */
  readonly onOutput?: (output: AgentOutput) => void | Promise<void>;
  readonly onEof?: (stream: OutputStreamNumber) => void;
}

/** A process started detached cannot be used after it has started, except through `attach`. */
export type OpenedBy = "start" | "start-detached" | "attach";

/** Input bytes of streams 0 and 3 that the process has not read. */
export type InputUsed = readonly [number, number];

/** The part of the client that a process needs. */
export interface ProcessLink extends FrameSink {
  /** Forgets the process: later frames for it are violations. With `inputUsed` it keeps running. */
  release(id: number, inputUsed?: InputUsed): void;
  /** Resolves when the guest has answered everything sent so far, however late. */
  answered(): Promise<void>;
  readonly deadlines: Pick<GuestDeadlines, "replyMs" | "killMs">;
}

export class AgentProcess implements AsyncDisposable {
  readonly id: number;
  readonly #link: ProcessLink;
  readonly #options: OutputOptions;
  readonly #action: string;
  readonly #credit: OutputCredit;
  readonly #inputs: Record<InputStreamNumber, InputStream>;
  readonly #queue: OutputQueue;
  readonly #started = createDeferred<void>();
  readonly #exit: Deferred<AgentExit> = createDeferred();
  readonly #ended = createDeferred<void>();
  #state: "opening" | "running" | "leaving" | "ended" = "opening";
  /** set until the answer to START or ATTACH arrives */
  #opening: OpenedBy | undefined;
  #discarding = false;
  #forgotten = false;
  #pid: number | undefined;
  readonly #replyTimer: NodeJS.Timeout;

  /** Made by AgentClient, which has sent START or ATTACH with the window as credit. */
  constructor(
    link: ProcessLink,
    id: number,
    how: { action: string; openedBy: OpenedBy; offsets: PerStream; inputUsed?: InputUsed | undefined },
    options: OutputOptions,
  ) {
    this.id = id;
    this.#link = link;
    this.#options = options;
    this.#action = how.action;
    this.#opening = how.openedBy;
    this.#credit = new OutputCredit(
      options.windowBytes ?? defaultWindowBytes,
      how.offsets,
      how.openedBy === "attach",
    );
    // The process keeps its id: it may still start, and its caller ends it.
    const { replyMs } = link.deadlines;
    this.#replyTimer = setTimeout(() => this.#started.reject(silentGuest(this.#action, replyMs)), replyMs);
    const [used0, used3] = how.inputUsed ?? [0, 0];
    this.#inputs = { 0: new InputStream(id, 0, link, used0), 3: new InputStream(id, 3, link, used3) };
    this.#queue = new OutputQueue(
      (number, bytes) => this.#consumed(number, bytes),
      () => {
        this.#discarding = true;
      },
    );
  }

  /** Resolves on STARTED or on the answer to ATTACH; rejects with `agent_unreachable` if neither comes. */
  get started(): Promise<void> {
    return this.#started.promise;
  }

  /** Known once started; unknown after attach. */
  get pid(): number | undefined {
    return this.#pid;
  }

  /** The exit status; rejects if the process did not start, was detached or the connection ended. */
  get exit(): Promise<AgentExit> {
    return this.#exit.promise;
  }

  /** For one consumer; ends after the exit, or throws the error of `exit`. Empty with `onOutput`. */
  get output(): AsyncIterableIterator<AgentOutput> {
    return this.#queue;
  }

  /** Expected offset of the next byte of each stream. */
  get offsets(): PerStream {
    return this.#credit.offsets;
  }

  write(bytes: Uint8Array, stream: InputStreamNumber = 0): Promise<void> {
    return this.#inputs[stream].write(bytes);
  }

  /** Number of writes that are not sent completely. */
  unsentWrites(stream: InputStreamNumber): number {
    return this.#inputs[stream].unsentWrites;
  }

  /** True while a write is partly sent. */
  isWriteCut(stream: InputStreamNumber): boolean {
    return this.#inputs[stream].isCut;
  }

  end(stream: InputStreamNumber = 0): Promise<void> {
    return this.#inputs[stream].end();
  }

  signal(signal: number, scope: "group" | "leader" = "group"): void {
    if (this.#state !== "ended") this.#link.send(encodeSignal(this.id, signal, scope));
  }

  /** Kills the group and the leader: right after START the leader may not have created its group yet. */
  kill(): void {
    this.signal(sigkill, "group");
    this.signal(sigkill, "leader");
  }

  resize(rows: number, cols: number): void {
    if (this.#state !== "ended") this.#link.send(encodeResize(this.id, rows, cols));
  }

  /** Leaves the process running without a reader. The next attach can read output in transit again. */
  async detach(): Promise<void> {
    if (this.#state === "ended" || this.#state === "leaving") return;
    this.#state = "leaving";
    this.#discarding = true;
    this.#link.send(encodeFrame(frameType.detach, this.id));
    const left = this.#link.answered();
    this.#settle(detached(this.id), undefined);
    // Until then the guest may still send frames for it. All attachments of a connection share one window.
    const released = left.then(
      () => this.#release([this.#inputs[0].usedBytes, this.#inputs[3].usedBytes]),
      () => this.#release(),
    );
    // If the guest does not answer, the caller has nothing to wait for.
    await within(released, this.#link.deadlines.killMs);
  }

  /** Lets the agent drop its state of the process once it has finished. */
  forget(): void {
    if (this.#forgotten) return;
    this.#forgotten = true;
    this.#link.send(encodeFrame(frameType.forget, this.id));
  }

  /** Kills the process, waits for its exit and forgets it. Does nothing to a detached one. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#state === "leaving") return;
    this.#discarding = true;
    this.kill();
    this.forget();
    void this.#queue.return();
    try {
      const late = (): Error => new AppError("deadline_exceeded", `Process ${this.id} does not end`);
      await withDeadline(this.#ended.promise, this.#link.deadlines.killMs, late);
    } catch (error) {
      // Do not wait for a process that is stuck in the guest's kernel; the agent forgets it when it ends.
      if (!(error instanceof AppError && error.code === "deadline_exceeded")) throw error;
      await this.detach();
    }
  }

  /** The client calls this for each frame with this id. Throws ProtocolError. */
  receive(frame: Frame): void {
    switch (frame.type) {
      case frameType.ok:
      case frameType.started:
        return this.#opened(frame);
      case frameType.error:
        return this.#refused(frame);
      case frameType.output:
        return this.#output(decodeOutput(frame.payload));
      case frameType.outputEof:
        return this.#outputEof(frame);
      case frameType.inputCredit: {
        const { stream, bytes } = decodeInputCredit(frame.payload);
        return this.#inputs[stream].credit(bytes);
      }
      case frameType.inputClosed:
        decodeInputClosed(frame.payload);
        return this.#inputs[0].shut();
      case frameType.exit:
        return this.#exited(decodeExit(frame.payload));
      default:
        throw new ProtocolError(`frame of type ${frame.type} for a process`);
    }
  }

  /** The client calls this when the connection has ended. */
  lost(error: Error): void {
    this.#settle(error, undefined);
    this.#release();
  }

  /** The client calls this when the connection accepts bytes again. */
  drained(): void {
    this.#inputs[0].pump();
    this.#inputs[3].pump();
  }

  #opened(frame: Frame): void {
    const opening = this.#opening;
    const expected = opening === "attach" ? frameType.ok : frameType.started;
    if (opening === undefined || frame.type !== expected) {
      throw new ProtocolError(`frame of type ${frame.type} for process ${this.id}`);
    }
    this.#opening = undefined;
    clearTimeout(this.#replyTimer);
    if (frame.type === frameType.started) this.#pid = decodeStarted(frame.payload);
    if (this.#state === "opening") this.#state = "running";
    this.#started.resolve();
    if (opening !== "start-detached") return;
    this.#settle(detached(this.id), undefined);
    this.#release();
  }

  #refused(frame: Frame): void {
    if (this.#opening === undefined) throw new ProtocolError(`error for the running process ${this.id}`);
    const { errno, text } = decodeError(frame.payload);
    this.#settle(refusal(this.#action, errno, text), undefined);
    this.#release();
  }

  #output(output: AgentOutput): void {
    const { stream, bytes } = output;
    this.#mustBeOpen("output");
    this.#credit.receive(stream, output.offset, bytes.length);
    if (this.#discarding) return this.#consumed(stream, bytes.length);
    if (!this.#options.onOutput) return this.#queue.push(output);
    try {
      const taken = this.#options.onOutput(output);
      if (taken === undefined) return this.#consumed(stream, bytes.length);
      taken.then(
        () => this.#consumed(stream, bytes.length),
        (error: unknown) => this.#consumerFailed(error),
      );
    } catch (error) {
      this.#consumerFailed(error);
    }
  }

  #outputEof(frame: Frame): void {
    const { stream, offset } = decodeOutputEof(frame.payload);
    this.#mustBeOpen("output");
    this.#credit.receiveEof(stream, offset);
    if (!this.#discarding) this.#options.onEof?.(stream);
  }

  #mustBeOpen(what: string): void {
    if (this.#opening !== undefined)
      throw new ProtocolError(`${what} of process ${this.id} before it started`);
  }

  #exited(exit: AgentExit): void {
    this.#mustBeOpen("exit");
    this.#settle(undefined, exit);
    this.#release();
  }

  #consumed(stream: OutputStreamNumber, bytes: number): void {
    if (this.#state === "ended" || this.#state === "leaving") return;
    const given = this.#credit.consume(stream, bytes);
    if (given > 0) this.#link.send(encodeCredit(this.id, stream, given));
  }

  /** The consumer threw, so the process has no reader. `exit` rejects with that error. */
  #consumerFailed(error: unknown): void {
    this.#discarding = true;
    this.#exit.reject(error instanceof Error ? error : new Error(String(error)));
    this.kill();
    this.forget();
  }

  /** The first cause counts; later calls change nothing. */
  #settle(error: Error | undefined, exit: AgentExit | undefined): void {
    if (exit) this.#exit.resolve(exit);
    clearTimeout(this.#replyTimer);
    const reason = error ?? new AppError("wrong_state", `Process ${this.id} has ended`);
    this.#started.reject(reason);
    this.#exit.reject(reason);
    this.#inputs[0].close(reason);
    this.#inputs[3].close(reason);
    this.#queue.end(error);
  }

  #release(inputUsed?: InputUsed): void {
    if (this.#state === "ended") return;
    this.#state = "ended";
    this.#link.release(this.id, inputUsed);
    this.#ended.resolve();
  }
}

function detached(id: number): AppError {
  return new AppError("wrong_state", `Process ${id} is detached`);
}
