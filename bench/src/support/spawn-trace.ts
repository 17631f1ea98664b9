/**
 * The way of one child from the request to its first answer, in steps. The daemon notes the steps of a fork when
 * its log shows debug lines; request and answers are noted here.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Sandbox } from "@forkd/sdk";
import { z } from "zod";
import { divergedBytes } from "./processes.ts";
import type { Rows } from "./rows.ts";
import type { ScratchDaemon } from "./scratch-daemon.ts";
import { allOf, answer, code } from "./turns.ts";

/** Steps in their usual order. A step ends at its mark and begins where the one before ended. */
export const traceSteps = {
  received: "client, socket, HTTP",
  admitted: "check and admission",
  turn: "wait for a turn",
  files: "directories, overlay, manifest",
  spawned: "permissions, spawn of the launcher",
  greeted: "jail, exec and start of QEMU",
  prepared: "sockets, network slot, checks",
  loaded: "device state",
  hello: "guest runs, agent answers",
  after_fork: "identity, clock, entropy",
  seeded: "kernels re-seeded",
  staged: "record synced, sockets checked",
  committed: "record committed",
  answered: "other children, answer of the fork",
  evaluated: "first eval",
} as const;
export type TraceStep = keyof typeof traceSteps;

const lineSchema = z.looseObject({
  event: z.literal("sandbox.trace"),
  sandbox: z.string(),
  at_unix_ms: z.number(),
  steps: z.record(z.string(), z.number()),
});

/** The daemon writes a line before it answers, so those of all children are there. */
function tracesIn(log: string): Map<string, z.output<typeof lineSchema>> {
  const traces = new Map<string, z.output<typeof lineSchema>>();
  for (const line of log.split("\n").filter((each) => each.includes('"sandbox.trace"'))) {
    const trace = lineSchema.parse(JSON.parse(line));
    traces.set(trace.sandbox, trace);
  }
  return traces;
}

const unixMs = () => performance.timeOrigin + performance.now();

/** Time on a CPU of all threads of a process, in ms. */
function cpuMs(pid: number): number {
  const tasks = `/proc/${pid}/task`;
  const nanoseconds = readdirSync(tasks).map((task) =>
    Number(readFileSync(`${tasks}/${task}/schedstat`, "latin1").split(" ", 1)[0]),
  );
  return nanoseconds.reduce((sum, each) => sum + each, 0) / 1e6;
}

async function firstEval(sandbox: Sandbox): Promise<{ at: number; agentMs: number }> {
  const { result, error, durationMs } = await sandbox.eval(code);
  if (result !== answer) throw new Error(`A child did not answer: ${error ?? result}`);
  return { at: unixMs(), agentMs: durationMs };
}

/** Forks n, asks each, and adds one row per child. The daemon's log level must be debug. */
export async function traceFork(
  rows: Rows,
  { forkd, dir }: ScratchDaemon,
  tag: string,
  n: number,
): Promise<void> {
  const sent = unixMs();
  const sandboxes = allOf(await forkd.fork(tag, n), n);
  const answered = unixMs();
  const evals = await Promise.all(sandboxes.map(firstEval));
  const traces = tracesIn(readFileSync(join(dir, "daemon.log"), "utf8"));
  sandboxes.forEach((sandbox, index) => {
    const trace = traces.get(sandbox.id);
    const first = evals[index];
    if (!trace || !first) throw new Error(`The daemon has no trace of ${sandbox.id}`);
    const since = trace.at_unix_ms - sent;
    const inDaemon = Object.entries(trace.steps).map(([step, ms]) => [step, Math.max(0, ms + since)]);
    const pid = sandbox.info.pid ?? 0;
    rows.add({
      case: "trace",
      n,
      wall_ms: first.at - sent,
      index,
      steps: {
        received: Math.max(0, since),
        ...Object.fromEntries(inDaemon),
        answered: answered - sent,
        evaluated: first.at - sent,
      },
      eval_agent_ms: first.agentMs,
      vmm_cpu_ms: cpuMs(pid),
      diverged_mib: divergedBytes(pid) / 1024 / 1024,
    });
  });
  await Promise.all(sandboxes.map((sandbox) => sandbox.kill()));
}
