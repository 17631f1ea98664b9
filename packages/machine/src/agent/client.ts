/**
 * AgentClient: the host's end of the agent protocol (docs/spec/agent-protocol.md) over one connection.
 *
 * `open` returns at once and what is asked before the guest has answered is sent at once, so that a fork costs one
 * round trip: HELLO, AFTER_FORK, ATTACH and the first eval leave in one write and are answered in order.
 *
 * A guest that breaks the protocol loses its connection, and everything pending rejects with `agent_unreachable`.
 */
import { randomBytes, randomInt } from "node:crypto";
import type { Socket } from "node:net";
import { nullLogger, type Logger } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { FrameChannel } from "./channel.ts";
import { createDeferred, type Deferred } from "./deferred.ts";
import { ProtocolError, refusal, unreachable } from "./errors.ts";
import {
  encodeFrame,
  FrameParser,
  frameType,
  headerBytes,
  maxPayloadBytes,
  nonceBytes,
  type Frame,
} from "./frames.ts";
import {
  AgentProcess,
  defaultWindowBytes,
  type InputUsed,
  type OpenedBy,
  type OutputOptions,
  type ProcessLink,
} from "./process.ts";
import { decodeError, decodeHelloOk, decodeListing, type AgentHello, type AgentListing } from "./replies.ts";
import {
  encodeAfterFork,
  encodeAttach,
  encodeHello,
  encodeStart,
  type AfterForkSpec,
  type PerStream,
  type StartSpec,
} from "./requests.ts";

const defaultHelloTimeoutMs = 10_000;
/** More than the agent's limits of unfinished and finished processes together. */
const maxListings = 2048;
const maxId = 0xffff_ffff;

export interface AgentClientOptions {
  /** The agent is known to be between frames: a fresh boot or a snapshot taken at rest. */
  readonly atBoundary: boolean;
  readonly helloTimeoutMs?: number;
  readonly signal?: AbortSignal;
  readonly log?: Logger;
}

interface PendingRequest {
  readonly action: string;
  readonly done: Deferred<AgentListing[]>;
  /** undefined where no LISTING is awaited */
  readonly listings: AgentListing[] | undefined;
}

export class AgentClient implements AsyncDisposable {
  readonly #channel: FrameChannel;
  readonly #link: ProcessLink;
  readonly #log: Logger;
  readonly #ready = createDeferred<AgentHello>();
  readonly #closed = createDeferred<Error | undefined>();
  readonly #requests = new Map<number, PendingRequest>();
  readonly #processes = new Map<number, AgentProcess>();
  /** detached processes with input that they have not taken */
  readonly #inputUsed = new Map<number, InputUsed>();
  /** ids that the guest has named in the last list */
  #guestIds = new Set<number>();
  #lastId = randomInt(1, 2 ** 31);
  #hello: AgentHello | undefined;
  #failure: AppError | undefined;
  #helloTimer: NodeJS.Timeout;
  readonly #lifetime = new AbortController();

  /** Takes over the socket and says HELLO. Never throws: failures are in `ready` and `closed`. */
  static open(socket: Socket, options: AgentClientOptions): AgentClient {
    return new AgentClient(socket, options);
  }

