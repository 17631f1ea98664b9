/**
 * Calls into a guest keep its sandbox awake, and wake it where it is to be woken: around every handler of commands, evals and files.
 * An answer that is a stream counts until it has been read, or given up.
 */
import { enterSandbox, type Call, type Runtime } from "@forkd/runtime";
import type { Handlers, RequestContext } from "../http/handlers.ts";

type AnyHandler = (input: { id: string }, context: RequestContext) => unknown;

export function activeHandlers<H extends Partial<Handlers>>(runtime: Runtime, handlers: H): H {
  const wrapped = Object.entries(handlers).map(([name, handle]) => [
    name,
    active(runtime, handle as unknown as AnyHandler),
  ]);
  // Each takes and gives what the one inside it does.
  return Object.fromEntries(wrapped) as H;
}

function active(runtime: Runtime, handle: AnyHandler): AnyHandler {
  return async (input, context) => {
    const call = await enterSandbox(runtime, input.id, context);
    let isStream = false;
    try {
      const result = await handle(input, context);
      if (!isAsyncIterable(result)) return result;
      isStream = true;
      return whileRead(result, call);
    } catch (error) {
      throw await call.explain(error);
    } finally {
      if (!isStream) call[Symbol.dispose]();
    }
  };
}

function isAsyncIterable(value: unknown): value is AsyncIterable<unknown> {
  return typeof value === "object" && value !== null && Symbol.asyncIterator in value;
}

/** Not a generator: one that was never begun would not run its end. */
function whileRead(source: AsyncIterable<unknown>, call: Call): AsyncIterable<unknown> {
  return {
    [Symbol.asyncIterator]: () => {
      const inner = source[Symbol.asyncIterator]();
      const step = async (work: () => Promise<IteratorResult<unknown>>): Promise<IteratorResult<unknown>> => {
        try {
          const result = await work();
          if (result.done) call[Symbol.dispose]();
          return result;
        } catch (error) {
          call[Symbol.dispose]();
          throw await call.explain(error);
        }
      };
      return {
        next: () => step(() => inner.next()),
        return: (value?: unknown) =>
          step(async () => (await inner.return?.(value)) ?? { done: true, value: undefined }),
      };
    },
  };
}
