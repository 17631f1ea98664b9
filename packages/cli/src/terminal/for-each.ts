/** Makes the same call for several items and prints each outcome; the first failure sets the exit code. */
import { toErrorBody, type AppError } from "@forkd/contract/wire";
import type { Forkd } from "@forkd/sdk";
import type { Cli } from "../cli.ts";
import { exitCodeOf, inCliWords } from "./exit-code.ts";
import type { Output } from "./output.ts";
import { remedyOf } from "./remedies.ts";

type Batch<Value> = {
  readonly items: readonly string[];
  /** Key of the item in the JSON output. */
  readonly name: string;
  /** Key of success in the JSON output. */
  readonly done: string;
  /** One after the other, because an earlier call may affect a later one. */
  readonly inTurn?: true;
  /** How a success is shown; default: the item alone. */
  readonly show?: (value: Value) => { readonly lines: readonly string[]; readonly json: object };
};

export async function forEach<Value>(
  out: Output,
  batch: Batch<Value>,
  call: (item: string) => Promise<Value>,
): Promise<number> {
  const outcomes = await settle(batch, call);
  const results = batch.items.map((item, index) => resultOf(batch, item, outcomes[index]));
  if (out.json) out.document(results.map(({ json }) => json));
  else showResults(out, results);
  const first = results.find(({ failure }) => failure !== undefined)?.failure;
  return first === undefined ? 0 : exitCodeOf(first.code);
}

/** The same for sandboxes; a prefix that fits none, or several, is a failure of that one only. */
export async function forEachSandbox(
  cli: Cli,
  forkd: Forkd,
  { prefixes, done }: { prefixes: readonly string[]; done: string },
  call: (id: string) => Promise<unknown>,
): Promise<number> {
  const missing = new Map<string, AppError>();
  const found = await cli.findSandboxes(forkd, prefixes);
  const items = found.map((each) => {
    if ("id" in each) return each.id;
    missing.set(each.prefix, each.error);
    return each.prefix;
  });
  return forEach(cli.out, { items: [...new Set(items)], name: "id", done }, async (item) => {
    const error = missing.get(item);
    if (error) throw error;
    await call(item);
  });
}

type Result = {
  readonly item: string;
  readonly json: object;
  readonly lines: readonly string[];
  readonly failure?: ReturnType<typeof toErrorBody>;
};

function resultOf<Value>(
  { name, done, show }: Batch<Value>,
  item: string,
  outcome: PromiseSettledResult<Value> | undefined,
): Result {
  if (outcome?.status === "fulfilled") {
    const { lines, json } = show?.(outcome.value) ?? { lines: [item], json: {} };
    return { item, lines, json: { [name]: item, [done]: true, ...json } };
  }
  const failure = inCliWords(toErrorBody(outcome?.reason));
  return { item, lines: [], json: { [name]: item, [done]: false, ...failure }, failure };
}

/** Names an item once, and the same remedy once. */
function showResults(out: Output, results: readonly Result[]): void {
  const shown = new Set<string>();
  for (const { item, lines, failure } of results) {
    for (const line of lines) out.line(line);
    if (failure === undefined) continue;
    out.report(`forkd: ${failure.error.includes(item) ? "" : `${item}: `}${failure.error}`);
    const remedy = remedyOf(failure);
    if (remedy === undefined || shown.has(remedy)) continue;
    shown.add(remedy);
    out.report(`  ${remedy}`);
  }
}

async function settle<Value>(
  { items, inTurn }: Batch<Value>,
  call: (item: string) => Promise<Value>,
): Promise<PromiseSettledResult<Value>[]> {
  if (!inTurn) return Promise.allSettled(items.map((item) => call(item)));
  const outcomes: PromiseSettledResult<Value>[] = [];
  for (const item of items) outcomes.push(...(await Promise.allSettled([call(item)])));
  return outcomes;
}
