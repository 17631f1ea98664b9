/** Method and request target → a route of a table. Pure. */
import { AppError } from "@forkd/contract";

type Pattern = { readonly method: string; readonly path: string };
export type Match<N extends string> = { readonly name: N; readonly parameters: Record<string, string> };
type Row<N extends string> = {
  readonly name: N;
  readonly method: string;
  readonly segments: readonly Segment[];
};
type Segment = { readonly text: string } | { readonly parameter: string };

export type Found<N extends string> = {
  readonly match: Match<N> | undefined;
  /** methods that the path takes; empty if there is no such path */
  readonly allow: readonly string[];
};
type Matcher<N extends string> = (method: string, path: string) => Found<N>;

/**
 * HEAD matches what GET matches. Segments are compared after decoding; an empty segment matches no parameter.
 */
export function matcher<N extends string>(table: Readonly<Record<N, Pattern>>): Matcher<N> {
  const byLength = new Map<number, Row<N>[]>();
  // Object.entries forgets the names of the table.
  for (const [name, { method, path }] of Object.entries<Pattern>(table) as [N, Pattern][]) {
    const segments = path.slice(1).split("/").map(segmentOf);
    const rows = byLength.get(segments.length) ?? [];
    rows.push({ name, method: method.toUpperCase(), segments });
    byLength.set(segments.length, rows);
  }
  return (method, path) => {
    const given = path.slice(1).split("/");
    const wanted = method === "HEAD" ? "GET" : method;
    let match: Match<N> | undefined;
    const allow = new Set<string>();
    for (const row of byLength.get(given.length) ?? []) {
      const parameters = parametersOf(row.segments, given);
      if (parameters === undefined) continue;
      allow.add(row.method);
      if (row.method === wanted) match ??= { name: row.name, parameters };
    }
    return { match, allow: [...allow].sort() };
  };
}

function segmentOf(text: string): Segment {
  const parameter = /^\{(\w+)\}$/.exec(text)?.[1];
  return parameter === undefined ? { text } : { parameter };
}

function parametersOf(
  segments: readonly Segment[],
  given: readonly string[],
): Record<string, string> | undefined {
  const parameters: Record<string, string> = {};
  for (const [at, segment] of segments.entries()) {
    const text = decode(given[at] ?? "");
    if ("text" in segment ? segment.text !== text : text === "") return undefined;
    if ("parameter" in segment) parameters[segment.parameter] = text;
  }
  return parameters;
}

/** An escape that is not UTF-8 stays as it is: the schema of the parameter refuses it. */
function decode(segment: string): string {
  try {
    return decodeURIComponent(segment);
  } catch {
    return segment.replaceAll(/(?:%[0-9a-f]{2})+/gi, (escapes) => {
      try {
        return decodeURIComponent(escapes);
      } catch {
        return escapes;
      }
    });
  }
}

/** `not_found`, or `method_not_allowed` with the methods that the path takes. */
export function noSuchRoute(method: string, path: string, allow: readonly string[]): AppError {
  if (allow.length === 0) return new AppError("not_found", `No such route: ${method} ${path}`);
  const methods = allow.join(", ");
  return new AppError("method_not_allowed", `${path} does not take ${method}; it takes ${methods}`, {
    details: { allow: methods },
  });
}

/**
 * The path of a request target, in origin form or as an http URL, without dot segments and with its escapes.
 * undefined if the target or the Host is not part of a URL.
 */
export function pathOf(target: string, host: string): string | undefined {
  // The URL parser takes a backslash for a slash.
  if (target.replace(/\?.*/s, "").includes("\\")) return undefined;
  const isAbsolute = /^https?:\/\//.test(target);
  if (!isAbsolute && !(target.startsWith("/") && isHost(host))) return undefined;
  const url = isAbsolute ? target : `http://localhost${target}`;
  return URL.canParse(url) ? new URL(url).pathname : undefined;
}

const plainHost = /^[a-z0-9._-]+(?::(?:\d{1,4}|[1-5]\d{4}))?$/i;

function isHost(host: string): boolean {
  if (plainHost.test(host)) return true;
  const url = `http://${host}/`;
  return URL.canParse(url) && new URL(url).hostname === host.replace(/:\d+$/, "").toLowerCase();
}
