/** Code in the warm interpreters of a sandbox. */
import { isUtf8 } from "node:buffer";
import {
  AppError,
  maxBufferedOutput,
  type EvalEvent,
  type EvalRequest,
  type EvalResult,
  type Language,
  type ParsedOf,
} from "@forkd/contract";
import { withDeadline } from "@forkd/base";
import type { EvalOutcome } from "@forkd/machine";
import type { Context } from "../context.ts";
import type { Runtime } from "../runtime.ts";
import { OutputBuffer } from "../guest/output-buffer.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { startKernel, type WarmKernel } from "../launch/warm-kernel.ts";

type EvalInput = EvalRequest & { id: string };
type EvalOutput = Extract<EvalEvent, { type: "stdout" | "stderr" }>;
type OnOutput = (stream: 1 | 2, bytes: Buffer) => void | Promise<void>;

/** The kernel of that language; one that died is started again, without the state it had. */
async function usableKernel(sandbox: Sandbox, language: Language | undefined): Promise<WarmKernel> {
  const { restarts, languages } = sandbox.current;
  const wanted = language ?? languages[0];
  const under = wanted && restarts.get(wanted);
  if (under) return under;
  const kernel = sandbox.kernel(language);
  if (!kernel.client.dead) return kernel;
  const { language: known } = kernel;
  const restart = restartKernel(sandbox, kernel).finally(() => restarts.delete(known));
  restarts.set(known, restart);
  return restart;
}

async function restartKernel(sandbox: Sandbox, kernel: WarmKernel): Promise<WarmKernel> {
  const { agent, kernels } = sandbox.current;
  const fresh = await startKernel(agent, {
    language: kernel.language,
    argv: kernel.argv,
    env: sandbox.env,
  });
  kernels.set(fresh.language, fresh);
  return fresh;
}

type Ready = {
  readonly kernel: WarmKernel;
  /** what is left of the eval's time; 0 = no limit */
  readonly leftMs: number;
};

/** Waits for a kernel that is being started or found again, as long as the eval may take and its caller is there. */
async function readyKernel(runtime: Runtime, request: EvalInput, signal?: AbortSignal): Promise<Ready> {
  const startedAt = performance.now();
  const limitMs = request.timeout_secs * 1000;
  const kernel = usableKernel(runtime.registry.get(request.id), request.language);
  const inTime = limitMs === 0 ? kernel : withDeadline(kernel, limitMs, () => notReady(request));
  const found = await unlessAborted(inTime, signal);
  return {
    kernel: found,
    leftMs: limitMs === 0 ? 0 : Math.max(1, limitMs - (performance.now() - startedAt)),
  };
}

function unlessAborted<T>(work: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  return new Promise((resolve, reject) => {
    const gone = () =>
      reject(new AppError("cancelled", "Eval was cancelled before it began", { cause: signal?.reason }));
    if (signal?.aborted) gone();
    signal?.addEventListener("abort", gone, { once: true });
    work.then(resolve, reject).finally(() => signal?.removeEventListener("abort", gone));
  });
}

function notReady({ timeout_secs: seconds }: EvalInput): AppError {
  return new AppError(
    "deadline_exceeded",
    `Cannot evaluate: the interpreter is being started again and was not ready in ${seconds} s`,
    { details: { timeout_secs: seconds }, remedy: { action: "retry_later" } },
  );
}

async function evaluateWith(
  { kernel, leftMs }: Ready,
  request: EvalInput,
  signal: AbortSignal | undefined,
  onOutput: OnOutput,
): Promise<{ result: EvalOutcome; kernel: WarmKernel }> {
  const result = await kernel.client.evaluate({
    code: request.code,
    context: request.context,
    timeoutMs: leftMs,
    onOutput,
    ...(signal && { signal }),
  });
  return { result, kernel };
}

function toResult(
  request: EvalInput,
  { result, kernel }: { result: EvalOutcome; kernel: WarmKernel },
  output: { stdout: OutputBuffer; stderr: OutputBuffer },
  durationMs: number,
): EvalResult {
  const failed = result.status === "error" || result.status === "interrupted";
  return {
    result: result.status === "value" ? result.text : null,
    result_json: failed ? null : (result.json ?? null),
    stdout: output.stdout.text(),
    stderr: output.stderr.text(),
    error: failed ? errorLine(result) : null,
    traceback: failed ? result.text : null,
    exit_code: failed ? 1 : 0,
    interrupted: result.status === "interrupted",
    timed_out: result.timedOut,
    truncated: output.stdout.isCut || output.stderr.isCut,
    language: kernel.language,
    context: request.context,
    duration_ms: durationMs,
  };
}

