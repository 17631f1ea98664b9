/** Waits that end: each one has a deadline, and the error names what the benchmark waited for. */
import type { ChildProcess } from "node:child_process";
import { setTimeout as sleep } from "node:timers/promises";
import { runCommand, withDeadline, type CommandResult } from "@forkd/base";
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

/** Waits for `work`, at most `secs`. The caller stops the work itself. */
export function deadline<T>(what: string, secs: number, work: Promise<T>): Promise<T> {
  return withDeadline(work, secs * 1000, () => new DeadlineError(`Waited ${secs} s for ${what}`));
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
    await sleep(everyMs);
  }
}

/** Runs a program of the host to its end. Kills it at the deadline. */
export async function command(
  program: string,
  args: readonly string[],
  options: { cwd?: string; secs?: number } = {},
): Promise<CommandResult> {
  const { secs = limits.command, ...rest } = options;
  const abort = new AbortController();
  try {
    const done = runCommand(program, args, { ...rest, signal: abort.signal });
    return await deadline(`${program} ${args[0] ?? ""} to exit`, secs, done);
  } finally {
    abort.abort();
  }
}

/** Waits until a child process has exited and its pipes are closed; kills it at the deadline. Returns its exit code. */
export async function exitOf(what: string, child: ChildProcess, secs: number): Promise<number | null> {
  if (child.exitCode !== null || child.signalCode !== null) return child.exitCode;
  const closed = new Promise<number | null>((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => resolve(code));
  });
  try {
    return await deadline(`${what} to exit`, secs, closed);
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
    const { status, headers, text, body } = await deadline(what, secs, transport(request));
    return {
      status,
      ...(headers && { headers }),
      text: () => deadline(`the end of ${what}`, secs, text()),
      body: partsOf(body, (part) => deadline(`the next part of ${what}`, secs, part)),
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
