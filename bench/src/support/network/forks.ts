/** Forks and commands with jail and network, beside those of a daemon that uses neither. */
import type { Forkd, Sandbox } from "@forkd/sdk";
import type { Rows } from "../rows.ts";
import type { ScratchDaemon } from "../scratch-daemon.ts";
import { allOf, ask } from "../turns.ts";
import { addTimes, inRounds, timed } from "./measure.ts";

export type Pair = { readonly full: ScratchDaemon; readonly bare: ScratchDaemon };

const warmingForks = 20;
export const contenders = { full: "jail and network", bare: "neither" } as const;

export async function killAll(sandboxes: readonly Sandbox[]): Promise<void> {
  await Promise.all(sandboxes.map((sandbox) => sandbox.kill()));
}

/** Forks, and asks each child for a first answer. */
async function forkAndAsk(forkd: Forkd, tag: string, n: number): Promise<[number, number, Sandbox[]]> {
  const begun = performance.now();
  const entries = await forkd.fork(tag, n);
  const forkMs = performance.now() - begun;
  const sandboxes = allOf(entries, n);
  await Promise.all(sandboxes.map(ask));
  return [performance.now() - begun, forkMs, sandboxes];
}

/** The first fork of a snapshot verifies its files, which is not what is measured. */
export async function warmUp({ forkd }: ScratchDaemon, tag: string): Promise<void> {
  const [, , sandboxes] = await forkAndAsk(forkd, tag, 1);
  await killAll(sandboxes);
}

export async function measureForks(
  rows: Rows,
  pair: Pair,
  tag: string,
  { n, rounds }: { n: number; rounds: number },
): Promise<void> {
  const names = ["full", "bare"] as const;
  // The daemons' own code becomes fast only after some forks.
  for (const which of names)
    await killAll((await forkAndAsk(pair[which].forkd, tag, Math.min(n, warmingForks)))[2]);
  for (let round = 0; round < rounds; round++) {
    for (const which of round % 2 === 0 ? names : names.toReversed()) {
      const [wallMs, forkMs, sandboxes] = await forkAndAsk(pair[which].forkd, tag, n);
      rows.add({ case: `fork, ${contenders[which]}`, n, wall_ms: wallMs, fork_ms: forkMs });
      await killAll(sandboxes);
    }
  }
}

/** Small commands in one sandbox of each, in turns. */
export async function measureExecs(
  rows: Rows,
  pair: Pair,
  tag: string,
  { calls, rounds }: { calls: number; rounds: number },
): Promise<void> {
  await using full = await pair.full.forkd.create(tag);
  await using bare = await pair.bare.forkd.create(tag);
  const execs = (sandbox: Sandbox) => async () => {
    const times: number[] = [];
    for (let call = 0; call < calls; call++)
      times.push(await timed(() => sandbox.commands.run(["true"], { check: true })));
    return times;
  };
  // The first commands translate code of the guest.
  for (const sandbox of [full, bare]) await execs(sandbox)();
  const times = await inRounds(rounds, { full: execs(full), bare: execs(bare) });
  for (const which of ["full", "bare"] as const) addTimes(rows, `exec, ${contenders[which]}`, times[which]);
}
