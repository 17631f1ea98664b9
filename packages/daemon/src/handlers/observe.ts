/** Events, stats, metrics. */
import { listen, metricsText, stats } from "@forkd/runtime";
import type { Handlers } from "../http/handlers.ts";
import type { Daemon } from "./all.ts";

export function observeHandlers({ runtime, http }: Daemon) {
  return {
    events: ({ after, ...filter }, { lastEventId, signal, caller }) =>
      listen(runtime, { ...filter, after: lastEventId ?? after }, { signal, caller }),
    stats: (input) => stats(runtime, input),
    metrics: async () => metricsText(runtime, await http.all()),
  } satisfies Partial<Handlers>;
}
