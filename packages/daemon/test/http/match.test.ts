import assert from "node:assert/strict";
import { test } from "node:test";
import { routes, type Route } from "@forkd/contract";
import { matcher, noSuchRoute, pathOf } from "../../src/http/match.ts";
import { sandboxId } from "../support.ts";

const find = matcher({
  list: { method: "get", path: "/v1/things" },
  make: { method: "post", path: "/v1/things" },
  get: { method: "get", path: "/v1/things/{id}" },
  drop: { method: "delete", path: "/v1/things/{id}/parts/{name}" },
  document: { method: "get", path: "/a.json" },
});

test("matcher() finds the route of a method and a path, with decoded parameters", () => {
  const table: [string, string, string, Record<string, string>][] = [
    ["GET", "/v1/things", "list", {}],
    ["HEAD", "/v1/things", "list", {}],
    ["POST", "/v1/things", "make", {}],
    ["GET", "/v1/th%69ngs", "list", {}],
    ["GET", "/v1/things/7", "get", { id: "7" }],
    ["GET", "/v1/things/a%2Fb", "get", { id: "a/b" }],
    ["GET", "/v1/things/a%252Fb", "get", { id: "a%2Fb" }],
    ["GET", "/v1/things/%c3%a9", "get", { id: "é" }],
    ["GET", "/v1/things/{id}", "get", { id: "{id}" }],
    ["GET", "/v1/things/constructor", "get", { id: "constructor" }],
    ["DELETE", "/v1/things/7/parts/x.y", "drop", { id: "7", name: "x.y" }],
  ];
  for (const [method, path, name, parameters] of table)
    assert.deepEqual(find(method, path).match, { name, parameters }, `${method} ${path}`);
});

test("matcher() leaves escapes that are not UTF-8 as they are", () => {
  for (const id of ["%zz", "%", "%ff", "%41%ff", "%E0%A4%A"])
    assert.deepEqual(find("GET", `/v1/things/${id}`).match?.parameters, { id }, id);
  assert.deepEqual(find("GET", "/v1/things/%41%zz").match?.parameters, { id: "A%zz" });
});

test("matcher() finds nothing for other paths", () => {
  const paths = ["/", "//", "/v1", "/v1/", "/v1/things/", "//v1/things", "/v1//things", "/V1/things"];
  for (const path of [
    ...paths,
    "/v1/things/7/",
    "/v1/things//parts/x",
    "/v1%2Fthings",
    "/aXjson",
    "/__proto__",
  ])
    assert.deepEqual(find("GET", path), { match: undefined, allow: [] }, path);
});

test("matcher() names the methods that a path takes", () => {
  assert.deepEqual(find("PATCH", "/v1/things"), { match: undefined, allow: ["GET", "POST"] });
  assert.deepEqual(find("HEAD", "/v1/things/7/parts/x"), { match: undefined, allow: ["DELETE"] });
  assert.deepEqual(find("get", "/v1/things").match, undefined);
});

test("matcher() finds every route of the table by its own path", () => {
  const findRoute = matcher(routes);
  for (const [name, { method, path }] of Object.entries<Route>(routes)) {
    const given = path.replaceAll(/\{\w+\}/g, sandboxId);
    assert.equal(findRoute(method.toUpperCase(), given).match?.name, name);
  }
});

test("noSuchRoute() is not_found, or method_not_allowed where the path takes other methods", () => {
  assert.equal(noSuchRoute("GET", "/x", []).code, "not_found");
  const error = noSuchRoute("PATCH", "/x", ["GET", "POST"]);
  assert.equal(error.code, "method_not_allowed");
  assert.deepEqual(error.details, { allow: "GET, POST" });
});

test("pathOf() takes the path of a request target, without query, fragment and dot segments", () => {
  const table: [string, string][] = [
    ["/", "/"],
    ["/a/b?c=/d", "/a/b"],
    ["/a?b\\c", "/a"],
    ["/a#b", "/a"],
    ["//a//b/", "//a//b/"],
    ["/a/../b/./c", "/b/c"],
    ["/a/%2e%2E/b", "/b"],
    ["/../..", "/"],
    ["/a%2Fb%zz", "/a%2Fb%zz"],
    ["http://other/a/b?c", "/a/b"],
    ["https://user:secret@other:1/a", "/a"],
    ["http://other", "/"],
  ];
  for (const [target, path] of table) assert.equal(pathOf(target, "localhost"), path, target);
});

test("pathOf() refuses targets that are not part of an http URL", () => {
  for (const target of [
    "",
    "*",
    "a/b",
    "/a\\b",
    "\\a",
    "http://",
    "ftp://x/a",
    "HTTP://x/a",
    "http://x:99999/",
  ])
    assert.equal(pathOf(target, "localhost"), undefined, target);
});

test("pathOf() refuses a Host that is not the host of a URL", () => {
  const hosts = ["x", "X.y:80", "a_b", "127.0.0.1:65535", "[::1]", "[::1]:9000", "a,b", "1.2.3"];
  for (const host of hosts) assert.equal(pathOf("/a", host), "/a", host);
  const refused = ["evil:99999", "a@b", "x/y", "a b", "x?y", "x#y", "x\\y", "x:", ":80", "%41", "[::1", "é"];
  for (const host of refused) assert.equal(pathOf("/a", host), undefined, host);
  // In absolute form the target names its own host.
  assert.equal(pathOf("http://x/a", "a@b"), "/a");
});
