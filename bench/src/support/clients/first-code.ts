/** From nothing to the first result of code: our SDK, and the official SDK of E2B on the same daemon. */
import { inRounds, timed } from "../network/measure.ts";
import type { Rows } from "../rows.ts";
import type { ScratchDaemon } from "../scratch-daemon.ts";
import { answer, code } from "../turns.ts";

/** The part of `@e2b/code-interpreter` that is measured. */
type E2bSandbox = {
  runCode(code: string): Promise<{ text?: string | undefined; error?: { value: string } | undefined }>;
  kill(): Promise<unknown>;
};
export type CreateE2b = () => Promise<E2bSandbox>;

export async function measureFirstCode(
  rows: Rows,
  { forkd }: ScratchDaemon,
  tag: string,
  { rounds, createE2b }: { rounds: number; createE2b: CreateE2b },
): Promise<void> {
  const own = async () => {
    const sandbox = await forkd.create(tag);
    try {
      const { result, error } = await sandbox.eval(code);
      if (result !== answer) throw new Error(`The sandbox answered ${error ?? result}`);
    } finally {
      ends.push(() => sandbox.kill());
    }
  };
  const e2b = async () => {
    const sandbox = await createE2b();
    try {
      const { text, error } = await sandbox.runCode(code);
      if (text !== answer) throw new Error(`The sandbox of E2B answered ${error?.value ?? text}`);
    } finally {
      ends.push(() => sandbox.kill());
    }
  };
  /** A sandbox ends after the clock was read. */
  const ends: (() => Promise<unknown>)[] = [];
  const measured = async (work: () => Promise<void>): Promise<number[]> => {
    try {
      return [await timed(work)];
    } finally {
      for (const end of ends.splice(0)) await end();
    }
  };
  // The first calls compile code and fill caches of the host.
  await measured(own);
  await measured(e2b);
  const found = await inRounds(rounds, {
    "first code, forkd": () => measured(own),
    "first code, e2b": () => measured(e2b),
  });
  for (const [name, times] of Object.entries(found))
    for (const wallMs of times) rows.add({ case: name, n: 1, wall_ms: wallMs });
}
