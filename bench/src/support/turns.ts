/** Contenders in turns. */
import type { Sandbox } from "@forkd/sdk";
import { answer, code } from "./daemon.ts";

/** The order begins elsewhere in every round: whoever comes first meets what came before. */
export function rotate<T>(items: readonly T[], by: number): T[] {
  const from = by % items.length;
  return [...items.slice(from), ...items.slice(0, from)];
}

export async function ask(sandbox: Sandbox): Promise<void> {
  const { result, error } = await sandbox.eval(code);
  if (result !== answer) throw new Error(`A child did not answer: ${error ?? result}`);
}
