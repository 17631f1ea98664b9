/**
 * The program that reads the memory of a VMM. It answers each line on its stdin with one line on its stdout.
 * If it fails, its last line is `error ERRNO text`. It always exits when this process exits.
 */
import { spawn, type ChildProcessByStdio } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { isErrno, LineSplitter, nativeTool } from "@forkd/base";
import { advice, AppError, toAppError } from "@forkd/contract";

const tool = "forkd-pages";
const maxLine = 8192;

type Pending = { keyword: string; resolve: (numbers: number[]) => void; reject: (error: Error) => void };

export class PagesHelper implements AsyncDisposable {
  #child: ChildProcessByStdio<Writable, Readable, null>;
  #closed: Promise<void>;
  readonly #lines = new LineSplitter({ maxLength: maxLine });
  #pending: Pending | undefined;
  /** why no more answers follow; the first cause counts */
  #ended: Error | undefined;

  constructor(args: readonly string[], signal?: AbortSignal) {
    const child = spawn(nativeTool(tool), args, { stdio: ["pipe", "pipe", "ignore"] });
    this.#child = child;
    const onAbort = (): void => {
      this.#end(signal?.reason instanceof Error ? signal.reason : new Error(String(signal?.reason)));
    };
    child.once("error", (cause) => this.#end(cannotStart(cause)));
    this.#closed = new Promise((resolve) => {
      child.once("close", (code, killer) => {
        signal?.removeEventListener("abort", onAbort);
        const how = killer === null ? `ended with code ${code}` : `was killed by ${killer}`;
        this.#end(new AppError("engine_failed", `Cannot capture the memory: ${tool} ${how}`));
        resolve();
      });
    });
    child.stdout.setEncoding("utf8");
    child.stdout.on("data", (chunk: string) => this.#read(chunk));
    // A broken pipe means that the program has exited, which "close" handles.
    child.stdin.on("error", () => undefined);
    if (signal?.aborted) onAbort();
    else signal?.addEventListener("abort", onAbort, { once: true });
  }

  /** Sends `line` and returns the numbers of the answer, which starts with `keyword`. One call at a time. */
  answer(keyword: string, line?: string): Promise<number[]> {
    if (this.#ended) return Promise.reject(this.#ended);
    if (this.#pending) {
      return Promise.reject(
        new AppError("internal", `${tool} got a request before it answered the last one`),
      );
    }
    if (line !== undefined) this.#child.stdin.write(`${line}\n`);
    return new Promise((resolve, reject) => {
      this.#pending = { keyword, resolve, reject };
    });
  }

  #read(chunk: string): void {
    for (const line of this.#lines.push(chunk)) this.#dispatch(line);
    if (this.#lines.isTooLong) this.#end(notUnderstood(this.#lines.takeRest()));
  }

  #dispatch(line: string): void {
    const [, errno, text] = /^error (E\w+) (.*)$/.exec(line) ?? [];
    if (errno !== undefined) return this.#end(captureError(errno, text ?? ""));
    const pending = this.#pending;
    const [keyword, ...numbers] = line.split(" ");
    if (!pending || keyword !== pending.keyword || numbers.some((each) => !/^\d{1,15}$/.test(each))) {
      return this.#end(notUnderstood(line));
    }
    this.#pending = undefined;
    pending.resolve(numbers.map(Number));
  }

  #end(error: Error): void {
    this.#ended ??= error;
    this.#child.kill("SIGKILL");
    const pending = this.#pending;
    this.#pending = undefined;
    pending?.reject(this.#ended);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#end(new AppError("engine_failed", "Cannot capture the memory: the capture was cancelled"));
    await this.#closed;
  }
}

function notUnderstood(line: string): AppError {
  return new AppError("engine_failed", `Cannot understand ${tool}: "${line.slice(0, 80)}"`);
}

function cannotStart(cause: Error): AppError {
  const why = isErrno(cause, "ENOENT") ? "it is not built" : cause.message;
  return new AppError("host_not_ready", `Cannot start ${tool}: ${why}`, {
    remedy: advice("Run `make -C native`."),
    cause,
  });
}

export function captureError(errno: string, text: string): AppError {
  const cause = Object.assign(new Error(`${errno}: ${text}`), { code: errno });
  const because = `Cannot capture the memory: ${text}`;
  switch (errno) {
    case "ENOSPC":
    case "EDQUOT":
      return toAppError(cause);
    case "ENOMEM":
      return new AppError("capacity_exhausted", because, {
        // The only mode that needs no memory on the host.
        remedy: { action: "branch_with_mode", mode: "diff" },
        cause,
      });
    case "EPERM":
    case "EACCES":
      return new AppError("host_not_ready", because, {
        remedy: advice("Run the daemon as root, or set kernel.yama.ptrace_scope=0."),
        cause,
      });
    default:
      return new AppError("engine_failed", because, { cause });
  }
}
