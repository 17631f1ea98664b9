/**
 * Events for listeners. A ring keeps the last ones, and a listener has a position in it instead of its own
 * queue: a slow listener costs no memory, and gets an event that says when it has missed some.
 */
import { randomBytes } from "node:crypto";
import {
  advice,
  AppError,
  controlTypes,
  matchesType,
  type EventsRequest,
  type EventType,
  type ForkdEvent,
  type NetworkLogEntry,
  type SandboxInfo,
  plural,
} from "@forkd/contract";
import { Wakeup } from "@forkd/base";
import { hasLabels } from "./label-filter.ts";

/** events kept for listeners that reconnect or are behind */
const keptEvents = 1000;
const maxListeners = 256;
const maxPerOwner = 64;
/** characters of a reason, which may contain output of a guest */
const maxReason = 2000;

type EventFilter = Pick<EventsRequest, "type" | "sandbox" | "tag" | "label">;
type Facts = Omit<ForkdEvent, "id" | "type" | "at_unix">;
type SnapshotFacts = { status?: ForkdEvent["status"]; sandbox?: string | undefined; reason?: string };

export type Listener = AsyncIterable<ForkdEvent> & {
  /** fires when the listener has missed events, even if it does not ask for the next one */
  readonly overflowed: AbortSignal;
};

export type ListenOptions = {
  /** id of the last event seen */
  readonly after?: string | undefined;
  readonly signal?: AbortSignal | undefined;
  /** who listens; the number of streams per owner is limited */
  readonly owner?: string | undefined;
  /** a part of the daemon listens: it has no limit and is not counted */
  readonly isOwn?: boolean | undefined;
};

export class EventBus {
  /** identifies this run of the daemon; ids from another run are unknown */
  readonly epoch = randomBytes(6).toString("hex");
  readonly #kept: number;
  readonly #maxListeners: number;
  readonly #maxPerOwner: number;
  #ring: ForkdEvent[] = [];
  #last = 0;
  #isClosed = false;
  readonly #listeners = new Set<Place>();
  /** called synchronously with each event */
  onEvent: ((event: ForkdEvent) => void) | undefined;

  constructor(options: { kept?: number; maxListeners?: number; maxPerOwner?: number } = {}) {
    this.#kept = options.kept ?? keptEvents;
    this.#maxListeners = options.maxListeners ?? maxListeners;
    this.#maxPerOwner = options.maxPerOwner ?? maxPerOwner;
  }

