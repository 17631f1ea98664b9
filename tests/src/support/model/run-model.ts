/** Lanes that work at random for a while, and the faults meanwhile. */
import { inspect } from "node:util";
import { Random } from "../random.ts";
import { Lane } from "./lane.ts";
import { World } from "./world.ts";

const day = 86_400;

export type ModelOptions = {
  seed: number;
  seconds: number;
  lanes: number;
  /** of the data directory, as for tmpfs */
  diskSize: string;
  /** between two faults */
  faultEveryMs: number;
};

/** Returns how often each thing was done. Throws on a state that must not be. */
export async function runModel(options: ModelOptions): Promise<Record<string, number>> {
  await using world = await World.open(options.diskSize);
  const end = performance.now() + options.seconds * 1000;
  const lanes = Array.from(
    { length: options.lanes },
    (_, index) => new Lane(world, new Random(options.seed + index), `lane${index}`),
  );
  const stop = new AbortController();
  // A lane that waits for a daemon which does not start fails long after the start did.
  let first: { error: unknown } | undefined;
  const isOver = () => performance.now() > end || stop.signal.aborted;
  const work = lanes.map(async (lane) => {
    while (!isOver()) await lane.step();
  });
  const all = [...work, faults(world, options, isOver)].map((each) =>
    each.catch((error: unknown) => {
      first ??= { error };
      stop.abort();
    }),
  );
  await Promise.all(all);
  try {
    if (first) throw first.error;
    world.setClock(0);
    for (const lane of lanes) await lane.settle();
  } catch (error) {
    // A test runner prints no causes.
    const why = inspect(error, { depth: 5 });
    throw new Error(`seed ${options.seed}: ${why}\nWhat was done last:\n${world.trace}`, { cause: error });
  }
  return world.counts;
}

async function faults(world: World, options: ModelOptions, isOver: () => boolean): Promise<void> {
  const random = new Random(options.seed ^ 0x5eed);
  const kinds = [
    () => world.killDaemon(),
    () => world.fillDisk(500 + random.below(2500), random),
    async () => world.setClock((random.below(5) - 2) * day),
  ];
  for (let turn = 0; ; turn++) {
    const until = performance.now() + options.faultEveryMs * (0.5 + random.next());
    while (performance.now() < until && !isOver()) await new Promise((resolve) => setTimeout(resolve, 20));
    if (isOver()) return;
    await kinds[turn % kinds.length]?.();
  }
}
