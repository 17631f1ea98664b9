/** Bytes from one stream to another, with back-pressure, at the pace that `charge` allows. */
import type { Duplex, Readable, Writable } from "node:stream";
import type { Direction } from "./intercept.ts";

/**
 * A guest's segments arrive one by one, and each read costs as much as one of many segments. A fast stream
 * therefore rests after a small chunk, so that the kernel gathers more. Slow streams, and exchanges of small
 * messages, are never delayed.
 */
const gather = { restMs: 1, windowMs: 5, fastBytes: 64 * 1024, smallBytes: 16 * 1024 };

type Charge = (bytes: number) => Promise<void> | undefined;

/**
 * Writes what `source` reads to `sink`, and ends `sink` when `source` ends unless `end` is false. If `charge` throws, both are
 * destroyed. The caller handles errors and the close of either stream.
 */
export function pump(
  source: Readable,
  sink: Writable,
  charge: Charge,
  options: { end?: boolean } = {},
): void {
  const shouldRest = gatherer();
  /** reasons to wait: the sink is full, the rate is reached, more bytes are worth waiting for */
  let holds = 0;
  const release = (): void => {
    holds--;
    if (holds === 0 && !source.destroyed) source.resume();
  };
  source.on("data", (chunk: Buffer) => {
    if (sink.destroyed || sink.writableEnded) {
      source.destroy();
      return;
    }
    let pause: Promise<void> | undefined;
    try {
      pause = charge(chunk.length);
    } catch {
      source.destroy();
      sink.destroy();
      return;
    }
    const isReady = sink.write(chunk);
    const isResting = shouldRest(chunk.length);
    if (isReady && !pause && !isResting) return;
    source.pause();
    if (isResting) {
      holds++;
      setTimeout(release, gather.restMs);
    }
    if (!isReady) {
      holds++;
      sink.once("drain", release);
    }
    if (pause) {
      holds++;
      void pause.then(release);
    }
  });
  if (options.end !== false) source.once("end", () => sink.end());
}

/** Says after which chunks the stream rests. */
function gatherer(): (bytes: number) => boolean {
  let sinceMs = 0;
  let received = 0;
  return (bytes) => {
    const nowMs = performance.now();
    if (nowMs - sinceMs > gather.windowMs) [sinceMs, received] = [nowMs, 0];
    received += bytes;
    return bytes < gather.smallBytes && received > gather.fastBytes;
  };
}

/** Both directions. When one side fails, so does the other; what a side sent before it closed still arrives. */
export function relay(
  guest: Duplex,
  upstream: Duplex,
  charge: (direction: Direction, bytes: number) => Promise<void> | undefined,
): void {
  pump(guest, upstream, (bytes) => charge("out", bytes));
  pump(upstream, guest, (bytes) => charge("in", bytes));
  closeWith(guest, upstream);
  closeWith(upstream, guest);
}

function closeWith(stream: Duplex, other: Duplex): void {
  stream.on("error", () => other.destroy());
  stream.on("close", () => {
    if (!other.writableEnded) other.destroy();
  });
}