/** `Name: message` */
function errorLine(result: EvalOutcome): string {
  if (result.error) return `${result.error.name}: ${result.error.value}`;
  return result.text.trim().split("\n").at(-1) ?? "error";
}

export async function evaluate(
  runtime: Runtime,
  request: EvalInput,
  { signal }: Context,
): Promise<EvalResult> {
  const startedAt = performance.now();
  using stdout = new OutputBuffer(maxBufferedOutput, runtime.outputRoom);
  using stderr = new OutputBuffer(maxBufferedOutput, runtime.outputRoom);
  const ready = await readyKernel(runtime, request, signal);
  const done = await evaluateWith(ready, request, signal, (stream, bytes) =>
    (stream === 1 ? stdout : stderr).push(bytes),
  );
  return toResult(request, done, { stdout, stderr }, performance.now() - startedAt);
}

/** As evaluate(), with output as it comes; the reader's pace is the guest's pace. */
export async function streamEval(
  runtime: Runtime,
  request: EvalInput,
  { signal }: Context,
): Promise<AsyncIterable<EvalEvent>> {
  const ready = await readyKernel(runtime, request, signal);
  return streamEvents(runtime, ready, request, signal);
}

async function* streamEvents(
  runtime: Runtime,
  ready: Ready,
  request: EvalInput,
  outer: AbortSignal | undefined,
): AsyncGenerator<EvalEvent> {
  const startedAt = performance.now();
  const stop = new AbortController();
  const signal = outer ? AbortSignal.any([outer, stop.signal]) : stop.signal;
  const queue: { event: EvalOutput; taken: (() => void)[] }[] = [];
  let wake = () => {};
  let finished = false;
  const offsets = { 1: 0, 2: 0 };
  const onOutput: OnOutput = (stream, bytes) => {
    const text = isUtf8(bytes);
    const offset = offsets[stream];
    offsets[stream] += bytes.length;
    const event: EvalOutput = {
      type: stream === 1 ? "stdout" : "stderr",
      offset,
      data: bytes.toString(text ? "utf8" : "base64"),
      encoding: text ? "utf8" : "base64",
    };
    return new Promise((taken) => {
      const last = queue.at(-1);
      // Small pieces become one: a guest that sends single bytes must not cost an object each.
      if (
        last &&
        last.event.type === event.type &&
        last.event.encoding === event.encoding &&
        event.encoding === "utf8"
      ) {
        last.event.data += event.data;
        last.taken.push(taken);
      } else queue.push({ event, taken: [taken] });
      wake();
    });
  };
  const empty = {
    stdout: new OutputBuffer(0, runtime.outputRoom),
    stderr: new OutputBuffer(0, runtime.outputRoom),
  };
  const last = evaluateWith(ready, request, signal, onOutput)
    .then((done): EvalEvent => ({
      type: "result",
      result: toResult(request, done, empty, performance.now() - startedAt),
    }))
    .finally(() => {
      finished = true;
      wake();
    });
  // Waited for only when all output has been read.
  last.catch(() => undefined);
  try {
    for (;;) {
      const item = queue.shift();
      if (item) {
        yield item.event;
        for (const taken of item.taken) taken();
      } else if (finished) break;
      else await new Promise<void>((resolve) => (wake = resolve));
    }
    yield await last;
  } finally {
    stop.abort();
    for (const taken of queue.flatMap((item) => item.taken)) taken();
  }
}

export function interrupt(
  runtime: Runtime,
  { id, language }: { id: string; language?: Language | undefined },
): void {
  runtime.registry.get(id).kernel(language).client.interrupt();
}

export async function listContexts(
  runtime: Runtime,
  { id }: { id: string },
): Promise<{ name: string; language: Language }[]> {
  const kernels = [...runtime.registry.get(id).kernels.values()];
  const all = await Promise.all(
    kernels.map(async (kernel) =>
      (await kernel.client.contexts()).map((name) => ({ name, language: kernel.language })),
    ),
  );
  return all.flat();
}

export async function dropContext(
  runtime: Runtime,
  { id, name, language }: ParsedOf<"dropContext">,
): Promise<void> {
  if (name === "default")
    throw new AppError("invalid_request", 'Cannot drop the context "default": it holds what warm-up made');
  await runtime.registry.get(id).kernel(language).client.dropContext(name);
}
