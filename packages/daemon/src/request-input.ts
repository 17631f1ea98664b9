/** Path, query and JSON body of a request → the checked input of its route. */
import { isUtf8 } from "node:buffer";
import type { IncomingMessage } from "node:http";
import { AppError, type Route } from "@forkd/contract";
import { invalidRequest, issuesOf } from "./invalid-request.ts";

/** Longest JSON body, in bytes */
export const maxJsonBytes = 32 * 1024 * 1024;

export async function readInput(
  route: Route,
  incoming: IncomingMessage,
  pathParameters: Record<string, string>,
): Promise<Record<string, unknown>> {
  const query = queryOf(incoming.url ?? "", route.repeatable ?? []);
  if (route.method === "post" && Object.keys(query).length > 0) {
    throw invalidRequest(
      Object.keys(query).map((path) => ({ path, message: "belongs into the JSON body, not the query" })),
    );
  }
  const given = route.method === "post" ? await readJsonObject(incoming) : query;
  const input = parseInput(route, { ...given, ...pathParameters });
  if (!input.success) throw invalidRequest(issuesOf(input.error));
  return input.data;
}

/** Values in values are checked by functions in functions, and the stack has an end. */
function parseInput(route: Route, value: object): ReturnType<Route["input"]["safeParse"]> {
  try {
    return route.input.safeParse(value);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new AppError("invalid_request", "Invalid request: the body is nested too deeply", { cause: error });
  }
}

function queryOf(url: string, repeatable: readonly string[]): Record<string, string | string[]> {
  const at = url.indexOf("?");
  if (at < 0) return {};
  const query: Record<string, string | string[]> = {};
  for (const [key, value] of new URLSearchParams(url.slice(at + 1))) {
    if (repeatable.includes(key)) {
      query[key] = [query[key] ?? [], value].flat();
      continue;
    }
    if (Object.hasOwn(query, key)) throw invalidRequest([{ path: key, message: "is given twice" }]);
    query[key] = value;
  }
  return query;
}

async function readJsonObject(incoming: IncomingMessage): Promise<object> {
  const body = await readBody(incoming);
  if (body.length === 0) return {};
  if (!isUtf8(body)) throw new AppError("invalid_request", "Invalid request: the body is not UTF-8");
  let value: unknown;
  try {
    value = JSON.parse(body.toString("utf8"));
  } catch (error) {
    const why = error instanceof Error ? error.message : String(error);
    throw new AppError("invalid_request", `Invalid request: the body is not JSON: ${why}`, { cause: error });
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) {
    throw new AppError("invalid_request", "Invalid request: the body must be a JSON object");
  }
  return value;
}

/** Listeners rather than async iteration: one body in one piece is the usual case and should cost one turn. */
function readBody(incoming: IncomingMessage): Promise<Buffer> {
  if (Number(incoming.headers["content-length"] ?? 0) > maxJsonBytes) throw tooLarge();
  return new Promise((resolve, reject) => {
    const chunks: Buffer[] = [];
    let size = 0;
    incoming.on("data", (chunk: Buffer) => {
      size += chunk.length;
      // The rest is read and dropped, so that the client can finish writing and then read the answer.
      if (size > maxJsonBytes) reject(tooLarge());
      else chunks.push(chunk);
    });
    incoming.once("end", () => resolve(chunks.length === 1 && chunks[0] ? chunks[0] : Buffer.concat(chunks)));
    incoming.once("error", (error) => reject(clientLeft(error)));
  });
}

export function clientLeft(cause: unknown): AppError {
  return new AppError("cancelled", "The client went away before the end of its request", { cause });
}

function tooLarge(): AppError {
  return new AppError("body_too_large", `The JSON body is longer than ${maxJsonBytes} bytes`);
}
