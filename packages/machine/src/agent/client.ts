/**
 * AgentClient: the host's end of the agent protocol (docs/spec/agent-protocol.md) over one connection. `open`
 * returns at once, and requests do not wait for the answer to HELLO, so that a fork costs one round trip:
 * HELLO, AFTER_FORK, ATTACH and the first eval leave in one write and are answered in order. If the guest
 * breaks the protocol, the client closes the connection and everything pending rejects: `agent_unreachable`.
 */
import { randomBytes, randomInt } from "node:crypto";
import type { Socket } from "node:net";
import { nullLogger, type Logger, createDeferred, withDeadline } from "@forkd/base";
import { AppError } from "@forkd/contract";
import { guestDeadlines, type GuestDeadlines } from "../deadlines.ts";
import { frameBounds } from "./bounds.ts";
import { FrameChannel } from "./channel.ts";
import { ProtocolError, refusal, silentGuest, unreachable } from "./errors.ts";
import { readClock, readForked, readOk, type AnswerReader } from "./wire/answers.ts";
import {
  encodeFrame,
  FrameParser,
  frameType,
  headerBytes,
  maxPayloadBytes,
  nonceBytes,
  type Frame,
} from "./wire/frames.ts";
import {
  AgentProcess,
  defaultWindowBytes,
  type InputUsed,
  type OpenedBy,
  type OutputOptions,
  type ProcessLink,
} from "./process/process.ts";
import {
  decodeError,
  decodeHelloOk,
  decodeListing,
  type AfterForkReport,
  type AgentHello,
  type AgentListing,
} from "./wire/replies.ts";
import {
  encodeAfterFork,
  encodeAttach,
  encodeClock,
  encodeHello,
  encodeNetwork,
  encodeStart,
  type AfterForkSpec,
  type PerStream,
  type RealtimeNs,
  type StartSpec,
} from "./wire/requests.ts";

const defaultHelloTimeoutMs = 10_000;
const maxId = 0xffff_ffff;
/** Memory of a listing in addition to its texts. */
const listingBytes = 256;

export interface AgentClientOptions {
  /** The agent is known to be between frames: after a boot or in a snapshot of an idle guest. */
  readonly atBoundary: boolean;
  readonly helloTimeoutMs?: number;
  readonly deadlines?: GuestDeadlines;
  readonly signal?: AbortSignal;
  readonly log?: Logger;
}

interface PendingRequest {
  readonly action: string;
  /** Handles a frame other than ERROR; true if it completes the answer. Throws ProtocolError. */
  receive(frame: Frame): boolean;
  fail(error: AppError): void;
}

export class AgentClient implements AsyncDisposable {
  readonly deadlines: GuestDeadlines;
  readonly #channel: FrameChannel;
  readonly #link: ProcessLink;
  readonly #log: Logger;
  readonly #ready = createDeferred<AgentHello>();
  readonly #closed = createDeferred<Error | undefined>();
  readonly #requests = new Map<number, PendingRequest>();
  readonly #processes = new Map<number, AgentProcess>();
  /** detached processes with input that they have not read */
  readonly #inputUsed = new Map<number, InputUsed>();
  /** ids from the guest's last list */
  #guestIds = new Set<number>();
  #lastId = randomInt(1, 2 ** 31);
  #hello: AgentHello | undefined;
  #failure: AppError | undefined;
  #helloTimer: NodeJS.Timeout;
  #heardAt = performance.now();
  #probe: Promise<boolean> | undefined;
  readonly #lifetime = new AbortController();

  /** Takes over the socket and sends HELLO. Never throws: `ready` and `closed` report failures. */
  static open(socket: Socket, options: AgentClientOptions): AgentClient {
    return new AgentClient(socket, options);
  }

