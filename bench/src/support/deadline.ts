/**
 * Waits that end: each one has a deadline, and the error names what the benchmark waited for. An interrupt
 * ends all of them, so that the benchmark unwinds and stops what it has started.
 */
import type { ChildProcess } from "node:child_process";
import { setMaxListeners } from "node:events";
import { setTimeout as sleep } from "node:timers/promises";
import { runProgram, withDeadline, type ProgramResult } from "@forkd/base";
import type { Transport } from "@forkd/sdk";

/** Seconds. Long enough for a slow, emulated and busy host: a deadline means that something hangs. */
export const limits = {
  /** a command on the host, such as cp or gcc */
  command: 300,
  /** a VMM, an agent or an interpreter, until it answers */
  guest: 120,
  /** the daemon, until it listens or has exited */
  daemon: 120,
  /** an HTTP call, and each part of an answer that is a stream */
  call: 300,
  /** a call that builds a snapshot from packages */
  build: 1800,
} as const;

export class DeadlineError extends Error {}

const interruption = new AbortController();
// Every wait listens.
setMaxListeners(0, interruption.signal);

/** Ends every wait, now and from now on. */
export function interrupt(): void {
  interruption.abort(new Error("interrupted"));
}

export function isInterrupted(): boolean {
  return interruption.signal.aborted;
}

/** Waits for `work`, at most `secs`. The caller stops the work itself. */
export async function deadline<T>(what: string, secs: number, work: Promise<T>): Promise<T> {
  const { signal } = interruption;
  let onAbort = (): void => undefined;
  const interrupted = new Promise<never>((_, reject) => {
    onAbort = () => reject(signal.reason as Error);
    if (signal.aborted) onAbort();
    else signal.addEventListener("abort", onAbort);
  });
  try {
    return await ended(what, secs, Promise.race([work, interrupted]));
  } finally {
    signal.removeEventListener("abort", onAbort);
  }
}

/** The same for what must end also after an interrupt. */
export function ended<T>(what: string, secs: number, work: Promise<T>): Promise<T> {
  return withDeadline(work, secs * 1000, () => new DeadlineError(`Waited ${secs} s for ${what}`));
}

/** Does nothing for a while. */
export async function rest(ms: number): Promise<void> {
  await sleep(ms, undefined, { signal: interruption.signal });
}

/** Asks again and again until `check` holds, for conditions that have no event. */
export async function poll(
  what: string,
  check: () => boolean | Promise<boolean>,
  { secs = limits.guest, everyMs = 50 }: { secs?: number; everyMs?: number } = {},
): Promise<void> {
  const until = performance.now() + secs * 1000;
  while (!(await check())) {
    if (performance.now() > until) throw new DeadlineError(`Waited ${secs} s for ${what}`);
    await rest(everyMs);
  }
}

/** Runs a program of the host to its end. Kills it at the deadline. */
export async function command(
  program: string,
  args: readonly string[],
  options: { cwd?: string; env?: NodeJS.ProcessEnv; secs?: number } = {},
): Promise<ProgramResult> {
  const { secs = limits.command, ...rest } = options;
  const abort = new AbortController();
  try {
    const done = runProgram(program, args, { ...rest, signal: abort.signal });
    return await deadline(`${program} ${args[0] ?? ""} to exit`, secs, done);
  } finally {
    abort.abort();
  }
}

function closed(child: ChildProcess): Promise<number | null> {
  if (child.exitCode !== null || child.signalCode !== null) return Promise.resolve(child.exitCode);
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => resolve(code));
  });
}

/**
 * Waits until a child process has exited and its pipes are closed. Returns its exit code; kills it if that
 * takes too long.
 */
export async function exitOf(what: string, child: ChildProcess, secs: number): Promise<number | null> {
  try {
    return await deadline(`${what} to exit`, secs, closed(child));
  } catch (error) {
    child.kill("SIGKILL");
    throw error;
  }
}

/** Sends a signal that must end the process, and waits for that; kills it if that takes too long. */
export async function stop(
  what: string,
  child: ChildProcess,
  { signal, secs }: { signal: "SIGTERM" | "SIGKILL"; secs: number },
): Promise<void> {
  child.kill(signal);
  try {
    await ended(`${what} to exit`, secs, closed(child));
  } catch (error) {
    child.kill("SIGKILL");
    throw error;
  }
}

/** Every call, and every part of a streamed answer, gets a deadline. */
export function withCallDeadline(transport: Transport): Transport {
  return async (request) => {
    const { method, path } = request;
    const what = `the answer to ${method} ${path}`;
    const secs = method === "POST" && path === "/v1/snapshots" ? limits.build : limits.call;
    const response = await deadline(what, secs, transport(request));
    return {
      ...response,
      text: () => deadline(`the end of ${what}`, secs, response.text()),
      body: partsOf(response.body, (part) => deadline(`the next part of ${what}`, secs, part)),
    };
  };
}

async function* partsOf(
  body: AsyncIterable<Uint8Array>,
  wait: (part: Promise<IteratorResult<Uint8Array>>) => Promise<IteratorResult<Uint8Array>>,
): AsyncGenerator<Uint8Array> {
  const iterator = body[Symbol.asyncIterator]();
  try {
    for (;;) {
      const { done, value } = await wait(iterator.next());
      if (done) return;
      yield value;
    }
  } finally {
    await iterator.return?.();
  }
}
