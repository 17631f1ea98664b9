/** The routes of E2B's control plane: what each needs of the caller, and what answers it. */
import { AppError, type Route } from "@forkd/contract";
import * as templates from "../templates/handlers.ts";
import { connectSandbox, createSandbox, forkSandbox, resumeSandbox } from "./create.ts";
import { listSnapshots, listV1, listV2 } from "./list.ts";
import { logsV1, logsV2 } from "./logs.ts";
import { getMetrics, metricsOfAll } from "./metrics.ts";
import type { Handler } from "./plane.ts";
import { getInfo, killSandbox, pauseSandbox, refresh, setTimeout, updateNetwork } from "./sandboxes.ts";
import { createSnapshot, deleteTemplate } from "./snapshots.ts";

export type ControlRoute = {
  readonly method: "GET" | "POST" | "PUT" | "DELETE";
  readonly path: string;
  readonly scope: "read" | "run";
  readonly audit: Route["audit"];
  readonly handle: Handler;
};

function route(
  method: ControlRoute["method"],
  path: string,
  handle: Handler,
  scope: ControlRoute["scope"] = method === "GET" ? "read" : "run",
): ControlRoute {
  return { method, path, scope, audit: method === "GET" ? "read" : "change", handle };
}

export const controlRoutes = {
  e2bCreate: route("POST", "/sandboxes", createSandbox),
  e2bCreateV2: route("POST", "/v2/sandboxes", createSandbox),
  e2bConnect: route("POST", "/sandboxes/{id}/connect", connectSandbox),
  e2bConnectV2: route("POST", "/v2/sandboxes/{id}/connect", connectSandbox),
  e2bResume: route("POST", "/sandboxes/{id}/resume", resumeSandbox),
  e2bList: route("GET", "/sandboxes", listV1),
  e2bListV2: route("GET", "/v2/sandboxes", listV2),
  e2bMetricsOfAll: route("GET", "/sandboxes/metrics", metricsOfAll, "run"),
  // It has the token that lets a client run commands.
  e2bGet: route("GET", "/sandboxes/{id}", getInfo, "run"),
  e2bKill: route("DELETE", "/sandboxes/{id}", killSandbox),
  e2bTimeout: route("POST", "/sandboxes/{id}/timeout", setTimeout),
  e2bRefresh: route("POST", "/sandboxes/{id}/refreshes", refresh),
  e2bPause: route("POST", "/sandboxes/{id}/pause", pauseSandbox),
  e2bMetrics: route("GET", "/sandboxes/{id}/metrics", getMetrics, "run"),
  e2bLogs: route("GET", "/sandboxes/{id}/logs", logsV1, "run"),
  e2bLogsV2: route("GET", "/v2/sandboxes/{id}/logs", logsV2, "run"),
  e2bNetwork: route("PUT", "/sandboxes/{id}/network", updateNetwork),
  e2bSnapshot: route("POST", "/sandboxes/{id}/snapshots", createSnapshot),
  e2bFork: route("POST", "/sandboxes/{id}/fork", forkSandbox),
  e2bListSnapshots: route("GET", "/snapshots", listSnapshots),

  e2bListTemplates: route("GET", "/templates", templates.listTemplates),
  e2bListTemplatesV2: route("GET", "/v2/templates", templates.listTemplates),
  e2bRequestBuild: route("POST", "/v3/templates", templates.requestBuild),
  e2bRequestBuildV2: route("POST", "/v2/templates", templates.requestBuild),
  e2bStartBuild: route("POST", "/v2/templates/{template}/builds/{build}", templates.startBuild),
  e2bBuildStatus: route("GET", "/templates/{template}/builds/{build}/status", templates.buildStatus),
  e2bUploadLink: route("GET", "/templates/{template}/files/{hash}", templates.uploadLink, "run"),
  e2bAlias: route("GET", "/templates/aliases/{alias}", templates.aliasExists),
  e2bAssignTags: route("POST", "/templates/tags", templates.assignTags),
  e2bRemoveTags: route("DELETE", "/templates/tags", templates.removeTags),
  e2bListTags: route("GET", "/templates/{template}/tags", templates.listTags),
  e2bDeleteTemplate: route("DELETE", "/templates/{template}", deleteTemplate),
} as const satisfies Record<string, ControlRoute>;

export type ControlName = keyof typeof controlRoutes;

/** Parts of E2B's API that do not exist here, and why. */
const missing: readonly (readonly [RegExp, string])[] = [
  [/^\/volumes(\/|$)/, "There are no volumes. Keep data in a snapshot of a sandbox"],
  [/^\/volumecontent(\/|$)/, "There are no volumes. Keep data in a snapshot of a sandbox"],
  [/^\/secrets(\/|$)/, "Secrets of E2B are not supported. Use `forkd secrets`"],
  [/^\/(?:v\d\/)?(?:teams|api-keys|access-tokens)(\/|$)/, "There are no teams. Use `forkd keys`"],
  [/^\/events(\/|$)/, "Events of E2B are not supported. Use `forkd events`"],
];
const prefixes = /^\/(?:v[23]\/)?(?:sandboxes|snapshots|templates)(?:\/|$)/;

/** Whether the path belongs to E2B's API, known or not. */
export function isControlPath(path: string): boolean {
  return prefixes.test(path) || missing.some(([pattern]) => pattern.test(path));
}

/** The error for a path of E2B's API that has no route. */
export function noSuchRoute(method: string, path: string, allow: readonly string[]): AppError {
  const why = missing.find(([pattern]) => pattern.test(path))?.[1];
  if (why !== undefined) return new AppError("unsupported", why);
  if (allow.length > 0)
    return new AppError(
      "method_not_allowed",
      `${path} does not take ${method}; it takes ${allow.join(", ")}`,
    );
  return new AppError("not_found", `No such route: ${method} ${path}`);
}
