/** Code in the warm interpreters of a sandbox. */
import {
  AppError,
  maxBufferedOutput,
  type EvalEvent,
  type EvalRequest,
  type EvalResult,
  type Language,
  type ParsedOf,
} from "@forkd/contract";
import { AsyncQueue } from "@forkd/base";
import { GuestProgress, type EvalOutcome } from "@forkd/machine";
import type { Context } from "../context.ts";
import { OutputBuffer } from "../guest/output-buffer.ts";
import { outputEvent, type OutputEvent } from "../guest/output-event.ts";
import { readyKernel, type ReadyKernel } from "../guest/ready-kernel.ts";
import { explainInterpreterEnd } from "../guest/interpreter-end.ts";
import type { Restart, WarmKernel } from "../launch/warm-kernel.ts";
import type { Runtime } from "../runtime.ts";
import { collectFromGuest, intoGuest, streamFromGuest } from "../sandbox/into-guest.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

type EvalInput = EvalRequest & { id: string };

type OnOutput = (stream: 1 | 2, bytes: Buffer) => void | Promise<void>;

/** The operation of the route `eval`; that name is reserved in strict mode. */
export function evaluate(runtime: Runtime, request: EvalInput, context: Context): Promise<EvalResult> {
  const { signal } = context;
  return collectFromGuest(runtime, { ...context, id: request.id }, async (sandbox, held) => {
    const startedAt = performance.now();
    const stdout = new OutputBuffer(maxBufferedOutput, held);
    const stderr = new OutputBuffer(maxBufferedOutput, held);
    const ready = await readyKernel(sandbox, request, signal);
    const onOutput: OnOutput = (stream, bytes) => (stream === 1 ? stdout : stderr).push(bytes);
    const done = await evaluateWith(ready, request, { signal, onOutput, hold: held.hold });
    const durationMs = performance.now() - startedAt;
    runtime.metrics.evalSeconds.observe(durationMs / 1000);
    return toResult(request, done, { stdout, stderr }, durationMs);
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
    return streamEvents(runtime, { ready, request, askedAt, caller: context.caller?.name }, signal);
  });
}

type StreamedEval = {
  readonly ready: ReadyKernel;
  readonly request: EvalInput;
  readonly askedAt: number;
  readonly caller: string | undefined;
};

async function* streamEvents(
  { metrics, guestBytes }: Pick<Runtime, "metrics" | "guestBytes">,
  { ready, request, askedAt, caller }: StreamedEval,
  outer: AbortSignal | undefined,
): AsyncGenerator<EvalEvent> {
  const startedAt = performance.now();
  const stop = new AbortController();
  const signal = outer ? AbortSignal.any([outer, stop.signal]) : stop.signal;
  using held = guestBytes.open(request.id, caller);
  const queue = new AsyncQueue<QueuedOutput>();
  const offsets = { 1: 0, 2: 0 };
  const onOutput: OnOutput = (stream, bytes) => {
    const event = outputEvent(stream, offsets[stream], bytes);
    offsets[stream] += bytes.length;
    return new Promise((taken) => enqueue(queue, event, taken));
  };
  let durationMs = 0;
  const done = evaluateWith(ready, request, {
    signal,
    onOutput,
    hold: held.hold,
  }).finally(() => {
    durationMs = performance.now() - startedAt;
    queue.end();
  });
  // Awaited only when all output has been read.
  done.catch(() => undefined);
  try {
    for await (const { event, taken } of queue) {
      yield event;
      for (const resume of taken) resume();
    }
    const none = { stdout: new OutputBuffer(0, held), stderr: new OutputBuffer(0, held) };
    const result = await toResult(request, await done, none, durationMs);
    metrics.evalSeconds.observe((performance.now() - askedAt) / 1000);
    yield { type: "result", result };
  } finally {
    stop.abort();
    for (const resume of queue.clear().flatMap(({ taken }) => taken)) resume();
  }
}

/** Output that waits for the reader, and what lets the guest continue once it was read. */
type QueuedOutput = { event: OutputEvent; taken: (() => void)[] };

/** Joins small pieces of text: a guest that sends single bytes must not cost an object each. */
function enqueue(queue: AsyncQueue<QueuedOutput>, event: OutputEvent, taken: () => void): void {
  const last = queue.newest;
  const isSameKind = last?.event.type === event.type && last.event.encoding === event.encoding;
  if (last && isSameKind && event.encoding === "utf8") {
    last.event.data += event.data;
    last.taken.push(taken);
  } else queue.push({ event, taken: [taken] });
}

