/** Runs a command in a guest to its end and keeps the last part of its output. */
import type { AgentClient, AgentProcess } from "@forkd/machine";
import { withExitDeadline } from "../guest/deadline.ts";

const keptBytes = 64 * 1024;
const maxLineChars = 500;

type GuestCommand = {
  argv: readonly string[];
  env: Readonly<Record<string, string>>;
  timeoutMs: number;
  cwd?: string | undefined;
  user?: string | undefined;
  /** content for its standard input */
  input?: AsyncIterable<Uint8Array> | undefined;
  /** each line of its output */
  onLine?: ((line: string) => void) | undefined;
};

export async function runInGuest(
  agent: AgentClient,
  command: GuestCommand,
): Promise<{ exitCode: number; output: string }> {
  const { argv, env, timeoutMs, cwd, user, input, onLine } = command;
  let output = "";
  let line = "";
  const spec = { argv, env, timeoutMs, stdin: input !== undefined };
  const where = { ...(cwd !== undefined && { cwd }), ...(user !== undefined && { user }) };
  const process = agent.start(
    { ...spec, ...where },
    {
      onOutput: ({ bytes }) => {
        const text = bytes.toString("utf8");
        output = (output + text).slice(-keptBytes);
        if (!onLine) return;
        const lines = (line + text).split(/[\r\n]+/);
        line = (lines.pop() ?? "").slice(-maxLineChars);
        for (const each of lines) if (each !== "") onLine(each.slice(0, maxLineChars));
      },
    },
  );
  await process.started;
  if (input !== undefined) void feed(process, input);
  const limits = { timeoutMs, signal: undefined };
  const exit = await withExitDeadline(agent, "the command has not ended", process.exit, limits);
  process.forget();
  return { exitCode: exit.signal === undefined ? (exit.code ?? 0) : 128 + exit.signal, output };
}

/** A command that ends early does not read all of it; its exit says why. */
async function feed(process: AgentProcess, input: AsyncIterable<Uint8Array>): Promise<void> {
  try {
    for await (const bytes of input) await process.write(bytes);
    await process.end();
  } catch {
    process.kill();
  }
}
