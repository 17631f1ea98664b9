/** What the Python SDK adds to a call; clients/overhead.py measures it in one process. */
import { join } from "node:path";
import { command } from "../deadline.ts";
import { addTimes } from "../network/measure.ts";
import type { Rows } from "../rows.ts";
import { repository } from "../run.ts";
import { statPath } from "./calls.ts";

const sources = join(repository, "sdks/python/src");
const script = join(repository, "bench/clients/overhead.py");

export async function measurePython(
  rows: Rows,
  facts: { socket: string; sandbox: string },
  calls: number,
): Promise<void> {
  const args = [facts.socket, facts.sandbox, statPath, String(calls)];
  const env = { ...process.env, PYTHONPATH: sources, PYTHONDONTWRITEBYTECODE: "1" };
  const { stdout } = await command("python3", [script, ...args], { env });
  // One object: case → times in ms.
  const found = JSON.parse(stdout) as Record<string, number[]>;
  for (const [name, times] of Object.entries(found)) addTimes(rows, name, times);
}
