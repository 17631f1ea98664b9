/** Routes → OpenAPI 3.1. Pure. */
import { z } from "zod";
import { errorBodySchema } from "./error-body.ts";
import { errorCodes } from "./wire/errors.ts";
import type { Route } from "./route.ts";
import { passedRoutes } from "./ports.ts";
import { routes } from "./routes.ts";

type Json = Record<string, unknown>;
type Header = { readonly name: string; readonly description: string };

function requestHeadersOf({ kind, idempotencyKey }: Route): Header[] {
  if (kind === "sse") return [{ name: "Last-Event-ID", description: "Id of the last event seen" }];
  if (idempotencyKey !== "honoured") return [];
  return [
    {
      name: "Idempotency-Key",
      description:
        "1 to 128 printable characters; a repeated call with the same key gets the answer of the first",
    },
  ];
}

function answerHeadersOf({ paged, idempotencyKey }: Route): Header[] {
  if (paged) {
    return [
      { name: "Link", description: 'The next page, rel="next"; absent on the last' },
      { name: "X-Next-Cursor", description: "`cursor` of the next page; absent on the last" },
    ];
  }
  if (idempotencyKey !== "honoured") return [];
  return [
    {
      name: "Idempotent-Replayed",
      description: '"true" if this is the answer of an earlier call with the same key',
    },
  ];
}

function toJson(schema: z.ZodType, io: "input" | "output"): Json {
  const { $schema: _, ...rest } = z.toJSONSchema(schema, { io, unrepresentable: "any" }) as Json;
  return rest;
}

function requestOf(route: Route): Json {
  const schema = toJson(route.input, "input") as { properties?: Record<string, Json>; required?: string[] };
  const properties = schema.properties ?? {};
  const required = new Set(schema.required ?? []);
  const inPath = [...route.path.matchAll(/\{(\w+)\}/g)].map((match) => match[1] ?? "");
  const rest = Object.keys(properties).filter((name) => !inPath.includes(name));
  const parameter = (name: string, place: string) => ({
    name,
    in: place,
    required: place === "path" || required.has(name),
    schema: properties[name],
  });
  const parameters = inPath.map((name) => parameter(name, "path"));
  if (route.method !== "post") parameters.push(...rest.map((name) => parameter(name, "query")));
  for (const { name, description } of requestHeadersOf(route))
    parameters.push({ name, in: "header", required: false, schema: { type: "string", description } });
  const body: Json = {};
  if (route.method === "post" && rest.length > 0) {
    const needed = rest.filter((name) => required.has(name));
    body["requestBody"] = {
      required: needed.length > 0,
      content: {
        "application/json": {
          schema: {
            type: "object",
            properties: Object.fromEntries(rest.map((name) => [name, properties[name]])),
            ...(needed.length > 0 && { required: needed }),
            additionalProperties: false,
          },
        },
      },
    };
  }
  if (route.kind === "upload") {
    body["requestBody"] = {
      required: true,
      content: { "application/octet-stream": { schema: { type: "string", format: "binary" } } },
    };
  }
  return { parameters, ...body };
}

function contentOf(route: Route): Json | undefined {
  if (route.status === 204) return undefined;
  const content: Json = {};
  if (route.kind === "bytes")
    content["application/octet-stream"] = { schema: { type: "string", format: "binary" } };
  else if (route.kind === "events")
    content["application/x-ndjson"] = { schema: toJson(route.output, "output") };
  else if (route.kind === "sse") content["text/event-stream"] = { schema: toJson(route.output, "output") };
  else if (route.kind === "text") content["text/plain"] = { schema: { type: "string" } };
  else content["application/json"] = { schema: toJson(route.output, "output") };
  if (route.streamed) content["application/x-ndjson"] = { schema: toJson(route.streamed, "output") };
  return content;
}

/** Scopes are written as the roles that OpenAPI has for a bearer token. */
function accessOf({ scope, inputScopes }: Route): Json {
  if (scope === "open") return { security: [] };
  const fields = Object.entries(inputScopes).map(
    ([field, needed]) => `Needs the scope ${needed} with ${field}.`,
  );
  return { ...(fields.length > 0 && { description: fields.join(" ") }), security: [{ token: [scope] }] };
}

function headersOf(route: Route): Json {
  const answerHeaders = answerHeadersOf(route);
  if (answerHeaders.length === 0) return {};
  const headers = answerHeaders.map(({ name, description }) => [
    name,
    { description, schema: { type: "string" } },
  ]);
  return { headers: Object.fromEntries(headers) };
}

/** The methods of OpenAPI that may have a body or not, for paths that take any method. */
const anyMethod = ["get", "post", "put", "patch", "delete"] as const;

function passedPaths(error: Json): Record<string, Json> {
  const entries = Object.entries(passedRoutes).map(([operationId, { path, summary, scope }]) => {
    const names = [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1] ?? "");
    const parameters = names.map((name) => ({
      name,
      in: "path",
      required: true,
      schema: { type: name === "port" ? "integer" : "string" },
    }));
    const isTunnel = operationId === "connectPort";
    const about = (method: string) => ({
      operationId: method === "get" ? operationId : `${operationId}_${method}`,
      summary,
      security: [{ token: [scope] }],
      parameters,
      responses: isTunnel
        ? { 101: { description: "Raw bytes follow" }, default: error }
        : { default: { description: "The answer of the guest, or an error of the daemon" } },
    });
    const methods = isTunnel ? (["get"] as const) : anyMethod;
    return [path, Object.fromEntries(methods.map((method) => [method, about(method)]))] as const;
  });
  return Object.fromEntries(entries);
}

export function openapi(version: string): Json {
  const paths: Record<string, Json> = {};
  const error = {
    description: "Error",
    content: { "application/json": { schema: { $ref: "#/components/schemas/Error" } } },
  };
  for (const [operationId, route] of Object.entries<Route>(routes)) {
    const content = contentOf(route);
    (paths[route.path] ??= {})[route.method] = {
      operationId,
      summary: route.summary,
      ...accessOf(route),
      ...requestOf(route),
      responses: {
        [route.status]: { description: "OK", ...headersOf(route), ...(content && { content }) },
        ...(route.pendingStatus && {
          [route.pendingStatus]: { description: "In progress", ...(content && { content }) },
        }),
        default: error,
      },
    };
  }
  Object.assign(paths, passedPaths(error));
  const errorSchema = toJson(errorBodySchema, "output") as { properties: Record<string, Json> };
  errorSchema.properties["code"] = { type: "string", enum: Object.keys(errorCodes) };
  return {
    openapi: "3.1.0",
    info: { title: "forkd", version, license: { name: "Apache-2.0", identifier: "Apache-2.0" } },
    paths,
    components: {
      schemas: { Error: errorSchema },
      securitySchemes: {
        token: {
          type: "http",
          scheme: "bearer",
          description:
            "The daemon's token, or a key of POST /v1/keys with the scope that the route names: read, run or admin; each includes those before it",
        },
      },
    },
    security: [{ token: [] }],
  };
}
