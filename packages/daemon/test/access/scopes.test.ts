/** Every route of the table against a key of every scope. */
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { routes, scopes, type Route, type RouteName, type Scope } from "@forkd/contract";
import type { Handlers } from "../../src/http/handlers.ts";
import { sandboxId, send, startServer, token, type Answer, type TestServer } from "../support.ts";

const parameters: Record<string, string> = {
  id: sandboxId,
  tag: "t",
  exec_id: "1",
  eval_id: "python-1",
  name: "nobody",
  port: "3000",
};
const pathOf = (route: Route) =>
  route.path.replaceAll(/\{(\w+)\}/g, (_, name: string) => parameters[name] ?? assert.fail(name));
const table = Object.entries<Route>(routes);

function ask(url: string, route: Route, bearer: string | undefined): Promise<Answer> {
  return send(url, pathOf(route), {
    method: route.method.toUpperCase(),
    headers: bearer === undefined ? {} : { authorization: `Bearer ${bearer}` },
  });
}

/** Handlers that note that they were reached, whatever the input. */
function noting(reached: string[]): Partial<Handlers> {
  const entries = table.map(([name]) => [
    name,
    () => {
      reached.push(name);
      throw new Error("reached");
    },
  ]);
  return Object.fromEntries(entries) as Partial<Handlers>;
}

test("every route has a scope, and only health asks for nothing", () => {
  for (const [name, route] of table) assert.ok([...scopes, "open"].includes(route.scope), name);
  assert.deepEqual(
    table.filter(([, route]) => route.scope === "open").map(([name]) => name),
    ["health"],
  );
});

test("routes that change something need more than read", () => {
  for (const [name, route] of table) {
    if (route.method !== "get") assert.notEqual(route.scope, "read", name);
  }
});

test("routes that read any file of the host, stop the daemon or handle keys need admin", () => {
  const admin: RouteName[] = [
    "createSnapshot",
    "shutdown",
    "cleanup",
    "gc",
    "listKeys",
    "createKey",
    "removeKey",
  ];
  for (const name of admin) assert.equal(routes[name].scope, "admin", name);
});

const reached: string[] = [];
const keys = new Map<Scope, string>();
let server: TestServer;
before(async () => {
  server = await startServer(noting(reached));
  for (const scope of scopes) keys.set(scope, (await server.keys.create({ name: `k-${scope}`, scope })).key);
});
after(() => server[Symbol.asyncDispose]());

for (const [name, route] of table.filter(([, { scope }]) => scope !== "open")) {
  test(`${name} needs ${route.scope}, on TCP, with a key`, async () => {
    const needed = route.scope as Scope;
    reached.length = 0;
    // The second is what too many of the first become.
    for (const bearer of [undefined, "wrong"])
      assert.ok([401, 429].includes((await ask(server.url, route, bearer)).status));
    assert.deepEqual(reached, []);
    for (const scope of scopes) {
      const answer = await ask(server.url, route, keys.get(scope));
      if (scopes.indexOf(scope) >= scopes.indexOf(needed)) {
        assert.ok(![401, 403, 404, 405, 429].includes(answer.status), `${scope}: ${answer.status}`);
        continue;
      }
      assert.equal(answer.status, 403, scope);
      assert.equal(answer.json.code, "forbidden");
      assert.deepEqual(answer.json.details, { needed, scope, key: `k-${scope}` });
      assert.match(answer.json.error, new RegExp(`needs the scope "${needed}".* has "${scope}"`));
      assert.deepEqual(reached, []);
    }
    assert.ok(![401, 403].includes((await ask(server.url, route, token)).status));
    assert.ok(![401, 403].includes((await ask(server.socket, route, undefined)).status));
  });
}

test("removing a snapshot with force needs admin", async () => {
  const removed: unknown[] = [];
  await using server = await startServer({
    removeSnapshot: (input) => {
      removed.push(input);
      return { removed: [], freed_bytes: 0, dry_run: false };
    },
  });
  const { key } = await server.keys.create({ name: "runner", scope: "run" });
  const remove = (query: string) =>
    send(server.url, `/v1/snapshots/py${query}`, {
      method: "DELETE",
      headers: { authorization: `Bearer ${key}` },
    });
  const refused = await remove("?force=true");
  assert.deepEqual([refused.status, refused.json.code], [403, "forbidden"]);
  assert.match(refused.json.error, /The field force needs the scope "admin"/);
  assert.deepEqual(removed, []);
  assert.equal((await remove("?force=false")).status, 200);
  assert.equal((await remove("")).status, 200);
  assert.equal(removed.length, 2);
});

test("paths without a route ask for a token first, then answer not_found", async () => {
  await using server = await startServer({});
  const { key } = await server.keys.create({ name: "reader", scope: "read" });
  assert.equal((await send(server.url, "/v1/nothing")).status, 401);
  const headers = { authorization: `Bearer ${key}` };
  assert.equal((await send(server.url, "/v1/nothing", { headers })).status, 404);
  assert.equal((await send(server.url, "/openapi.json", { headers })).status, 200);
  for (const path of ["/healthz/", "//healthz", "/healthz/../v1/status", "/HEALTHZ", "/%68ealthz/x"])
    assert.equal((await send(server.url, path)).status, 401, path);
});

test("the OpenAPI document names the scope of each route", async () => {
  await using server = await startServer({});
  const { json } = await send(server.socket, "/openapi.json");
  assert.equal(json.components.securitySchemes.token.scheme, "bearer");
  for (const [name, route] of table) {
    const { security } = json.paths[route.path][route.method];
    assert.deepEqual(security, route.scope === "open" ? [] : [{ token: [route.scope] }], name);
  }
});

test("reading every byte of a snapshot needs run", async () => {
  await using own = await startServer({ snapshotInfo: () => ({}) as never });
  const look = async (scope: "read" | "run", query: string) => {
    const name = `${scope}${query.length}`;
    const { key } = await own.keys.create({ name, scope });
    return send(own.url, `/v1/snapshots/py/info${query}`, { headers: { authorization: `Bearer ${key}` } });
  };
  const refused = await look("read", "?verify=true");
  assert.deepEqual([refused.status, refused.json.details.needed], [403, "run"]);
  assert.equal((await look("read", "")).status, 200);
  assert.equal((await look("run", "?verify=true")).status, 200);
});

test("checking the host by starting guests needs admin", async () => {
  const doctor = () => ({ ok: true, checks: [] }) as never;
  await using own = await startServer({ doctor });
  const { key } = await own.keys.create({ name: "looks", scope: "read" });
  const look = (query: string) =>
    send(own.url, `/v1/doctor${query}`, { headers: { authorization: `Bearer ${key}` } });
  assert.equal((await look("?boot=true")).status, 403);
  assert.equal((await look("?boot=1")).status, 403);
  assert.equal((await look("?boot=false")).status, 200);
  assert.equal((await look("")).status, 200);
});
