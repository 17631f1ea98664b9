/** The token flow, against a server that gives out tokens. */
import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { rejectsWith } from "@forkd/test-support";
import { digestOf } from "../src/digest.ts";
import { isInsideAddress, isLoopback } from "../src/http/address.ts";
import { Transport } from "../src/http/transport.ts";
import { Registries } from "../src/registries.ts";
import { blobOf, openRepository, readAll, startLiar } from "./liar.ts";

/** A registry that accepts the tokens which its own token server gave out. */
async function startTokenRegistry(t: TestContext, answer: (query: URLSearchParams, body: string) => string) {
  const asked: { authorization: string | undefined; query: URLSearchParams; body: string }[] = [];
  const server = await startLiar(t, (request, response) => {
    const url = new URL(request.url ?? "", "http://x");
    let body = "";
    request.on("data", (piece: Buffer) => (body += piece.toString()));
    request.on("end", () => {
      if (url.pathname === "/token") {
        const { authorization } = request.headers;
        asked.push({ authorization, query: url.searchParams, body });
        const text = answer(url.searchParams, body);
        response.writeHead(text === "no" ? 401 : 200).end(text);
      } else if (request.headers.authorization?.startsWith("Bearer good") !== true) {
        const realm = `http://${request.headers.host}/token`;
        response.writeHead(401, { "www-authenticate": `Bearer realm="${realm}",service="test"` }).end();
      } else if (request.method === "POST") response.writeHead(202, { location: "/v2/up" }).end();
      else if (request.method === "PUT") response.writeHead(201).end();
      else response.end('{"tags":[]}');
    });
  });
  return { ...server, asked };
}

const user = async () => ({ username: "user", password: "p:w" });

test("a token is asked for once per scope and reused", async (t) => {
  const { address, asked } = await startTokenRegistry(t, () => '{"token":"good","expires_in":300}');
  const repository = openRepository(t, address, { credentials: user });
  await Promise.all([repository.tags(), repository.tags()]);
  await repository.tags();
  await repository.uploadBlob(blobOf(Buffer.from("x"), digestOf("x")));
  assert.deepEqual(
    asked.map(({ query }) => query.get("scope")),
    ["repository:x:pull", "repository:x:pull,push"],
  );
  for (const { authorization, query } of asked) {
    assert.equal(authorization, `Basic ${Buffer.from("user:p:w").toString("base64")}`);
    assert.equal(query.get("service"), "test");
  }
});

test("a client that is going to push asks for one token for all of it", async (t) => {
  const { address, asked } = await startTokenRegistry(t, () => '{"token":"good","expires_in":300}');
  using registries = new Registries({ credentials: user, plainHttp: true });
  const repository = registries.repository({ registry: address, repository: "x" }, "pull,push");
  await repository.tags();
  await repository.uploadBlob(blobOf(Buffer.from("x"), digestOf("x")));
  assert.deepEqual(
    asked.map(({ query }) => query.get("scope")),
    ["repository:x:pull,push"],
  );
});

test("an anonymous client asks for a token without a password", async (t) => {
  const { address, asked } = await startTokenRegistry(t, () => '{"access_token":"good"}');
  await openRepository(t, address).tags();
  assert.equal(asked[0]?.authorization, undefined);
});

test("an identity token is exchanged", async (t) => {
  const { address, asked } = await startTokenRegistry(t, () => '{"access_token":"good"}');
  const credentials = async () => ({ identityToken: "refresh me" });
  await openRepository(t, address, { credentials }).tags();
  const form = new URLSearchParams(asked[0]?.body);
  assert.deepEqual(
    [form.get("grant_type"), form.get("refresh_token"), form.get("service"), form.get("scope")],
    ["refresh_token", "refresh me", "test", "repository:x:pull"],
  );
});

test("a token of the registry is sent as it is", async (t) => {
  const { address, asked } = await startTokenRegistry(t, () => "no");
  await openRepository(t, address, { credentials: async () => ({ registryToken: "good one" }) }).tags();
  assert.equal(asked.length, 0);
});

test("a token that the registry no longer accepts is replaced once", async (t) => {
  let given = 0;
  const { address, asked } = await startTokenRegistry(
    t,
    () => `{"token":"${given++ === 0 ? "bad" : "good"}"}`,
  );
  await openRepository(t, address).tags();
  assert.equal(asked.length, 2);
  const never = await startTokenRegistry(t, () => '{"token":"bad"}');
  await rejectsWith(openRepository(t, never.address).tags(), "registry_denied");
  assert.ok(never.asked.length <= 2);
});

test("wrong answers of a token server are errors", async (t) => {
  const cases = ["no", "{}", '{"token":""}', '{"token":5}', '{"token":"a\\nb"}', "<html>", "null"];
  for (const text of cases) {
    const { address } = await startTokenRegistry(t, () => text);
    await rejectsWith(
      openRepository(t, address).tags(),
      text === "no" ? "registry_denied" : "registry_failed",
    );
  }
});

test("a password is not sent to a token server without TLS", async (t) => {
  const { address, headers } = await startLiar(t, (_request, response) => {
    response.writeHead(401, { "www-authenticate": 'Bearer realm="ftp://tokens.example.com/"' }).end();
  });
  await rejectsWith(openRepository(t, address, { credentials: user }).tags(), "registry_failed", /TLS/);
  assert.ok(headers.every(({ authorization }) => authorization === undefined));
});

test("a registry on this host cannot send the client into the network without TLS", async (t) => {
  const { address } = await startLiar(t, (request, response) => {
    if (request.url?.includes("/blobs/"))
      response.writeHead(307, { location: "http://store.invalid/blob?signature=s3cret" }).end();
    else response.writeHead(401, { "www-authenticate": 'Bearer realm="http://tokens.invalid/token"' }).end();
  });
  const repository = openRepository(t, address, { credentials: user, plainHttp: false });
  await rejectsWith(
    repository.tags(),
    "registry_failed",
    /"http:\/\/tokens.invalid\/token" does not use TLS/,
  );
  const blob = { digest: digestOf("x"), size: 1 };
  const error = await readAll(repository.readBlob(blob)).catch((cause: unknown) => cause);
  assert.match(String(error), /"http:\/\/store.invalid\/blob": it has no TLS/);
  assert.doesNotMatch(String(error), /s3cret/);
});

test("a registry cannot send the client to services of its own host", async () => {
  for (const address of ["127.0.0.1", "169.254.169.254", "::1", "0.0.0.0", "fe80::1", "::ffff:127.0.0.1"])
    assert.ok(isInsideAddress(address), address);
  for (const address of ["192.0.2.1", "10.0.0.1", "2001:db8::1"])
    assert.ok(!isInsideAddress(address), address);
  assert.ok(isLoopback("localhost:5000") && isLoopback("[::1]:5000") && isLoopback("127.0.0.1"));
  assert.ok(!isLoopback("localhost.example.com") && !isLoopback("10.0.0.1:5000"));
  using transport = new Transport();
  const outgoing = { method: "GET", headers: {}, silenceMs: 5000, isForeign: true } as const;
  for (const host of ["127.0.0.1:1", "localhost:1", "[::1]:1"])
    await assert.rejects(transport.send(new URL(`http://${host}/`), outgoing), /of this host/);
});
