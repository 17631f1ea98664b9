/** Runs a command in a guest to its end and keeps the last part of its output. */
import type { AgentClient } from "@forkd/machine";
import { withExitDeadline } from "../guest/deadline.ts";

const keptBytes = 64 * 1024;

export async function runInGuest(
  agent: AgentClient,
  command: { argv: readonly string[]; env: Readonly<Record<string, string>>; timeoutMs: number },
): Promise<{ exitCode: number; output: string }> {
  let output = "";
  const process = agent.start(command, {
    onOutput: ({ bytes }) => {
      output = (output + bytes.toString("utf8")).slice(-keptBytes);
    },
  });
  await process.started;
  const limits = { timeoutMs: command.timeoutMs, signal: undefined };
  const exit = await withExitDeadline(agent, "the command has not ended", process.exit, limits);
  process.forget();
  return { exitCode: exit.signal === undefined ? (exit.code ?? 0) : 128 + exit.signal, output };
}
