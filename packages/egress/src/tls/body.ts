/** Bodies and raw streams between a guest and a host: with back-pressure, counted and filtered. */
import type { Readable, Writable } from "node:stream";
import type { Direction, InterceptContext, ResponseFilter } from "../proxy/intercept.ts";

export type Flow = {
  readonly direction: Direction;
  readonly context: InterceptContext;
  readonly filter?: Pick<ResponseFilter, "push" | "end"> | undefined;
  /** called once, after the last byte and before the sink ends */
  readonly onEnd?: (() => void) | undefined;
  /** the machine may not send or receive more, or the body does not have the length that its header says */
  readonly onRefused: (error: unknown) => void;
};

/**
 * Copies until the source ends, then ends the sink. Unlike pipeline() it destroys neither when the other
 * fails: a host may answer and close while the guest still sends, and the guest must get that answer.
 */
export function copyBody(source: Readable, sink: Writable, flow: Flow): void {
  let isOver = false;
  const refuse = (error: unknown): void => {
    if (isOver) return;
    isOver = true;
    flow.onRefused(error);
  };
  source.on("data", (chunk: Buffer) => {
    if (isOver) return;
    try {
      const bytes = flow.filter === undefined ? chunk : flow.filter.push(chunk);
      // A sink that was destroyed takes no more, and its owner knows.
      const isReady = bytes.length === 0 || sink.destroyed || sink.write(bytes);
      const allowance = flow.context.charge(flow.direction, chunk.length);
      if (isReady && allowance === undefined) return;
      source.pause();
      Promise.all([allowance, isReady ? undefined : drained(sink)]).then(() => source.resume(), refuse);
    } catch (error) {
      refuse(error);
    }
  });
  source.once("end", () => {
    if (isOver || sink.destroyed) return;
    try {
      const rest = flow.filter?.end();
      if (rest !== undefined && rest.length > 0) sink.write(rest);
      flow.onEnd?.();
      sink.end();
      isOver = true;
    } catch (error) {
      refuse(error);
    }
  });
}

/** Also when the sink closes, which a sink that takes no more does at its time limit. */
function drained(sink: Writable): Promise<void> {
  return new Promise((resolve) => {
    const done = (): void => {
      sink.off("drain", done);
      sink.off("close", done);
      resolve();
    };
    sink.on("drain", done);
    sink.on("close", done);
  });
}
