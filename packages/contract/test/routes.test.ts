import assert from "node:assert/strict";
import { test } from "node:test";
import { z } from "zod";
import { route, usualBodyBytes, type Route } from "../src/route.ts";
import { routes } from "../src/routes.ts";
import { wireRoutes } from "../src/wire/routes.gen.ts";

const all = Object.entries<Route>(routes);
const namesWhere = (holds: (route: Route) => boolean) =>
  all
    .filter(([, each]) => holds(each))
    .map(([name]) => name)
    .sort();

test("route() fills in the columns that a definition leaves out", () => {
  const facts = {
    path: "/x",
    summary: "",
    status: 200,
    kind: "json",
    scope: "read",
    input: z.strictObject({}),
    output: z.void(),
  } as const;
  const columns = {
    inputScopes: {},
    maxBodyBytes: usualBodyBytes,
    repeatable: [],
    paged: false,
    intoGuest: false,
    log: "info",
    endless: false,
    idempotencyKey: "ignored",
  };
  assert.deepEqual(route({ ...facts, method: "get" }), {
    ...facts,
    ...columns,
    method: "get",
    audit: "read",
  });
  for (const method of ["post", "put", "delete"] as const)
    assert.deepEqual(route({ ...facts, method }), { ...facts, ...columns, method, audit: "change" });
  assert.equal(route({ ...facts, method: "get", audit: "none", log: "debug" }).audit, "none");
});

test("only the listed routes differ from the defaults of the table", () => {
  assert.deepEqual(
    namesWhere(({ audit }) => audit === "none"),
    ["health", "metrics"],
  );
  assert.deepEqual(
    namesWhere(({ audit }) => audit === "command"),
    ["eval", "exec"],
  );
  assert.deepEqual(
    namesWhere(({ log }) => log === "debug"),
    ["health"],
  );
  assert.deepEqual(
    namesWhere(({ endless }) => endless),
    ["attachEval", "attachExec", "events", "logs", "networkLog", "serviceLogs", "watchFiles"],
  );
  assert.deepEqual(
    namesWhere(({ idempotencyKey }) => idempotencyKey === "honoured"),
    ["branch", "createWorkspace", "fork"],
  );
  assert.deepEqual(
    namesWhere(({ idempotencyKey }) => typeof idempotencyKey === "object"),
    ["createContext", "createSnapshot", "eval", "exec", "pull", "push", "verifySnapshot"],
  );
  assert.deepEqual(
    namesWhere(({ scope }) => scope === "open"),
    ["health"],
  );
});

test("every paged route takes limit and cursor and answers with a list", () => {
  for (const [name, { input, output, paged }] of all) {
    const isPaged = "cursor" in input.shape && "limit" in input.shape;
    assert.equal(paged, isPaged, name);
    if (paged) assert.ok(output instanceof z.ZodArray, name);
  }
});

test("every method and path belongs to one route", () => {
  const keys = all.map(([, { method, path }]) => `${method} ${path.replaceAll(/\{\w+\}/g, "{}")}`);
  assert.equal(new Set(keys).size, keys.length);
});

test("wireRoutes has every route, in the order of the table", () => {
  assert.deepEqual(Object.keys(wireRoutes), Object.keys(routes));
});
