/** The same call for several things: each outcome is shown, the first failure gives the exit code. */
import { toErrorBody } from "@forkd/contract/wire";
import { exitCodeOf, inCliWords } from "./exit-code.ts";
import type { Output } from "./output.ts";
import { remedyOf } from "./remedies.ts";

type Batch = {
  readonly items: readonly string[];
  /** key of the item in the JSON form */
  readonly name: string;
  /** word for success, also a key of the JSON form */
  readonly done: string;
  /** one after the other, where an earlier call may decide a later one */
  readonly inTurn?: true;
};

export async function forEach(
  out: Output,
  batch: Batch,
  call: (item: string) => Promise<unknown>,
): Promise<number> {
  const outcomes = await settle(batch, call);
  const failures = outcomes.map((outcome) =>
    outcome.status === "rejected" ? inCliWords(toErrorBody(outcome.reason)) : undefined,
  );
  if (out.json) {
    const entry = (item: string, index: number) => ({
      [batch.name]: item,
      [batch.done]: failures[index] === undefined,
      ...failures[index],
    });
    out.document(batch.items.map(entry));
  } else {
    for (const [index, item] of batch.items.entries()) {
      const failure = failures[index];
      if (failure === undefined) out.line(item);
      else out.complain(`forkd: ${item}: ${failure.error}`);
    }
  }
  const first = failures.find((failure) => failure !== undefined);
  if (first === undefined) return 0;
  const remedy = remedyOf(first);
  if (!out.json && remedy !== undefined) out.complain(`  ${remedy}`);
  return exitCodeOf(first.code);
}

async function settle(
  { items, inTurn }: Batch,
  call: (item: string) => Promise<unknown>,
): Promise<PromiseSettledResult<unknown>[]> {
  if (!inTurn) return Promise.allSettled(items.map((item) => call(item)));
  const outcomes: PromiseSettledResult<unknown>[] = [];
  for (const item of items) outcomes.push(...(await Promise.allSettled([call(item)])));
  return outcomes;
}
