/** What handlers work with. */
import type { Runtime } from "@forkd/runtime";
import type { KeyStore } from "../access/key-store.ts";
import type { Audit } from "../audit/audit.ts";
import type { LoopWatch } from "../host/loop-watch.ts";
import type { HttpMetrics } from "../http/metrics.ts";
import type { PortServer } from "../ports/port-server.ts";
import type { Config } from "../settings/load.ts";

export type Daemon = {
  readonly runtime: Runtime;
  readonly version: string;
  readonly config: Config;
  /** asks the daemon to stop once the running requests have been answered */
  readonly stop: () => void;
  readonly keys: KeyStore;
  readonly audit: Audit;
  readonly http: HttpMetrics;
  readonly loop: LoopWatch;
  readonly ports: PortServer;
};
