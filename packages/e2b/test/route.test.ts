import assert from "node:assert/strict";
import { test } from "node:test";
import { routeOf } from "../src/route.ts";
import { signatureOf } from "../src/signature.ts";

const tokens = {
  of: () => undefined,
  all: () => [
    { id: "sb-1", token: "one" },
    { id: "sb-2", token: "two" },
  ],
};
const route = (method: string, url: string, headers: Record<string, string> = {}) =>
  routeOf({ method, url, headers }, url.replace(/\?.*/, ""), tokens);

test("routeOf() sends a request with the header of a sandbox to it, whatever its path is", () => {
  const headers = { "e2b-sandbox-id": "sb-1", "e2b-sandbox-port": "49999" };
  const target = { id: "sb-1", port: 49_999 };
  assert.deepEqual(route("POST", "/execute", headers), { kind: "sandbox", target });
  assert.deepEqual(route("GET", "/sandboxes", headers), { kind: "sandbox", target });
  const { "e2b-sandbox-id": id } = headers;
  for (const port of ["", "0", "x", "-1"])
    assert.deepEqual(route("GET", "/health", { "e2b-sandbox-id": id, "e2b-sandbox-port": port }), {
      kind: "sandbox",
      target: { id: "sb-1", port: 49_983 },
    });
});

test("routeOf() finds the sandbox of a signed URL by its signature", () => {
  const file = { path: "/a b", operation: "read", user: "" } as const;
  const query = (signature: string, more = {}) =>
    `/files?${new URLSearchParams({ path: "/a b", signature, ...more }).toString()}`;
  const found = route("GET", query(signatureOf(file, "two")));
  assert.deepEqual(found, { kind: "signed", target: { id: "sb-2", port: 49_983 } });
  const expiring = signatureOf({ ...file, expiration: "99" }, "one");
  assert.deepEqual(route("GET", query(expiring, { signature_expiration: "99" })), {
    kind: "signed",
    target: { id: "sb-1", port: 49_983 },
  });
  for (const wrong of [
    query("v1_x"),
    query(expiring, { signature_expiration: "100" }),
    query(signatureOf(file, "two"), { path: "/other" }),
    query(`${signatureOf(file, "two")}=`),
    // Text of the client that would be hashed once for each sandbox is short.
    query(signatureOf({ ...file, expiration: "9".repeat(21) }, "one"), {
      signature_expiration: "9".repeat(21),
    }),
  ])
    assert.deepEqual(route("GET", wrong), { kind: "signed", target: { id: "", port: 49_983 } });
  assert.deepEqual(route("POST", query(signatureOf(file, "two"))), {
    kind: "signed",
    target: { id: "", port: 49_983 },
  });
});

test("routeOf() leaves requests of forkd's own API alone", () => {
  for (const url of ["/v1/sandboxes", "/metrics", "/healthz", "/files", "/", "/sandboxesx", "/v1/secrets"])
    assert.equal(route("GET", url), undefined, url);
  for (const url of ["/sandboxes", "/v2/sandboxes/x/connect", "/snapshots", "/v3/templates", "/volumes"])
    assert.deepEqual(route("GET", url), { kind: "control", path: url });
});

test("routeOf() knows the upload of files by the token in its address", () => {
  const hash = "a".repeat(64);
  const url = `/templates/x/files/${hash}`;
  assert.deepEqual(route("PUT", `${url}?upload=t`), { kind: "upload", hash, token: "t" });
  assert.deepEqual(route("PUT", url), { kind: "control", path: url });
});