  private constructor(socket: Socket, options: AgentClientOptions) {
    this.#log = options.log ?? nullLogger();
    const nonce = randomBytes(nonceBytes);
    const channel = new FrameChannel(socket, new FrameParser(nonce), {
      onFrame: (frame) => this.#receive(frame),
      onDrain: () => this.#drained(),
      onEnd: (reason) => this.#end(reason),
    });
    this.#channel = channel;
    this.#link = {
      get isFull() {
        return channel.isFull;
      },
      send: (frame) => channel.send(frame),
      release: (id, inputUsed) => {
        this.#processes.delete(id);
        if (inputUsed?.some((bytes) => bytes > 0)) this.#inputUsed.set(id, inputUsed);
      },
      ping: () => this.ping(),
    };
    const helloTimeoutMs = options.helloTimeoutMs ?? defaultHelloTimeoutMs;
    this.#helloTimer = setTimeout(() => {
      channel.end(
        new AppError("agent_unreachable", `Guest agent did not answer within ${helloTimeoutMs} ms`),
      );
    }, helloTimeoutMs);
    const onAbort = (): void => {
      const cause = options.signal?.reason;
      channel.end(new AppError("cancelled", "Connection to the guest agent was cancelled", { cause }));
    };
    options.signal?.addEventListener("abort", onAbort, { signal: this.#lifetime.signal });
    if (options.signal?.aborted) onAbort();
    else if (socket.destroyed) channel.end(undefined);
    // Zeros finish a payload that an earlier connection began and are skipped anywhere else.
    if (!options.atBoundary) channel.send(Buffer.alloc(headerBytes + maxPayloadBytes));
    channel.send(encodeHello(nonce));
  }

  /** Resolves with the guest's answer to HELLO. */
  get ready(): Promise<AgentHello> {
    return this.#ready.promise;
  }

  /** Facts from the answer to HELLO; undefined before `ready`. */
  get hello(): AgentHello | undefined {
    return this.#hello;
  }

  /** Resolves when the connection has ended, with the reason if it was not this side's wish or a plain close. */
  get closed(): Promise<Error | undefined> {
    return this.#closed.promise;
  }

  get isClosed(): boolean {
    return this.#failure !== undefined;
  }

  async ping(): Promise<void> {
    await this.#request("ping", (id) => encodeFrame(frameType.ping, id));
  }

  /** sync(2) in the guest. */
  async sync(): Promise<void> {
    await this.#request("sync", (id) => encodeFrame(frameType.sync, id));
  }

  /** Gives the guest its own entropy, clock and identity; rejects with `guest_refused` naming the step that failed. */
  async afterFork(spec: AfterForkSpec): Promise<void> {
    await this.#request("prepare the forked guest", (id) => encodeAfterFork(id, spec));
  }

  /** Asks the guest to end itself. There is no answer; the VMM exits. */
  powerOff(): void {
    this.#channel.send(encodeFrame(frameType.powerOff, 0));
  }

  /** All processes that the agent knows, finished ones too. */
  async list(): Promise<AgentListing[]> {
    const listings = await this.#request("list processes", (id) => encodeFrame(frameType.list, id), []);
    this.#guestIds = new Set(listings.map(({ id }) => id));
    return listings;
  }

  /** Sends START at once. Throws `invalid_request` if it does not fit a frame, else failures are in `started`. */
  start(spec: StartSpec, options: OutputOptions = {}): AgentProcess {
    const id = this.#nextId();
    const credit = spec.detached ? 0 : (options.windowBytes ?? defaultWindowBytes);
    let frame: Buffer;
    try {
      frame = encodeStart(id, spec, credit);
    } catch (error) {
      if (!(error instanceof RangeError)) throw error;
      const message = "Cannot start: arguments, environment and paths together exceed 64 KiB";
      throw new AppError("invalid_request", message, { cause: error });
    }
    const action = `start ${JSON.stringify(spec.argv?.[0] ?? spec.kind ?? "")}`;
    const process = this.#adopt(id, action, spec.detached ? "start-detached" : "start", [0, 0, 0], options);
    this.#channel.send(frame);
    return process;
  }

  /** Sends ATTACH at once; `started` rejects with `guest_refused` and errno ESRCH if there is no such process. */
  attach(id: number, offsets: PerStream, options: OutputOptions = {}): AgentProcess {
    if (this.#processes.has(id)) {
      throw new AppError("wrong_state", `Cannot attach to process ${id}: it is attached already`);
    }
    const window = options.windowBytes ?? defaultWindowBytes;
    const process = this.#adopt(id, `attach to process ${id}`, "attach", offsets, options);
    this.#channel.send(encodeAttach(id, offsets, [window, window, window]));
    return process;
  }

  /** Ends the connection; processes in the guest go on, detached. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#channel.end(undefined);
    await this.#closed.promise;
  }

  #adopt(
    id: number,
    action: string,
    openedBy: OpenedBy,
    offsets: PerStream,
    options: OutputOptions,
  ): AgentProcess {
    const inputUsed = this.#inputUsed.get(id);
    this.#inputUsed.delete(id);
    const process = new AgentProcess(this.#link, id, { action, openedBy, offsets, inputUsed }, options);
    if (this.#failure) process.lost(this.#failure);
    else this.#processes.set(id, process);
    return process;
  }

  #request(
    action: string,
    encode: (id: number) => Buffer,
    listings?: AgentListing[],
  ): Promise<AgentListing[]> {
    if (this.#failure) return Promise.reject(this.#failure);
    const id = this.#nextId();
    const done = createDeferred<AgentListing[]>();
    const frame = encode(id);
    this.#requests.set(id, { action, done, listings });
    this.#channel.send(frame);
    return done.promise;
  }

  /** An id that no request or process uses, counted from a random one so that earlier connections do not matter. */
  #nextId(): number {
    do this.#lastId = this.#lastId >= maxId ? 1 : this.#lastId + 1;
    while (
      this.#requests.has(this.#lastId) ||
      this.#processes.has(this.#lastId) ||
      this.#guestIds.has(this.#lastId)
    );
    return this.#lastId;
  }

  #receive(frame: Frame): void {
    if (this.#hello === undefined) {
      // The parser lets nothing else through first.
      this.#hello = decodeHelloOk(frame.payload);
      clearTimeout(this.#helloTimer);
      this.#ready.resolve(this.#hello);
      return;
    }
    const request = this.#requests.get(frame.id);
    if (request) return this.#answered(request, frame);
    const process = this.#processes.get(frame.id);
    if (!process) throw new ProtocolError(`frame of type ${frame.type} for the unknown id ${frame.id}`);
    process.receive(frame);
  }

  #answered(request: PendingRequest, frame: Frame): void {
    switch (frame.type) {
      case frameType.ok:
        this.#requests.delete(frame.id);
        return request.done.resolve(request.listings ?? []);
      case frameType.error: {
        const { errno, text } = decodeError(frame.payload);
        this.#requests.delete(frame.id);
        return request.done.reject(refusal(request.action, errno, text));
      }
      case frameType.listing:
        if (request.listings && request.listings.length < maxListings) {
          request.listings.push(decodeListing(frame.payload));
          return;
        }
    }
    throw new ProtocolError(`frame of type ${frame.type} as the answer to "${request.action}"`);
  }

  #drained(): void {
    for (const process of this.#processes.values()) {
      if (this.#channel.isFull) return;
      process.drained();
    }
  }

  #end(reason: Error | undefined): void {
    clearTimeout(this.#helloTimer);
    this.#lifetime.abort();
    const failure = unreachable(reason);
    this.#failure = failure;
    if (reason instanceof ProtocolError) this.#log.warn({ event: "agent.protocol", error: reason.message });
    else this.#log.debug({ event: "agent.closed", reason: reason?.message });
    this.#ready.reject(failure);
    for (const { done } of this.#requests.values()) done.reject(failure);
    this.#requests.clear();
    for (const process of this.#processes.values()) process.lost(failure);
    this.#closed.resolve(reason);
  }
}
