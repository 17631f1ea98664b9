/** Code in the warm interpreters of a sandbox. */
import {
  maxBufferedOutput,
  type EvalEvent,
  type EvalRequest,
  type EvalResult,
  type ParsedOf,
} from "@forkd/contract";
import { whileAnswering, type KernelDisplay } from "@forkd/machine";
import type { Context } from "../context.ts";
import { evalEvents, type EvalHooks } from "../guest/eval-events.ts";
import { toResult, type EvalDone } from "../guest/eval-result.ts";
import { explainInterpreterEnd } from "../guest/interpreter-end.ts";
import { OutputBuffer } from "../guest/output-buffer.ts";
import { readyKernel, type ReadyKernel } from "../guest/ready-kernel.ts";
import type { Runtime } from "../runtime.ts";
import { collectFromGuest, intoGuest, streamFromGuest } from "../sandbox/into-guest.ts";

type EvalInput = EvalRequest & { id: string };

/** The operation of the route `eval`; that name is reserved in strict mode. */
export function evaluate(runtime: Runtime, request: EvalInput, context: Context): Promise<EvalResult> {
  const { signal } = context;
  return collectFromGuest(runtime, { ...context, id: request.id }, async (sandbox, held) => {
    const startedAt = performance.now();
    const stdout = new OutputBuffer(maxBufferedOutput, held);
    const stderr = new OutputBuffer(maxBufferedOutput, held);
    const ready = await readyKernel(sandbox, request, signal);
    const displays: Promise<KernelDisplay>[] = [];
    const done = await evaluateWith(ready, request, {
      signal,
      onOutput: (stream, bytes) => (stream === 1 ? stdout : stderr).push(bytes),
      onDisplay: (display) => displays.push(Promise.resolve(display)),
      hold: held.hold,
    });
    const durationMs = performance.now() - startedAt;
    runtime.metrics.evalSeconds.observe(durationMs / 1000);
    return toResult(done, { stdout, stderr, displays: await Promise.all(displays) }, durationMs);
  });
}

/** Like evaluate(), with output as it comes. The guest is slowed down to the pace of the reader. */
export function streamEval(
  runtime: Runtime,
  request: EvalInput,
  context: Context,
): Promise<AsyncIterable<EvalEvent>> {
  const { signal } = context;
  return streamFromGuest(runtime, { ...context, id: request.id }, async (sandbox) => {
    const askedAt = performance.now();
    const ready = await readyKernel(sandbox, request, signal);
    const call = { id: request.id, caller: context.caller?.name, signal };
    return evalEvents(runtime, call, askedAt, (hooks) => evaluateWith(ready, request, hooks));
  });
}

/** A value is in memory as bytes and as text. */
const valueCopies = 2;

async function evaluateWith(
  { machine, kernel, leftMs }: ReadyKernel,
  request: EvalInput,
  { signal, hold, ...hooks }: EvalHooks,
): Promise<EvalDone> {
  const { restart } = kernel;
  const silent = new AbortController();
  const evaluating = kernel.client.evaluate({
    code: request.code,
    context: request.context,
    env: request.env,
    timeoutMs: leftMs,
    ...hooks,
    hold: (bytes) => hold(bytes * valueCopies),
    signal: signal ? AbortSignal.any([signal, silent.signal]) : silent.signal,
  });
  try {
    const result = await whileAnswering(machine.agent, "evaluate", evaluating);
    kernel.restart = undefined;
    return { result, language: kernel.language, context: request.context, restart };
  } catch (error) {
    // Takes back an eval that still waits, and ends one that runs.
    silent.abort(error);
    throw await explainInterpreterEnd(machine, kernel, error);
  }
}

export function interrupt(
  runtime: Runtime,
  { id, language, context: name }: ParsedOf<"interrupt">,
  context: Context,
): Promise<void> {
  return intoGuest(runtime, { ...context, id }, (sandbox) => {
    const { client } = sandbox.kernel(language);
    if (name === undefined || name === client.runningContext) client.interrupt();
  });
}
