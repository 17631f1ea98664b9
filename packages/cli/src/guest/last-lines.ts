/** The events of a command from its last lines on, for `attach --tail`. */
import type { CommandEvent } from "@forkd/sdk";

type OutputEvent = Extract<CommandEvent, { type: "stdout" | "stderr" }>;
type Counts = { readonly stdout: number; readonly stderr: number };

/** What a guest keeps of each stream of a command. */
const keptBytes = 256 * 1024;

/** Where to begin to read so that everything that the guest still has is read. */
export function firstKept(written: Counts): Counts {
  return {
    stdout: Math.max(0, written.stdout - keptBytes),
    stderr: Math.max(0, written.stderr - keptBytes),
  };
}

/**
 * Passes on the last `count` lines of each stream before position `written`, then everything after it. Earlier
 * output is kept until the stream has reached `written`, or the command has exited.
 */
export async function* lastLines(
  events: AsyncIterable<CommandEvent>,
  { count, written }: { count: number; written: Counts },
): AsyncGenerator<CommandEvent> {
  const held = { stdout: new Held(count, written.stdout), stderr: new Held(count, written.stderr) };
  for await (const event of events) {
    if (event.type === "stdout" || event.type === "stderr") yield* held[event.type].pass(event);
    else {
      if (event.type === "exit") yield* [...held.stdout.release(), ...held.stderr.release()];
      yield event;
    }
  }
}

/** The earlier output of one stream. */
class Held {
  readonly #count: number;
  readonly #until: number;
  #events: OutputEvent[] = [];
  #isReleased = false;

  constructor(count: number, until: number) {
    this.#count = count;
    this.#until = until;
  }

  pass(event: OutputEvent): OutputEvent[] {
    if (this.#isReleased) return [event];
    this.#events.push(event);
    const end = event.offset + bytesOf(event).length;
    return end < this.#until ? [] : this.release();
  }

  release(): OutputEvent[] {
    this.#isReleased = true;
    const [first] = this.#events;
    if (first === undefined) return [];
    const all = Buffer.concat(this.#events.map(bytesOf));
    this.#events = [];
    // What was written after `until` is new, not one of the last lines.
    const old = all.subarray(0, Math.max(0, this.#until - first.offset));
    const start = startOfLast(old, this.#count);
    const data = all.subarray(start);
    if (data.length === 0) return [];
    return [{ ...first, offset: first.offset + start, data: data.toString("base64"), encoding: "base64" }];
  }
}

function bytesOf({ data, encoding }: OutputEvent): Buffer {
  return Buffer.from(data, encoding);
}

/** Where the last `count` lines begin; a line without its line end counts. */
function startOfLast(text: Buffer, count: number): number {
  if (count === 0) return text.length;
  let at = text.at(-1) === 0x0a ? text.length - 1 : text.length;
  for (let lines = 0; lines < count; lines++) {
    if (at <= 0) return 0;
    at = text.lastIndexOf(0x0a, at - 1);
    if (at === -1) return 0;
  }
  return at + 1;
}
