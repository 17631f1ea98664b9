/**
 * Frames over a byte stream: the socket of the VMM's character device.
 *
 * What is sent in one tick leaves in one write. A guest that does not read is noticed by writers through `isFull` and
 * `onDrain`; small frames are always accepted, up to a bound that only a guest that never reads can reach.
 */
import type { Socket } from "node:net";
import { ProtocolError } from "./errors.ts";
import { FrameParser, type Frame } from "./wire/frames.ts";

/** Unsent bytes at which the guest is taken for one that never reads. */
const maxUnsentBytes = 32 * 1024 * 1024;

export interface ChannelEvents {
  /** may throw ProtocolError, which ends the channel */
  onFrame(frame: Frame): void;
  onDrain(): void;
  /** once; nothing is called after it */
  onEnd(reason: Error | undefined): void;
}

export class FrameChannel {
  readonly #socket: Socket;
  readonly #parser: FrameParser;
  readonly #events: ChannelEvents;
  #corked = false;
  #ended = false;
  /** frames that wait while the channel is held */
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

  /** Frames sent from now on wait, until `release` is called as often as this. */
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
      if (this.#heldBytes > maxUnsentBytes) this.end(new ProtocolError("it was held for too long"));
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

  /** Ends the channel; the first reason wins. Frames sent before leave as far as the socket takes them at once. */
  end(reason: Error | undefined): void {
    if (this.#ended) return;
    this.#ended = true;
    if (this.#corked) this.#socket.uncork();
    this.#socket.destroy();
    this.#events.onEnd(reason);
  }

  #receive(chunk: Buffer): void {
    if (this.#ended) return;
    try {
      for (const frame of this.#parser.push(chunk)) {
        this.#events.onFrame(frame);
        // A handler may end the channel; what follows in the chunk is then nobody's.
        if (this.#ended) return;
      }
    } catch (error) {
      this.end(error instanceof Error ? error : new Error(String(error)));
    }
  }
}
