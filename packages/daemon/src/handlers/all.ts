/** A handler for every route: each takes the checked input, calls one operation, and returns what it gives. */
import type { Runtime } from "@forkd/runtime";
import type { Handlers } from "../router.ts";
import { activeHandlers } from "./active.ts";
import { execHandlers } from "./exec.ts";
import { fileHandlers } from "./files.ts";
import { sandboxHandlers } from "./sandboxes.ts";
import { snapshotHandlers } from "./snapshots.ts";
import { systemHandlers } from "./system.ts";
import { workspaceHandlers } from "./workspaces.ts";

export type Daemon = {
  readonly runtime: Runtime;
  readonly version: string;
  /** asks the daemon to stop once the running requests have been answered */
  readonly stop: () => void;
};

export function allHandlers(daemon: Daemon): Handlers {
  return {
    ...systemHandlers(daemon),
    ...snapshotHandlers(daemon),
    ...sandboxHandlers(daemon),
    ...workspaceHandlers(daemon),
    ...activeHandlers(daemon.runtime, { ...execHandlers(daemon), ...fileHandlers(daemon) }),
  };
}
