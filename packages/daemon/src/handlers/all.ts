/** A handler for every route: each takes the checked input, calls one operation, and returns what it gives. */
import type { Runtime } from "@forkd/runtime";
import type { Config } from "../settings/config.ts";
import type { Audit } from "../audit/audit.ts";
import type { KeyStore } from "../access/key-store.ts";
import type { HttpMetrics } from "../http/metrics.ts";
import type { Handlers } from "../http/router.ts";
import { configHandlers } from "./config.ts";
import { execHandlers } from "./exec.ts";
import { fileHandlers } from "./files.ts";
import { keyHandlers } from "./keys.ts";
import { observeHandlers } from "./observe.ts";
import { sandboxHandlers } from "./sandboxes.ts";
import { snapshotHandlers } from "./snapshots.ts";
import { systemHandlers } from "./system.ts";
import { workspaceHandlers } from "./workspaces.ts";

export type Daemon = {
  readonly runtime: Runtime;
  readonly version: string;
  readonly config: Config;
  /** asks the daemon to stop once the running requests have been answered */
  readonly stop: () => void;
  readonly keys: KeyStore;
  readonly audit: Audit;
  readonly http: HttpMetrics;
};

export function allHandlers(daemon: Daemon): Handlers {
  return {
    ...systemHandlers(daemon),
    ...configHandlers(daemon),
    ...snapshotHandlers(daemon),
    ...sandboxHandlers(daemon),
    ...workspaceHandlers(daemon),
    ...execHandlers(daemon),
    ...fileHandlers(daemon),
    ...keyHandlers(daemon),
    ...observeHandlers(daemon),
  };
}
