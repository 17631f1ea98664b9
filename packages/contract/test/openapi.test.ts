import assert from "node:assert/strict";
import { test } from "node:test";
import { openapi } from "../src/openapi.ts";
import { errorCodes } from "../src/wire/errors.ts";
import type { Route } from "../src/route.ts";
import { passedRoutes } from "../src/ports.ts";
import { routes } from "../src/routes.ts";

type Operation = {
  operationId: string;
  parameters: { name: string; in: string; required: boolean; schema: unknown }[];
  requestBody?: { required: boolean; content: Record<string, { schema: Record<string, unknown> }> };
  responses: Record<string, { content?: Record<string, { schema: unknown }> }>;
};

const document = openapi("1.2.3") as {
  info: { version: string };
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: { Error: { properties: { code: { enum: string[] } } } } };
};
const all = Object.entries<Route>(routes);

function operationOf(route: Route): Operation {
  const operation = document.paths[route.path]?.[route.method];
  assert.ok(operation, `${route.method} ${route.path}`);
  return operation;
}

/** Paths of members that are undefined, which JSON would drop silently. */
function undefinedIn(value: unknown, path = ""): string[] {
  if (value === undefined) return [path];
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, inner]) => undefinedIn(inner, `${path}/${key}`));
}

test("openapi() has every route under its name, and no other", () => {
  for (const [name, route] of all) assert.equal(operationOf(route).operationId, name);
  const passed = Object.values(passedRoutes).map(({ path }): string => path);
  const paths = Object.entries(document.paths).filter(([path]) => !passed.includes(path));
  const count = paths.flatMap(([, path]) => Object.keys(path)).length;
  assert.equal(count, all.length, "two routes share a method and a path");
  for (const path of passed) assert.ok(document.paths[path], path);
  assert.equal(document.info.version, "1.2.3");
});

test("openapi() has no undefined member and is the same after JSON", () => {
  assert.deepEqual(undefinedIn(document), []);
  assert.deepEqual(JSON.parse(JSON.stringify(document)), document);
});

test("openapi() names every path parameter as required and gives it a schema", () => {
  for (const [name, route] of all) {
    const inPath = operationOf(route).parameters.filter((parameter) => parameter.in === "path");
    assert.deepEqual(
      inPath.map((parameter) => `{${parameter.name}}`),
      route.path.match(/\{\w+\}/g) ?? [],
      name,
    );
    assert.ok(inPath.every(({ required, schema }) => required && typeof schema === "object"));
  }
});

test("openapi() puts every input of a route in path, query or body", () => {
  for (const [name, route] of all) {
    const { parameters, requestBody } = operationOf(route);
    const body = requestBody?.content["application/json"]?.schema["properties"] ?? {};
    const fields = parameters.filter((parameter) => parameter.in !== "header");
    const described = [...fields.map((parameter) => parameter.name), ...Object.keys(body)];
    assert.deepEqual(described.sort(), Object.keys(route.input.shape).sort(), name);
    const headers = parameters.filter((parameter) => parameter.in === "header");
    assert.deepEqual(
      headers.map((header) => header.name),
      route.kind === "sse"
        ? ["Last-Event-ID"]
        : route.idempotencyKey === "honoured"
          ? ["Idempotency-Key"]
          : [],
      name,
    );
    if (route.method === "get") assert.equal(requestBody, undefined, name);
  }
});

test("openapi() describes the answer of every route that has one", () => {
  for (const [name, route] of all) {
    const { responses } = operationOf(route);
    const statuses = [route.status, route.pendingStatus].filter((status) => status !== undefined);
    assert.deepEqual(Object.keys(responses), [...statuses.map(String), "default"], name);
    const content = responses[String(route.status)]?.content;
    if (route.status === 204) assert.equal(content, undefined, name);
    else assert.ok(content && Object.values(content).every(({ schema }) => typeof schema === "object"), name);
    if (route.streamed) assert.ok(content?.["application/x-ndjson"], name);
  }
});

test("openapi() lists every error code", () => {
  assert.deepEqual(document.components.schemas.Error.properties.code.enum, Object.keys(errorCodes));
});
