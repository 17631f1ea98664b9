/** E2B's API over the operations of a runtime. */
import { Scope, type Logger } from "@forkd/base";
import type { Runtime } from "@forkd/runtime";
import { ForkSnapshots } from "./control/fork-snapshots.ts";
import { MetricsHistory } from "./control/metrics-history.ts";
import type { Plane } from "./control/plane.ts";
import { Records } from "./control/records.ts";
import { dataPlane } from "./data-plane.ts";
import { Builds } from "./templates/builds.ts";
import { TemplateNames } from "./templates/names.ts";
import { Uploads } from "./templates/uploads.ts";
import type { DataPlane } from "./types.ts";

export type E2b = AsyncDisposable & {
  readonly plane: Plane;
  readonly data: DataPlane;
};

type Options = {
  readonly runtime: Runtime;
  /** entries "NAME=TAG": names of templates and the snapshots that they stand for */
  readonly templates: readonly string[];
  /** of the host names of ports */
  readonly domain: () => string | undefined;
};

const endings = ["sandbox.killed", "sandbox.expired", "sandbox.died"] as const;

export async function openE2b({ runtime, templates, domain }: Options): Promise<E2b> {
  await using building = new Scope();
  const records = await Records.open(runtime);
  const names = await TemplateNames.open(runtime, templates);
  const uploads = await Uploads.open(runtime);
  const builds = building.use(new Builds({ runtime, names, uploads }));
  const forks = await ForkSnapshots.open(runtime);
  const metrics = new MetricsHistory();
  const plane: Plane = { runtime, records, names, builds, uploads, forks, metrics, domain };
  const data = dataPlane({ runtime, tokens: records });
  const stopping = new AbortController();
  const cleaning = cleanUp(plane, stopping.signal, runtime.log);
  building.defer(async () => {
    stopping.abort();
    await cleaning;
  });
  const scope = building.keep();
  return { plane, data, [Symbol.asyncDispose]: () => scope[Symbol.asyncDispose]() };
}

/** Removes what only existed for sandboxes that have ended. Never rejects. */
async function cleanUp(plane: Plane, signal: AbortSignal, log: Logger): Promise<void> {
  try {
    while (await followEndings(plane, signal));
  } catch (error) {
    log.warn({ event: "e2b.cleanup", outcome: "failed", error });
  }
}

/** Resolves with true if some events were lost, and with false when the daemon stops. */
async function followEndings({ runtime, records, forks }: Plane, signal: AbortSignal): Promise<boolean> {
  // Begins before the sandboxes are looked at, so that none can end unseen.
  const events = runtime.events.listen({ type: [...endings] }, { signal, isOwn: true });
  await records.prune();
  await forks.removeUnused();
  for await (const { type, sandbox_id: id } of events) {
    if (type === "overflow" || type === "reset") return true;
    if (id !== undefined && !runtime.registry.find(id)) await records.forget(id);
    await forks.removeUnused();
  }
  return false;
}
