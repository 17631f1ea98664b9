/** The events of a streamed eval. The guest is slowed down to the pace of the reader. */
import { AsyncQueue } from "@forkd/base";
import type { EvalEvent } from "@forkd/contract";
import type { EvalReader, KernelDisplay } from "@forkd/machine";
import type { Runtime } from "../runtime.ts";
import { mainDisplay, toDisplay, toResult, type EvalDone } from "./eval-result.ts";
import { OutputBuffer } from "./output-buffer.ts";
import { outputEvent, type OutputEvent } from "./output-event.ts";

export type EvalHooks = Required<EvalReader> & { readonly signal: AbortSignal | undefined };

type StreamCall = {
  /** of the sandbox */
  readonly id: string;
  readonly caller: string | undefined;
  readonly signal: AbortSignal | undefined;
};

/** `run` gives output and results to its hooks; its signal is aborted when the reader has gone. */
export async function* evalEvents(
  { metrics, guestBytes }: Pick<Runtime, "metrics" | "guestBytes">,
  { id, caller, signal: outer }: StreamCall,
  askedAt: number,
  run: (hooks: EvalHooks) => Promise<EvalDone>,
): AsyncGenerator<EvalEvent> {
  const startedAt = performance.now();
  const stop = new AbortController();
  const signal = outer ? AbortSignal.any([outer, stop.signal]) : stop.signal;
  using held = guestBytes.open(id, caller);
  const queue = new AsyncQueue<Queued>();
  const offsets = { 1: 0, 2: 0 };
  let durationMs = 0;
  let hasMain = false;
  const done = run({
    signal,
    hold: held.hold,
    onOutput: (stream, bytes) => {
      const event = outputEvent(stream, offsets[stream], bytes);
      offsets[stream] += bytes.length;
      return new Promise((taken) => enqueue(queue, event, taken));
    },
    // Not slowed down: a kernel may display only so much in an eval.
    onDisplay: (display) => queue.push({ display }),
  }).finally(() => {
    durationMs = performance.now() - startedAt;
    queue.end();
  });
  // Awaited only when all output has been read.
  done.catch(() => undefined);
  try {
    for await (const queued of queue) {
      if ("display" in queued) {
        const display = await queued.display;
        hasMain ||= display.isMain;
        yield { type: "display", display: toDisplay(display) };
      } else {
        yield queued.event;
        for (const resume of queued.taken) resume();
      }
    }
    const ended = await done;
    const main = hasMain ? undefined : mainDisplay(ended.result);
    if (main) yield { type: "display", display: main };
    const none = { stdout: new OutputBuffer(0, held), stderr: new OutputBuffer(0, held) };
    const result = await toResult(ended, none, durationMs);
    metrics.evalSeconds.observe((performance.now() - askedAt) / 1000);
    yield { type: "result", result };
  } finally {
    stop.abort();
    for (const queued of queue.clear()) if ("taken" in queued) for (const resume of queued.taken) resume();
  }
}

/** Output that waits for the reader with what lets the guest continue once it was read; or a result. */
type Queued =
  { event: OutputEvent; taken: (() => void)[] } | { display: KernelDisplay | Promise<KernelDisplay> };

/** Joins small pieces of text: a guest that sends single bytes must not cost an object each. */
function enqueue(queue: AsyncQueue<Queued>, event: OutputEvent, taken: () => void): void {
  const { newest: last } = queue;
  const isSameKind =
    last && "event" in last && last.event.type === event.type && last.event.encoding === event.encoding;
  if (isSameKind && event.encoding === "utf8") {
    last.event.data += event.data;
    last.taken.push(taken);
  } else queue.push({ event, taken: [taken] });
}