/** A value is in memory as bytes and as text. */
const valueCopies = 2;

type EvalHooks = {
  readonly signal: AbortSignal | undefined;
  readonly onOutput: OnOutput;
  readonly hold: (bytes: number) => void;
};

type EvalDone = { result: EvalOutcome; kernel: WarmKernel; restart: Restart | undefined };

async function evaluateWith(
  { machine, kernel, leftMs }: ReadyKernel,
  request: EvalInput,
  { signal, onOutput, hold }: EvalHooks,
): Promise<EvalDone> {
  const { restart } = kernel;
  try {
    const result = await kernel.client.evaluate({
      code: request.code,
      context: request.context,
      timeoutMs: leftMs,
      onOutput,
      hold: (bytes) => hold(bytes * valueCopies),
      ...(signal && { signal }),
    });
    kernel.restart = undefined;
    return { result, kernel, restart };
  } catch (error) {
    throw await explainInterpreterEnd(machine, kernel, error);
  }
}

async function toResult(
  request: EvalInput,
  { result, kernel, restart }: EvalDone,
  output: { stdout: OutputBuffer; stderr: OutputBuffer },
  durationMs: number,
): Promise<EvalResult> {
  const failed = result.status === "error" || result.status === "interrupted";
  const cut = cutParts(result, output);
  return {
    result: result.status === "value" ? result.text : null,
    result_json: failed ? null : (result.json ?? null),
    stdout: await output.stdout.text(),
    stderr: await output.stderr.text(),
    error: failed ? errorLine(result) : null,
    traceback: failed ? result.text : null,
    exit_code: failed ? 1 : 0,
    interrupted: result.status === "interrupted",
    timed_out: result.timedOut,
    truncated: cut.length > 0,
    ...(cut.length > 0 && { truncated_parts: cut }),
    ...(!failed && result.wholeTextBytes && { result_bytes: result.wholeTextBytes }),
    restarted: restart !== undefined,
    ...(restart?.warmupError !== undefined && { warmup_error: restart.warmupError }),
    language: kernel.language,
    context: request.context,
    duration_ms: durationMs,
  };
}

type Part = NonNullable<EvalResult["truncated_parts"]>[number];

function cutParts(
  { status, wholeTextBytes, isJsonCut, lostOutputBytes = 0 }: EvalOutcome,
  { stdout, stderr }: { stdout: OutputBuffer; stderr: OutputBuffer },
): Part[] {
  const failed = status === "error" || status === "interrupted";
  const parts: Part[] = [];
  if (wholeTextBytes !== undefined) parts.push(failed ? "traceback" : "result");
  if (isJsonCut) parts.push(failed ? "error" : "result_json");
  // Lost output between two evals is not attributed to a stream.
  if (stdout.isCut || lostOutputBytes > 0) parts.push("stdout");
  if (stderr.isCut || lostOutputBytes > 0) parts.push("stderr");
  return parts;
}

/** `Name: message`, or only the name */
function errorLine(result: EvalOutcome): string {
  const { error } = result;
  if (error) return error.value === "" ? error.name : `${error.name}: ${error.value}`;
  const text = result.text.trimEnd();
  return text.slice(text.lastIndexOf("\n") + 1) || "error";
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

export function listContexts(
  runtime: Runtime,
  { id }: { id: string },
  context: Context,
): Promise<{ name: string; language: Language }[]> {
  return intoGuest(runtime, { ...context, id }, async (sandbox) => {
    const kernels = [...sandbox.kernels.values()];
    const all = await Promise.all(
      kernels.map(async (kernel) =>
        (await inTurn(sandbox, "list contexts", kernel.client.contexts())).map((name) => ({
          name,
          language: kernel.language,
        })),
      ),
    );
    return all.flat();
  });
}

export function dropContext(
  runtime: Runtime,
  { id, name, language }: ParsedOf<"dropContext">,
  context: Context,
): Promise<void> {
  return intoGuest(runtime, { ...context, id }, async (sandbox) => {
    if (name === "default")
      throw new AppError("invalid_request", 'Cannot drop the context "default": it holds what warm-up made');
    await inTurn(sandbox, "drop the context", sandbox.kernel(language).client.dropContext(name));
  });
}

/** The interpreter answers when the evals before are done, so only a silent guest is given up. */
function inTurn<T>({ agent }: Sandbox, action: string, answer: Promise<T>): Promise<T> {
  return new GuestProgress(agent, action).next(answer);
}
