/** A warm interpreter of a sandbox: its connection, and what is needed to start it again. */
import { posix } from "node:path";
import { AppError, type Language } from "@forkd/contract";
import { KernelClient, readFile, writeFile, type AgentClient } from "@forkd/machine";
import type { Manifest } from "@forkd/store";
import type { CommandDefaults } from "../guest/command-defaults.ts";
import { outputTail } from "./step-output.ts";

type KernelRecord = Manifest["kernels"][number];

export type WarmKernel = CommandDefaults & {
  language: Language;
  /** text of its ready message */
  version: string;
  argv: readonly string[];
  env: Readonly<Record<string, string>>;
  client: KernelClient;
  /** It replaces one that ended, and no eval has reported that yet. */
  restart?: Restart | undefined;
};

/** What the caller of the next eval has to know about an interpreter that was started again. */
export type Restart = { readonly warmupError?: string };

type KernelSpec = Pick<WarmKernel, "language" | "argv" | "env" | "cwd" | "user">;

export async function startKernel(agent: AgentClient, spec: KernelSpec): Promise<WarmKernel> {
  const client = await KernelClient.start(agent, spec);
  const { language, argv, env, cwd, user } = spec;
  const defaults = { ...(cwd !== undefined && { cwd }), ...(user !== undefined && { user }) };
  return { ...defaults, language, argv, env, version: (await client.ready).slice(0, 256), client };
}

/** Starts one in place of one that ended, and runs the warm-up of the snapshot in it. */
export async function startKernelAgain(agent: AgentClient, spec: KernelSpec): Promise<WarmKernel> {
  const kernel = await startKernel(agent, spec);
  try {
    kernel.restart = await warmUpAgain(agent, kernel);
    await kernel.client.warmed();
    return kernel;
  } catch (error) {
    await kernel.client[Symbol.asyncDispose]();
    throw error;
  }
}

async function warmUpAgain(agent: AgentClient, kernel: WarmKernel): Promise<Restart> {
  const code = await readWarmup(agent, kernel.argv);
  if (code === undefined) return { warmupError: "the snapshot does not contain its warm-up" };
  const failure = await runWarmup(kernel.client, code);
  return failure ? { warmupError: failure.error } : {};
}

const warmupTimeoutMs = 10 * 60_000;
const maxWarmupBytes = 8 << 20;
const maxErrorChars = 1000;
const maxKeptChars = 64 * 1024;

type WarmupFailure = {
  /** the last line of the traceback */
  readonly error: string;
  readonly traceback: string;
  /** the end of what the warm-up wrote */
  readonly output: string;
};

export async function runWarmup(client: KernelClient, code: string): Promise<WarmupFailure | undefined> {
  if (code === "") return undefined;
  let output = "";
  const onOutput = (_stream: 1 | 2, bytes: Buffer): void => {
    output = (output + bytes.toString("utf8")).slice(-maxKeptChars);
  };
  const result = await client.evaluate({ code, context: "default", timeoutMs: warmupTimeoutMs, onOutput });
  if (result.status !== "error" && result.status !== "interrupted") return undefined;
  const traceback = outputTail(result.text);
  const line = traceback.slice(traceback.lastIndexOf("\n") + 1).slice(0, maxErrorChars);
  const error = result.timedOut ? `not done after ${warmupTimeoutMs / 60_000} minutes` : line;
  return { error, traceback, output: outputTail(output) };
}

/** The guest keeps the warm-up beside the program of its interpreter, so that every branch has it, too. */
function warmupPath(argv: readonly string[]): string {
  return posix.join(posix.dirname(argv.at(-1) ?? "/"), "warmup");
}

export async function writeWarmup(agent: AgentClient, argv: readonly string[], code: string): Promise<void> {
  await writeFile(agent, warmupPath(argv), [Buffer.from(code)]);
}

/** Undefined if the snapshot was made before warm-ups were kept, or code in the guest removed it. */
export async function readWarmup(agent: AgentClient, argv: readonly string[]): Promise<string | undefined> {
  const pieces: Buffer[] = [];
  try {
    const limit = maxWarmupBytes;
    for await (const bytes of await readFile(agent, warmupPath(argv), { limit }))
      pieces.push(Buffer.from(bytes));
  } catch (error) {
    if (error instanceof AppError && (error.code === "file_not_found" || error.code === "guest_refused"))
      return undefined;
    throw error;
  }
  return Buffer.concat(pieces).toString("utf8");
}

/** Sends the attach without waiting for a reply; messages may follow it directly. */
export function attachKernel(
  agent: AgentClient,
  record: KernelRecord,
  { env, ...defaults }: CommandDefaults & { env: Readonly<Record<string, string>> },
): WarmKernel {
  const position = {
    processId: record.process_id,
    offsets: record.offsets,
    nextEvalId: record.next_id,
    unanswered: record.unanswered,
    ...(record.running && { running: record.running }),
  };
  const client = KernelClient.attach(agent, position, { version: record.version });
  const { language, version, argv } = record;
  return { ...defaults, language, version, argv, env, client };
}

/** The position of the kernel in its streams, for a manifest. */
export function recordKernel({ language, version, argv, client }: WarmKernel): KernelRecord {
  const { processId, offsets, nextEvalId, unanswered, running } = client.position();
  return {
    language,
    version,
    argv: [...argv],
    process_id: processId,
    offsets: [...offsets],
    next_id: nextEvalId,
    unanswered: [...unanswered],
    ...(running && { running: { ...running } }),
  };
}