  /** Streams of clients. */
  get listeners(): number {
    return [...this.#listeners].filter(({ isOwn }) => !isOwn).length;
  }

  sandbox(type: EventType, info: SandboxInfo, reason: string | undefined = info.reason): void {
    this.#emit(type, {
      tag: info.snapshot_tag,
      sandbox_id: info.id,
      sandbox: info,
      ...(reason !== undefined && { reason: reason.slice(0, maxReason) }),
    });
  }

  port(type: "port.opened" | "port.closed", info: SandboxInfo, port: number, reason?: string): void {
    this.#emit(type, {
      tag: info.snapshot_tag,
      sandbox_id: info.id,
      sandbox: info,
      port,
      ...(reason !== undefined && { reason }),
    });
  }

  snapshot(type: EventType, tag: string, { status, sandbox, reason }: SnapshotFacts = {}): void {
    this.#emit(type, {
      tag,
      ...(sandbox !== undefined && { sandbox_id: sandbox }),
      ...(status !== undefined && { status }),
      ...(reason !== undefined && { reason: reason.slice(0, maxReason) }),
    });
  }

  denied(info: SandboxInfo, network: NetworkLogEntry): void {
    const { snapshot_tag: tag, id } = info;
    this.#emit("network.denied", { tag, sandbox_id: id, sandbox: info, network });
  }

  /** Emits the last event. Every listener ends after it. */
  close(): void {
    if (this.#isClosed) return;
    this.#emit("daemon.stopping", {});
    this.#isClosed = true;
    for (const listener of this.#listeners) listener.wake();
  }

  #emit(type: EventType, facts: Facts): void {
    const number = ++this.#last;
    const event: ForkdEvent = { id: this.#idOf(number), type, at_unix: Date.now() / 1000, ...facts };
    this.#ring.push(event);
    if (this.#ring.length > this.#kept) this.#ring.shift();
    this.onEvent?.(event);
    for (const listener of this.#listeners) {
      if (listener.next < this.#oldest) listener.overflow();
      else listener.wake();
    }
  }

  get #oldest(): number {
    return this.#last - this.#ring.length + 1;
  }

  #idOf(number: number): string {
    return `${this.epoch}-${number}`;
  }

  /**
   * Events from now on, or those after the event `after`; a first event `reset` says that some in between are
   * lost. Events are kept for the listener from the moment this returns until the signal fires or the
   * iteration ends.
   */
  listen(filter: EventFilter, options: ListenOptions = {}): Listener {
    if (options.isOwn !== true) this.#requireRoom(options.owner);
    const { start, lost } = this.#startAfter(options.after);
    const place = new Place(start, options);
    this.#listeners.add(place);
    const { signal } = options;
    // A client that was disconnected may never ask for another event.
    const stop = () => {
      place.stop();
      leave();
    };
    const leave = () => {
      signal?.removeEventListener("abort", stop);
      this.#listeners.delete(place);
    };
    signal?.addEventListener("abort", stop, { once: true });
    if (signal?.aborted) stop();
    const events = this.#follow(place, filter, lost);
    // The `finally` of a generator that was never started does not run.
    return {
      overflowed: place.overflowed,
      [Symbol.asyncIterator]: () => ({
        next: async () => {
          const result = await events.next();
          if (result.done) leave();
          return result;
        },
        return: async () => {
          place.stop();
          leave();
          return events.return(undefined);
        },
      }),
    };
  }

  #requireRoom(owner: string | undefined): void {
    const all = this.listeners;
    if (all >= this.#maxListeners)
      throw tooMany(`${plural(all, "stream")} ${all === 1 ? "is" : "are"} open`, all, this.#maxListeners);
    if (owner === undefined) return;
    const own = [...this.#listeners].filter((listener) => listener.owner === owner).length;
    if (own >= this.#maxPerOwner)
      throw tooMany(`"${owner}" has ${plural(own, "stream")} open`, own, this.#maxPerOwner);
  }

  async *#follow(
    place: Place,
    filter: EventFilter,
    lost: string | undefined,
  ): AsyncGenerator<ForkdEvent, undefined> {
    if (lost !== undefined) yield this.#control("reset", place.next - 1, lost);
    while (!place.isStopped) {
      if (place.overflowed.aborted || place.next < this.#oldest) {
        const reason = "The reader is too slow: events were lost. List again, then listen again";
        return void (yield this.#control("overflow", this.#last, reason));
      }
      const event = this.#ring[place.next - this.#oldest];
      if (event) {
        place.next++;
        if (matches(event, filter)) yield event;
      } else if (this.#isClosed) return;
      else await place.woken();
    }
  }

  /** Not kept, because it concerns one stream. It has the id of the event before it. */
  #control(type: EventType, number: number, reason: string): ForkdEvent {
    return { id: this.#idOf(number), type, at_unix: Date.now() / 1000, reason };
  }

  #startAfter(after: string | undefined): { start: number; lost?: string } {
    const now = this.#last + 1;
    if (after === undefined) return { start: now };
    const [, epoch, text] = /^([0-9a-f]{12})-(\d{1,15})$/.exec(after) ?? [];
    if (epoch === undefined) {
      throw new AppError(
        "invalid_request",
        `Invalid request: after: "${after.slice(0, 64)}" is not the id of an event`,
        {
          details: { issues: [{ path: "after", message: "must be the id of an event" }] },
          remedy: advice("Leave it out to begin with new events."),
        },
      );
    }
    if (epoch !== this.epoch)
      return { start: now, lost: "The daemon was restarted after that event. List again" };
    const start = Number(text) + 1;
    if (start > now) return { start: now, lost: "There is no event with that id yet. List again" };
    if (start < this.#oldest)
      return { start: now, lost: "Events since that one are no longer kept. List again" };
    return { start };
  }
}

/** The position of a listener in the ring. */
class Place {
  next: number;
  readonly owner: string | undefined;
  readonly isOwn: boolean;
  isStopped = false;
  readonly #wakeup = new Wakeup();
  readonly #overflow = new AbortController();

  constructor(next: number, { owner, isOwn = false }: Pick<ListenOptions, "owner" | "isOwn">) {
    this.next = next;
    this.owner = owner;
    this.isOwn = isOwn;
  }

  get overflowed(): AbortSignal {
    return this.#overflow.signal;
  }

  woken(): Promise<void> {
    return this.#wakeup.wait();
  }

  wake(): void {
    this.#wakeup.notify();
  }

  overflow(): void {
    this.#overflow.abort();
    this.wake();
  }

  stop(): void {
    this.isStopped = true;
    this.wake();
  }
}

function tooMany(what: string, listeners: number, limit: number): AppError {
  return new AppError("capacity_exhausted", `Cannot listen to events: ${what} and that is the limit`, {
    details: { listeners, limit },
    remedy: advice("Close some streams and try again."),
  });
}

function matches(event: ForkdEvent, { type, sandbox, tag, label }: EventFilter): boolean {
  if (controlTypes.includes(event.type)) return true;
  if (type !== undefined && !matchesType(event.type, type)) return false;
  if (event.type === "daemon.stopping") return true;
  if (sandbox !== undefined && event.sandbox_id !== sandbox) return false;
  if (tag !== undefined && event.tag !== tag) return false;
  return label === undefined || (event.sandbox !== undefined && hasLabels(event.sandbox.labels, label));
}
