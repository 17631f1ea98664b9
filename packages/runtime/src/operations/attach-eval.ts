/** Evals that a branch carried into a sandbox: their caller has the source, and any call can follow them here. */
import { advice, AppError, type EvalEvent, type EvalInfo, type ParsedOf } from "@forkd/contract";
import { whileAnswering } from "@forkd/machine";
import type { Context } from "../context.ts";
import { evalEvents } from "../guest/eval-events.ts";
import { explainInterpreterEnd } from "../guest/interpreter-end.ts";
import type { WarmKernel } from "../launch/warm-kernel.ts";
import type { Runtime } from "../runtime.ts";
import { intoGuest, streamFromGuest } from "../sandbox/into-guest.ts";
import type { Sandbox } from "../sandbox/sandbox.ts";

export function listEvals(runtime: Runtime, { id }: { id: string }, context: Context): Promise<EvalInfo[]> {
  return intoGuest(runtime, { ...context, id }, (sandbox) =>
    [...sandbox.kernels.values()].flatMap((kernel) => evalsOf(kernel)),
  );
}

function evalsOf({ client, language }: WarmKernel): EvalInfo[] {
  if (client.dead) return [];
  return client.evals.map(({ id, context, isFinished, isFollowed }) => ({
    eval_id: `${language}-${id}`,
    language,
    context,
    state: isFinished ? ("finished" as const) : ("running" as const),
    followed: isFollowed,
  }));
}

export function attachEval(
  runtime: Runtime,
  { id, eval_id: evalId }: ParsedOf<"attachEval">,
  context: Context,
): Promise<AsyncIterable<EvalEvent>> {
  const { signal } = context;
  return streamFromGuest(runtime, { ...context, id }, (sandbox) => {
    const { kernel, number, name } = findEval(sandbox, evalId);
    const { current: machine } = sandbox;
    const call = { id, caller: context.caller?.name, signal };
    const events = evalEvents(runtime, call, performance.now(), async ({ signal: gone, ...reader }) => {
      try {
        const outcome = kernel.client.follow(number, reader, gone);
        const result = await whileAnswering(machine.agent, "follow the eval", outcome);
        return { result, language: kernel.language, context: name, restart: undefined };
      } catch (error) {
        throw await explainInterpreterEnd(machine, kernel, error);
      }
    });
    return Promise.resolve(events);
  });
}

function findEval(sandbox: Sandbox, evalId: string): { kernel: WarmKernel; number: number; name: string } {
  for (const kernel of sandbox.kernels.values()) {
    const info = evalsOf(kernel).find((each) => each.eval_id === evalId);
    if (!info) continue;
    if (info.followed)
      throw new AppError("wrong_state", `Cannot attach to eval ${evalId}: another call reads its output`, {
        details: { eval_id: evalId },
        remedy: advice("Wait until that call has ended."),
      });
    return { kernel, number: Number(evalId.slice(kernel.language.length + 1)), name: info.context ?? "" };
  }
  throw new AppError(
    "not_found",
    `Cannot find eval ${evalId}: it never ran here, or another has ended since`,
    {
      details: { eval_id: evalId },
    },
  );
}
