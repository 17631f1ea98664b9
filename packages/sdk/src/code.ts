/** Code in the warm interpreters of one sandbox. */
import { AppError } from "@forkd/contract/wire";
import type { EvalDisplay as WireDisplay, EvalEvent as WireEvent, Language } from "@forkd/contract";
import type { EvalResult as WireResult } from "@forkd/contract";
import type { CallOptions, Client } from "./client.ts";
import { fromWire } from "./convert/answer.ts";
import { requestOf } from "./convert/request.ts";
import { OutputBuffer, outputBytes, outputReaders, type OutputCallbacks } from "./output.ts";
import { Run } from "./run.ts";
import type { EvalDisplay, EvalEvent, EvalInfo, EvalResult } from "./types.ts";

/** Who gets output and displayed objects as they arrive. */
export type EvalCallbacks = OutputCallbacks & {
  /** Receives each displayed object, and the value of the last expression (`isMainResult`); default: none. */
  onResult?: ((display: EvalDisplay) => void | Promise<void>) | undefined;
};

/** Options of `eval()` and `runCode()`. */
export type EvalOptions = EvalCallbacks & {
  /** Language of the code; default: the first language of the snapshot. */
  language?: Language | undefined;
  /** Name of the set of variables that the code uses; default: "default". */
  context?: string | undefined;
  /** Environment variables during this code; default: those of the context. */
  env?: Record<string, string> | undefined;
  /** Interrupts the code after this many ms; 0: no limit; default: 30000. */
  timeoutMs?: number | undefined;
  /** Aborts the call, which interrupts the code; default: none. */
  signal?: AbortSignal | undefined;
};

/** Code of `eval()`: await it for its result, or iterate it for its events, of which `result` is the last. */
export type EvalRun = Run<EvalResult, EvalEvent>;

const callbacks = ["onStdout", "onStderr", "onResult"];
/** Characters of displayed objects that a result keeps; an iteration sees all of them. */
const keptDisplays = 64 * 1024 * 1024;

/** Starts to evaluate at once. */
export function evaluate(client: Client, id: string, code: string, options: EvalOptions): EvalRun {
  const open = async () => {
    const request = requestOf("eval", { id, code, stream: true }, options, callbacks);
    return client.lines("eval", request, { signal: options.signal });
  };
  return runOf(open(), options);
}

function runOf(opening: Promise<AsyncGenerator<WireEvent>>, given: EvalCallbacks): EvalRun {
  const open = async () => {
    const events = follow(await opening, given);
    const result = async () => {
      for await (const event of events) if (event.type === "result") return event.result;
      throw new AppError("daemon_unreachable", "The daemon ended the stream without a result");
    };
    return { result, events: () => events };
  };
  return new Run(open());
}

/** The result of a stream has no output and no displays: they are filled in, as far as they are kept. */
async function* follow(lines: AsyncGenerator<WireEvent>, given: EvalCallbacks): AsyncGenerator<EvalEvent> {
  const kept = new Kept();
  const receive = outputReaders(given);
  for await (const line of lines) {
    if (line.type === "stdout" || line.type === "stderr") {
      kept[line.type].push(outputBytes(line));
      await receive?.(line.type, line);
    }
    if (line.type === "display") {
      kept.keep(line.display);
      await given.onResult?.(fromWire(line.display));
    }
    const whole = line.type === "result" ? { ...line, result: kept.complete(line.result) } : line;
    // The stream throws the one kind of line that is not an event here.
    yield fromWire(whole) as EvalEvent;
  }
}

/** What a result needs of the events before it. */
class Kept {
  readonly stdout = new OutputBuffer();
  readonly stderr = new OutputBuffer();
  readonly #displays: WireDisplay[] = [];
  #size = 0;
  #dropped = 0;

  keep(display: WireDisplay): void {
    this.#size += JSON.stringify(display).length;
    if (this.#size > keptDisplays) this.#dropped += 1;
    else this.#displays.push(display);
  }

  complete(result: WireResult): WireResult {
    const cut: NonNullable<WireResult["truncated_parts"]> = [];
    if (this.stdout.truncated) cut.push("stdout");
    if (this.stderr.truncated) cut.push("stderr");
    if (this.#dropped > 0) cut.push("results");
    const parts = [...new Set([...(result.truncated_parts ?? []), ...cut])];
    const dropped = this.#dropped + (result.results_dropped ?? 0);
    return {
      ...result,
      results: this.#displays,
      ...(dropped > 0 && { results_dropped: dropped }),
      stdout: this.stdout.toString(),
      stderr: this.stderr.toString(),
      ...(cut.length > 0 && { truncated: true, truncated_parts: parts }),
    };
  }
}

/** Code that runs in one sandbox. */
export class Evals {
  readonly #client: Client;
  readonly #id: string;

  /** @internal */
  constructor(client: Client, sandboxId: string) {
    this.#client = client;
    this.#id = sandboxId;
  }

  /** Lists code that runs, and code that a branch carried here, until the next code ends. */
  list(options: CallOptions = {}): Promise<EvalInfo[]> {
    return this.#client.invoke("listEvals", { id: this.#id }, options);
  }

  /** Follows code that a branch carried here: its output from the branch on, and its result. */
  attach(evalId: string, options: CallOptions & EvalCallbacks = {}): EvalRun {
    const open = async () => {
      const request = requestOf("attachEval", { id: this.#id, eval_id: evalId }, options, callbacks);
      return this.#client.lines("attachEval", request, options);
    };
    return runOf(open(), options);
  }
}
