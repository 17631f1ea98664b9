/** A sandbox as the checks see it. */
import { AppError, type Language } from "@forkd/contract";
import { readFile, whileAnswering, writeFile } from "@forkd/machine";
import { withExitDeadline, withReplyDeadline } from "../guest/deadline.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";
import { CannotCheck, type Subject } from "./hazard.ts";

/** an interpreter takes long to start in an emulated guest on a busy host */
const commandMs = 120_000;
const maxOutputBytes = 1 << 20;
const maxFileBytes = 64 * 1024;
/** not the context of the user, whose variables may hide modules */
const evalContext = "forkd.verify";

export function subjectOf(name: string, sandbox: Sandbox): Subject {
  const run = (argv: readonly string[]) => runCommand(sandbox, argv);
  return {
    name,
    sandbox,
    run,
    sh: (script) => run(["sh", "-c", script]),
    start: (argv) => startCommand(sandbox, argv),
    read: (path) => readText(sandbox, path),
    write: (path, text) => writeFile(sandbox.agent, path, [Buffer.from(text)]),
    evaluate: (language, code) => evaluate(sandbox, language, code),
  };
}

/** Keeps the beginning: a guest may write without end. */
class Text {
  #bytes = 0;
  readonly #pieces: Buffer[] = [];

  push(bytes: Buffer): void {
    const room = maxOutputBytes - this.#bytes;
    if (room <= 0) return;
    this.#pieces.push(Buffer.from(bytes.subarray(0, room)));
    this.#bytes += Math.min(room, bytes.length);
  }

  toString(): string {
    return Buffer.concat(this.#pieces).toString("utf8");
  }
}

async function runCommand({ agent, env }: Sandbox, argv: readonly string[]): Promise<string> {
  const stdout = new Text();
  const stderr = new Text();
  const spec = { argv, env, timeoutMs: commandMs };
  const process = agent.start(spec, {
    onOutput: ({ stream, bytes }) => (stream === 1 ? stdout : stderr).push(bytes),
  });
  try {
    await process.started.catch((error: unknown) => {
      throw withoutProgram(argv, error);
    });
    const limits = { timeoutMs: commandMs, signal: undefined };
    const exit = await withExitDeadline(agent, "the command has not ended", process.exit, limits);
    if (exit.code === 0) return String(stdout);
    const how = exit.timedOut
      ? "did not end in time"
      : `exit code ${exit.code ?? `of signal ${exit.signal}`}`;
    const last = String(stderr).trim().split("\n").at(-1) ?? "";
    throw new AppError("guest_refused", `Cannot run ${argv[0] ?? ""} in the child: ${how} ${last}`.trim());
  } finally {
    process.forget();
  }
}

async function startCommand({ agent, env }: Sandbox, argv: readonly string[]): Promise<void> {
  const process = agent.start({ argv, env, detached: true, keepBytes: 4096 });
  await withReplyDeadline(agent, "the command has not started", process.started).catch((error: unknown) => {
    throw withoutProgram(argv, error);
  });
}

function withoutProgram(argv: readonly string[], error: unknown): unknown {
  const isMissing =
    error instanceof AppError && error.code === "guest_refused" && error.details["errno"] === "ENOENT";
  return isMissing ? new CannotCheck(`no ${argv[0] ?? ""}`) : error;
}

async function readText({ agent }: Sandbox, path: string): Promise<string | undefined> {
  const pieces: Buffer[] = [];
  try {
    for await (const bytes of await readFile(agent, path, { limit: maxFileBytes }))
      pieces.push(Buffer.from(bytes));
  } catch (error) {
    if (error instanceof AppError && error.code === "file_not_found") return undefined;
    throw error;
  }
  return Buffer.concat(pieces).toString("utf8");
}

async function evaluate(sandbox: Sandbox, language: Language, code: string): Promise<string> {
  const stdout = new Text();
  const { client } = sandbox.kernel(language);
  const evaluating = client.evaluate({
    code,
    context: evalContext,
    timeoutMs: commandMs,
    onOutput: (stream, bytes) => {
      if (stream === 1) stdout.push(bytes);
    },
  });
  const { status, text } = await whileAnswering(sandbox.agent, "evaluate", evaluating);
  if (status !== "error" && status !== "interrupted") return String(stdout);
  const last = text.trim().split("\n").at(-1) ?? "";
  throw new AppError("kernel_failed", `The ${language} interpreter of the child refused the check: ${last}`);
}