  private constructor(socket: Socket, options: AgentClientOptions) {
    this.#log = options.log ?? nullLogger();
    this.deadlines = options.deadlines ?? guestDeadlines;
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
      answered: () => this.#request("detach", (id) => encodeFrame(frameType.ping, id), readOk, Infinity),
      deadlines: this.deadlines,
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
    // Zeros complete a payload that an earlier connection began. The agent skips them everywhere else.
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

  /** Resolves when the connection has ended, with the reason unless it was closed normally. */
  get closed(): Promise<Error | undefined> {
    return this.#closed.promise;
  }

  get isClosed(): boolean {
    return this.#failure !== undefined;
  }

  /** True while nothing is sent because the machine is being captured. */
  get isHeld(): boolean {
    return this.#channel.isHeld;
  }

  async ping(ms = this.deadlines.replyMs): Promise<void> {
    await this.#request("ping", (id) => encodeFrame(frameType.ping, id), readOk, ms);
  }

  /**
   * Whether the agent has sent something lately, or answers now. Rejects if the connection has ended. Callers
   * share one ping, so that many idle streams do not keep a guest awake.
   */
  async isAnswering(): Promise<boolean> {
    const { quietMs, pingMs } = this.deadlines;
    if (performance.now() - this.#heardAt < quietMs) return true;
    this.#probe ??= this.ping(pingMs)
      .then(() => true)
      .catch((error: unknown) => {
        if (this.#failure) throw error;
        return false;
      })
      .finally(() => (this.#probe = undefined));
    return this.#probe;
  }

  /** Calls sync(2) in the guest. */
  async sync(): Promise<void> {
    const { syncMs } = this.deadlines;
    await this.#request("write back its disk", (id) => encodeFrame(frameType.sync, id), readOk, syncMs);
  }

  /**
   * Gives the guest its own entropy, clock and identity, and aborts its connections to other machines. A
   * `guest_refused` error names the failed step.
   */
  async afterFork(spec: AfterForkSpec, ms = this.deadlines.replyMs): Promise<AfterForkReport> {
    return this.#request("prepare the forked guest", (id) => encodeAfterFork(id, spec), readForked, ms);
  }

  /**
   * Brings the guest's network up or down. When it goes down, connections to other machines are aborted, and
   * from then on a dial fails at once. Without a network device: `guest_refused` with errno ENODEV.
   */
  async setNetwork(up: boolean): Promise<void> {
    const state = up ? "up" : "down";
    await this.#request(`bring the network ${state}`, (id) => encodeNetwork(id, state), readOk);
  }

  /**
   * Updates the guest's wall clock after the VM was stopped: sets it if it is behind, or ahead by more than a
   * second. Resolves with the old time.
   */
  async setClock(realtimeNs: RealtimeNs): Promise<{ guestBeforeNs: bigint }> {
    return this.#request("set the clock", (id) => encodeClock(id, realtimeNs), readClock);
  }

  /**
   * Sends nothing until the result is disposed. Once `taken` resolves, the agent has read all frames
   * completely. A running machine is captured in this state, so that no frame is in transit that its children
   * would miss.
   */
  hold(): Disposable & { readonly taken: Promise<void> } {
    const taken = this.ping();
    this.#channel.hold();
    let isHeld = true;
    const release = (): void => {
      if (isHeld) this.#channel.release();
      isHeld = false;
    };
    return { taken, [Symbol.dispose]: release };
  }

  /**
   * All processes that the agent knows, including finished ones. `hold` counts the memory that they take; if it
   * throws, the call rejects with that error.
   */
  async list(hold?: (bytes: number) => void): Promise<AgentListing[]> {
    const listings: AgentListing[] = [];
    let count = 0;
    let refused: { readonly error: unknown } | undefined;
    await this.#request(
      "list processes",
      (id) => encodeFrame(frameType.list, id),
      (frame) => {
        if (frame.type !== frameType.listing || count >= frameBounds.listings) return readOk(frame);
        count++;
        if (refused) return "more";
        const listing = decodeListing(frame.payload);
        try {
          const args = (listing.args ?? []).reduce((sum, each) => sum + each.length, 0);
          hold?.(listingBytes + listing.label.length + listing.command.length + args);
          listings.push(listing);
        } catch (error) {
          // The rest of the answer must still be read. An error in here would close the connection.
          refused = { error };
        }
        return "more";
      },
    );
    if (refused) throw refused.error;
    this.#guestIds = new Set(listings.map(({ id }) => id));
    return listings;
  }

  /** Sends START at once. Throws `invalid_request` if it exceeds a frame; `started` has other failures. */
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

  /** Sends ATTACH at once. Without such a process, `started` rejects with `guest_refused` and errno ESRCH. */
  attach(id: number, offsets: PerStream, options: OutputOptions = {}): AgentProcess {
    if (this.#processes.has(id)) {
      throw new AppError("wrong_state", `Cannot attach to process ${id}: it is attached already`);
    }
    const window = options.windowBytes ?? defaultWindowBytes;
    const process = this.#adopt(id, `attach to process ${id}`, "attach", offsets, options);
    this.#channel.send(encodeAttach(id, offsets, [window, window, window]));
    return process;
  }

  /** Closes the connection; processes in the guest keep running, detached. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** Closes the connection; everything pending rejects with `reason`. */
  async close(reason?: AppError): Promise<void> {
    this.#channel.end(reason);
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

  /** An answer after the deadline is still read, so that it does not break the protocol. Infinity: no deadline. */
  #request<T>(
    action: string,
    encode: (id: number) => Buffer,
    read: AnswerReader<T>,
    ms = this.deadlines.replyMs,
  ): Promise<T> {
    if (this.#failure) return Promise.reject(this.#failure);
    const id = this.#nextId();
    const done = createDeferred<T>();
    const frame = encode(id);
    const receive = (answer: Frame): boolean => {
      const part = read(answer);
      if (part === "more") return false;
      if (!part) throw new ProtocolError(`frame of type ${answer.type} as the answer to "${action}"`);
      done.resolve(part.value);
      return true;
    };
    this.#requests.set(id, { action, receive, fail: (error) => done.reject(error) });
    this.#channel.send(frame);
    return ms === Infinity ? done.promise : withDeadline(done.promise, ms, () => silentGuest(action, ms));
  }

  /** Returns an unused id. Counting starts at a random id, to avoid the ids of earlier connections. */
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
    this.#heardAt = performance.now();
    if (this.#hello === undefined) {
      // The parser guarantees that the first frame is HELLO_OK.
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
    if (frame.type === frameType.error) {
      const { errno, text } = decodeError(frame.payload);
      this.#requests.delete(frame.id);
      return request.fail(refusal(request.action, errno, text));
    }
    if (request.receive(frame)) this.#requests.delete(frame.id);
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
    for (const request of this.#requests.values()) request.fail(failure);
    this.#requests.clear();
    for (const process of this.#processes.values()) process.lost(failure);
    this.#closed.resolve(reason);
  }
}
