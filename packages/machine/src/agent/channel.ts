/**
 * Frames over a byte stream: the socket of the VMM's character device.
 *
 * Frames sent in one tick leave in one write. Writers notice a guest that does not read through `isFull` and
 * `onDrain`. Small frames are always accepted, up to a limit that only a guest that never reads can reach.
 */
import type { Socket } from "node:net";
import { ProtocolError } from "./errors.ts";
import { FrameParser, type Frame } from "./wire/frames.ts";

/** Unsent bytes above which the guest is assumed to never read. */
const maxUnsentBytes = 32 * 1024 * 1024;

/** A chunk that follows others at once: the guest sends faster than the host reads. */
const largeChunkBytes = 32 * 1024;

interface ChannelEvents {
  /** may throw ProtocolError, which ends the channel */
  onFrame(frame: Frame): void;
  onDrain(): void;
  /** called once, after all other calls */
  onEnd(reason: Error | undefined): void;
}

export class FrameChannel {
  readonly #socket: Socket;
  readonly #parser: FrameParser;
  readonly #events: ChannelEvents;
  #corked = false;
  #ended = false;
  /** frames that wait until the channel is released */
  #held: Buffer[] | undefined;
  #heldBytes = 0;
  #holds = 0;

  constructor(socket: Socket, parser: FrameParser, events: ChannelEvents) {
    this.#socket = socket;
    this.#parser = parser;
    this.#events = events;
    socket.on("data", (chunk: Buffer) => this.#receive(chunk));
    socket.on("drain", () => {
      if (!this.#ended) this.#events.onDrain();
    });
    socket.on("error", (error) => this.end(error));
    socket.on("close", () => this.end(undefined));
  }

  /** True while writers should wait for `onDrain`. */
  get isFull(): boolean {
    return this.#held !== undefined || this.#socket.writableNeedDrain;
  }

  /** True while frames are delayed. */
  get isHeld(): boolean {
    return this.#held !== undefined;
  }

  /** Delays frames until `release` is called as many times as this. */
  hold(): void {
    this.#holds++;
    this.#held ??= [];
  }

  release(): void {
    this.#holds--;
    const held = this.#held;
    if (this.#holds > 0 || !held) return;
    this.#held = undefined;
    this.#heldBytes = 0;
    for (const bytes of held) this.send(bytes);
    if (!this.#ended && !this.isFull) this.#events.onDrain();
  }

  send(bytes: Buffer): void {
    if (this.#ended) return;
    if (this.#held) {
      this.#held.push(bytes);
      this.#heldBytes += bytes.length;
      if (this.#heldBytes > maxUnsentBytes)
        this.end(new ProtocolError("too many frames waited while it was held"));
      return;
    }
    if (!this.#corked) {
      this.#corked = true;
      this.#socket.cork();
      process.nextTick(() => {
        this.#corked = false;
        if (!this.#ended) this.#socket.uncork();
      });
    }
    this.#socket.write(bytes);
    if (this.#socket.writableLength > maxUnsentBytes)
      this.end(new ProtocolError("it does not read its port"));
  }

  /** Closes the channel; the first reason counts. Sends pending frames only as far as the socket accepts. */
  end(reason: Error | undefined): void {
    if (this.#ended) return;
    this.#ended = true;
    if (this.#corked) this.#socket.uncork();
    this.#socket.destroy();
    this.#events.onEnd(reason);
  }

  #receive(chunk: Buffer): void {
    if (this.#ended) return;
    // A guest that sends without end must not keep the event loop busy for longer than one chunk.
    if (chunk.length >= largeChunkBytes) {
      this.#socket.pause();
      setImmediate(() => this.#socket.resume());
    }
    try {
      for (const frame of this.#parser.push(chunk)) {
        this.#events.onFrame(frame);
        // A handler may end the channel; then drop the rest of the chunk.
        if (this.#ended) return;
      }
    } catch (error) {
      this.end(error instanceof Error ? error : new Error(String(error)));
    }
  }
}
