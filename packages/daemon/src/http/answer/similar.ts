/** Adds names like the one that was not found to the details of an error, for callers that may list them. */
import { AppError, routes, scopes, similarNames, type ErrorCode, type RouteName } from "@forkd/contract";
import type { Principal } from "../../access/gate.ts";
import type { AnyHandler, Handlers, RequestContext } from "../handlers.ts";
import { Page } from "./page.ts";

type NameKey = "tag" | "id" | "name";
type Source = {
  readonly list: RouteName;
  /** key of the name in the details of the error, and in the entries of the list */
  readonly key: NameKey;
};

const sources: Partial<Record<ErrorCode, Source>> = {
  snapshot_not_found: { list: "listSnapshots", key: "tag" },
  sandbox_not_found: { list: "listSandboxes", key: "id" },
  workspace_not_found: { list: "listWorkspaces", key: "name" },
  key_not_found: { list: "listKeys", key: "name" },
};

type Asked = {
  readonly handlers: Handlers;
  readonly principal: Principal | undefined;
  readonly context: RequestContext;
};

/** The error itself if there is nothing to add. */
export async function withSimilarNames(error: AppError, asked: Asked): Promise<AppError> {
  const source = sources[error.code];
  const given = source && error.details[source.key];
  if (source === undefined || typeof given !== "string" || !mayList(asked.principal, source.list))
    return error;
  const names = await namesOf(asked, source).catch(() => []);
  const found = similarNames(given, names);
  if (found.similar === undefined) return error;
  const { remedy, cause } = error;
  const details = { ...error.details, ...found };
  return new AppError(error.code, error.message, { details, cause, ...(remedy && { remedy }) });
}

function mayList(principal: Principal | undefined, list: RouteName): boolean {
  const { scope } = routes[list];
  return (
    scope !== "open" && principal !== undefined && scopes.indexOf(principal.scope) >= scopes.indexOf(scope)
  );
}

async function namesOf({ handlers, context }: Asked, { list, key }: Source): Promise<string[]> {
  // The table above names routes that list objects with this key.
  const answer = await (handlers[list] as unknown as AnyHandler)({}, context);
  const entries = (answer instanceof Page ? answer.items : answer) as Partial<Record<NameKey, string>>[];
  return entries.flatMap((entry) => entry[key] ?? []);
}
