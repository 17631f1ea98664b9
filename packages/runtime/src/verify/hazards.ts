/** All hazards, in the order of the contract. */
import { hazardIds, type HazardId } from "@forkd/contract";
import type { Hazard } from "./hazard.ts";
import { clock } from "./hazards/clock.ts";
import { compatibility } from "./hazards/compatibility.ts";
import { connections } from "./hazards/connections.ts";
import { disk } from "./hazards/disk.ts";
import { entropy } from "./hazards/entropy.ts";
import { identity } from "./hazards/identity.ts";
import { instant } from "./hazards/instant.ts";
import { network } from "./hazards/network.ts";
import { pids } from "./hazards/pids.ts";
import { prng } from "./hazards/prng.ts";
import { restart } from "./hazards/restart.ts";
import { secrets } from "./hazards/secrets.ts";

/** The compiler refuses an id of the contract without a hazard. */
const byId: Readonly<Record<HazardId, Hazard>> = {
  entropy,
  prng,
  identity,
  clock,
  network,
  connections,
  secrets,
  disk,
  pids,
  compatibility,
  restart,
  instant,
};

export const hazards: readonly Hazard[] = hazardIds.map((id) => byId[id]);
