/**
 * Every call into a guest goes through here: it keeps the sandbox active until it has ended, resumes a paused
 * sandbox that has auto-resume, and if the machine ends meanwhile the caller learns why. A stream is active
 * until it has been read or closed.
 */
import { AppError } from "@forkd/contract";
import type { Context } from "../context.ts";
import type { HeldBytes } from "../guest/guest-bytes.ts";
import { resumeSandbox } from "../launch/resume-sandbox.ts";
import type { Runtime } from "../runtime.ts";
import { explainEnd } from "./exit-reason.ts";
import type { Sandbox } from "./sandbox.ts";

/** Which sandbox is called, and by whom. */
type GuestCall = Context & { readonly id: string };

/** Runs a call that ends with its result. */
export async function intoGuest<T>(
  runtime: Runtime,
  call: GuestCall,
  work: (sandbox: Sandbox) => Promise<T> | T,
): Promise<T> {
  using entered = await enterSandbox(runtime, call);
  try {
    return await work(entered.sandbox);
  } catch (error) {
    throw await entered.explain(error);
  }
}

/** Runs a call that collects data of the guest for its result. `held` counts it until the answer is sent. */
export async function collectFromGuest<T>(
  runtime: Runtime,
  call: GuestCall,
  work: (sandbox: Sandbox, held: HeldBytes) => Promise<T>,
): Promise<T> {
  const held = runtime.guestBytes.open(call.id, call.caller?.name);
  let isKept = false;
  try {
    const result = await intoGuest(runtime, call, (sandbox) => work(sandbox, held));
    isKept = call.untilAnswered !== undefined;
    call.untilAnswered?.(held);
    return result;
  } finally {
    if (!isKept) held[Symbol.dispose]();
  }
}

/**
 * Runs a call whose result is a stream. The call lasts as long as the stream, so the caller must read or
 * close it.
 */
export async function streamFromGuest<T>(
  runtime: Runtime,
  call: GuestCall,
  work: (sandbox: Sandbox) => Promise<AsyncIterable<T>>,
): Promise<AsyncIterable<T>> {
  const entered = await enterSandbox(runtime, call);
  try {
    return whileRead(await work(entered.sandbox), entered);
  } catch (error) {
    using _ended = entered;
    throw await entered.explain(error);
  }
}

type EnteredSandbox = Disposable & {
  readonly sandbox: Sandbox;
  /** Why the machine ended if it did, otherwise the error itself. */
  readonly explain: (error: unknown) => Promise<unknown>;
};

/** Begins a call. Disposing the result ends it. */
export async function enterSandbox(runtime: Runtime, call: GuestCall): Promise<EnteredSandbox> {
  const sandbox = runtime.registry.get(call.id);
  const activity = runtime.activity.begin(sandbox);
  try {
    if (sandbox.needsResume && sandbox.timeouts.autoResume) await autoResume(runtime, sandbox, call);
    const machine = sandbox.machineAtWork;
    return {
      sandbox,
      explain: (error) => explainEnd(sandbox, machine, error),
      [Symbol.dispose]: () => activity[Symbol.dispose](),
    };
  } catch (error) {
    activity[Symbol.dispose]();
    throw error;
  }
}

async function autoResume(runtime: Runtime, sandbox: Sandbox, context: Context): Promise<void> {
  try {
    await resumeSandbox(runtime, sandbox, context);
  } catch (error) {
    if (!(error instanceof AppError)) throw error;
    throw new AppError(error.code, `Cannot resume ${sandbox.id} for this call: ${error.message}`, {
      details: { ...error.details, id: sandbox.id },
      remedy: error.remedy,
      cause: error,
    });
  }
}

/** Not a generator: the `finally` of a generator that was never started does not run. */
function whileRead<T>(source: AsyncIterable<T>, entered: EnteredSandbox): AsyncIterable<T> {
  return {
    [Symbol.asyncIterator]: () => {
      const inner = source[Symbol.asyncIterator]();
      const step = async (work: () => Promise<IteratorResult<T>>): Promise<IteratorResult<T>> => {
        try {
          const result = await work();
          if (result.done) entered[Symbol.dispose]();
          return result;
        } catch (error) {
          entered[Symbol.dispose]();
          throw await entered.explain(error);
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
