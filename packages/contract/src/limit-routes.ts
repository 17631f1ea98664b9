/** Routes about how long a sandbox may live. */
import { sandboxIdSchema } from "./ids.ts";
import { timeoutsSchema } from "./limits.ts";
import { route } from "./route.ts";
import { sandboxSchema } from "./sandboxes.ts";

export const limitRoutes = {
  setTimeouts: route({
    method: "post",
    path: "/v1/sandboxes/{id}/timeouts",
    summary: "Change time to live, idle timeout and what follows them; null removes, what is left out stays",
    status: 200,
    kind: "json",
    scope: "run",
    input: timeoutsSchema.extend({ id: sandboxIdSchema }),
    output: sandboxSchema,
  }),
} as const;
