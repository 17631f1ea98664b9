/** Logs of a sandbox: its console. */
import { consoleLog } from "@forkd/runtime";
import type { Answer } from "./answer.ts";
import { isoOf } from "./describe.ts";
import type { Call, Plane } from "./plane.ts";
import { aliveSandbox, idOf } from "./sandboxes.ts";

const maxLines = 1000;

export async function logsV1(plane: Plane, call: Call): Promise<Answer> {
  const { at, lines } = await linesOf(plane, call);
  const logs = lines.map((line) => ({ timestamp: at, line }));
  const logEntries = lines.map((message) => ({ timestamp: at, message, level: "info", fields: {} }));
  return { status: 200, body: { logs, logEntries } };
}

export async function logsV2(plane: Plane, call: Call): Promise<Answer> {
  const { at, lines } = await linesOf(plane, call);
  return {
    status: 200,
    body: { logs: lines.map((message) => ({ timestamp: at, message, level: "info", fields: {} })) },
  };
}

/** A console has no times, so all lines have that of the start. */
async function linesOf({ runtime }: Plane, call: Call): Promise<{ at: string; lines: string[] }> {
  const { id, created_at_unix: created } = aliveSandbox(runtime, idOf(call));
  const chunks: Uint8Array[] = [];
  for await (const chunk of await consoleLog(runtime, { id, tail: maxLines }, call.context))
    chunks.push(chunk);
  const lines = Buffer.concat(chunks).toString("utf8").split("\n");
  return { at: isoOf(created), lines: lines.filter((line) => line !== "").slice(-maxLines) };
}
