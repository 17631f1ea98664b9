/** What the handlers of the control plane work with. */
import type { IncomingMessage } from "node:http";
import type { Runtime } from "@forkd/runtime";
import type { Builds } from "../templates/builds.ts";
import type { TemplateNames } from "../templates/names.ts";
import type { Uploads } from "../templates/uploads.ts";
import type { E2bRequest } from "../types.ts";
import type { Answer } from "./answer.ts";
import type { ForkSnapshots } from "./fork-snapshots.ts";
import type { MetricsHistory } from "./metrics-history.ts";
import type { Records } from "./records.ts";

export type Plane = {
  readonly runtime: Runtime;
  readonly records: Records;
  readonly names: TemplateNames;
  readonly builds: Builds;
  readonly uploads: Uploads;
  readonly metrics: MetricsHistory;
  readonly forks: ForkSnapshots;
  /** of the host names of ports, once the daemon listens on TCP */
  readonly domain: () => string | undefined;
};

export type Call = {
  readonly parameters: Readonly<Record<string, string>>;
  readonly query: URLSearchParams;
  /** {} if the request has none */
  readonly body: object;
  readonly context: E2bRequest["context"];
  readonly incoming: IncomingMessage;
};

export type Handler = (plane: Plane, call: Call) => Answer | Promise<Answer>;
