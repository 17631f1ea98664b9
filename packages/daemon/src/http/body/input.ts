/** Path, query and JSON body of a request → the checked input of its route. */
import type { IncomingMessage, ServerResponse } from "node:http";
import type { Route } from "@forkd/contract";
import { invalidRequest, issuesOf } from "./invalid-request.ts";
import { readJsonObject, type BodyPace } from "./json-body.ts";
import { wordIssue } from "./word-issue.ts";
import { requireFieldName } from "./well-formed.ts";

export type Exchange = {
  readonly incoming: IncomingMessage;
  readonly outgoing: ServerResponse;
  /** default: 30 s and 1 s more per 64 KiB */
  readonly pace?: BodyPace | undefined;
};

export async function readInput(
  route: Route,
  { incoming, outgoing, pace }: Exchange,
  pathParameters: Record<string, string>,
): Promise<Record<string, unknown>> {
  const query = queryOf(incoming.url ?? "", route.repeatable);
  if (route.method === "post" && Object.keys(query).length > 0) {
    throw invalidRequest(
      Object.keys(query).map((path) => ({ path, message: "belongs in the JSON body, not the query" })),
    );
  }
  const limits = { maxBytes: route.maxBodyBytes, pace };
  const given = route.method === "post" ? await readJsonObject({ incoming, outgoing }, limits) : query;
  const input = route.input.safeParse({ ...given, ...pathParameters }, { error: wordIssue });
  if (!input.success) throw invalidRequest(issuesOf(input.error));
  return input.data;
}

function queryOf(url: string, repeatable: readonly string[]): Record<string, string | string[]> {
  const at = url.indexOf("?");
  if (at < 0) return {};
  const query: Record<string, string | string[]> = {};
  for (const [key, value] of new URLSearchParams(url.slice(at + 1))) {
    requireFieldName(key);
    if (repeatable.includes(key)) {
      const others = query[key];
      if (Array.isArray(others)) others.push(value);
      else query[key] = [value];
      continue;
    }
    if (Object.hasOwn(query, key)) throw invalidRequest([{ path: key, message: "is given twice" }]);
    query[key] = value;
  }
  return query;
}
