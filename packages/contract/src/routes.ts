/** The table of all routes. Server, OpenAPI document and clients are driven by it. */
import type { z } from "zod";
import { archiveRoutes } from "./archives.ts";
import { branchRoutes } from "./branches.ts";
import { evalRoutes } from "./eval.ts";
import { eventRoutes } from "./events.ts";
import { execRoutes } from "./exec.ts";
import { fileRoutes } from "./files.ts";
import { hubRoutes } from "./hub.ts";
import { keyRoutes } from "./keys.ts";
import { networkRoutes } from "./network.ts";
import { poolRoutes } from "./pool.ts";
import { portRoutes } from "./ports.ts";
import { sandboxRoutes, timeoutRoutes } from "./sandboxes.ts";
import { settingRoutes } from "./settings.ts";
import { lineageRoutes, snapshotRoutes } from "./snapshots.ts";
import { statsRoutes } from "./stats.ts";
import { systemRoutes } from "./system.ts";
import { trustRoutes } from "./trust.ts";
import { verifyRoutes } from "./verify.ts";
import { workspaceRoutes } from "./workspaces.ts";

/** In the order in which the documents list them. */
export const routes = {
  ...systemRoutes,
  ...snapshotRoutes,
  ...verifyRoutes,
  ...archiveRoutes,
  ...sandboxRoutes,
  ...branchRoutes,
  ...lineageRoutes,
  ...hubRoutes,
  ...workspaceRoutes,
  ...settingRoutes,
  ...keyRoutes,
  ...timeoutRoutes,
  ...networkRoutes,
  ...poolRoutes,
  ...trustRoutes,
  ...execRoutes,
  ...evalRoutes,
  ...fileRoutes,
  ...portRoutes,
  ...eventRoutes,
  ...statsRoutes,
} as const;

export type Routes = typeof routes;
export type RouteName = keyof Routes;
export type RequestOf<N extends RouteName> = z.input<Routes[N]["input"]>;
export type ParsedOf<N extends RouteName> = z.output<Routes[N]["input"]>;
export type ResponseOf<N extends RouteName> = z.output<Routes[N]["output"]>;
/** One line of a streamed answer (`stream: true`); `never` for routes that cannot stream. */
export type StreamedOf<N extends RouteName> = Routes[N] extends {
  readonly streamed: infer S extends z.ZodType;
}
  ? z.output<S>
  : never;
