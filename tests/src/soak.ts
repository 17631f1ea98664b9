/**
 * npm run soak -- [--minutes 15] [--seed N] [--lanes 3] [--disk 2500m]
 *
 * The model of tests/src/e2e/model.test.ts for longer: random operations on sandboxes and snapshots while the
 * daemon is killed, the disk fills, the clock jumps and VMMs stop or are lost.
 */
import "./support/orphans.ts";
import { parseArgs } from "node:util";
import { runModel } from "./support/model/run-model.ts";

const { values } = parseArgs({
  options: {
    minutes: { type: "string", default: "15" },
    seed: { type: "string", default: String(Date.now() % 1_000_000) },
    lanes: { type: "string", default: "3" },
    disk: { type: "string", default: "2500m" },
  },
});
const seed = Number(values.seed);
process.stderr.write(`seed ${seed}, ${values.minutes} minutes\n`);
const counts = await runModel({
  seed,
  seconds: Number(values.minutes) * 60,
  lanes: Number(values.lanes),
  diskSize: values.disk,
  faultEveryMs: 8_000,
});
process.stdout.write(`${JSON.stringify({ seed, ...counts }, null, 2)}\n`);
