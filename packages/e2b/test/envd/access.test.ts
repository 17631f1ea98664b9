import assert from "node:assert/strict";
import { test } from "node:test";
import { AppError } from "@forkd/contract";
import {
  basicUser,
  isSame,
  requireEitherToken,
  requireFileAccess,
  requireToken,
} from "../../src/envd/access.ts";
import { signatureOf } from "../../src/signature.ts";

const token = "0tQG31xiMp0IOQfaz9dcwi72L1CPo8e0";
const refuses = (work: () => void, message: RegExp) =>
  assert.throws(
    work,
    (error: unknown) =>
      error instanceof AppError && error.code === "unauthenticated" && message.test(error.message),
  );

test("requireToken() accepts the token of the sandbox and nothing else", () => {
  requireToken({ "x-access-token": token }, token);
  requireToken({}, undefined);
  refuses(() => requireToken({}, token), /please provide/);
  refuses(() => requireToken({ "x-access-token": "" }, token), /wrong/);
  refuses(() => requireToken({ "x-access-token": `${token}x` }, token), /wrong/);
  assert.ok(!isSame("", token));
});

test("requireEitherToken() accepts one of the two tokens of the sandbox", () => {
  const both = { token, trafficToken: "traffic" };
  requireEitherToken({ "x-access-token": token }, both);
  requireEitherToken({ "e2b-traffic-access-token": "traffic" }, both);
  requireEitherToken({}, { ...both, token: undefined });
  refuses(() => requireEitherToken({}, both), /please provide/);
  refuses(() => requireEitherToken({ "e2b-traffic-access-token": token }, both), /please provide/);
  refuses(
    () => requireEitherToken({ "e2b-traffic-access-token": "" }, { token, trafficToken: undefined }),
    /please provide/,
  );
});

test("requireFileAccess() accepts a signature instead of the token", () => {
  const signature = signatureOf({ path: "hello.txt", operation: "read", user: "user" }, token);
  const query = new URLSearchParams({ path: "hello.txt", username: "user", signature });
  const access = { headers: {}, query, operation: "read" } as const;
  requireFileAccess(access, token);
  requireFileAccess({ ...access, query: new URLSearchParams() }, undefined);
  refuses(() => requireFileAccess({ ...access, operation: "write" }, token), /invalid signature/);
  refuses(() => requireFileAccess({ ...access, headers: { "x-access-token": "no" } }, token), /wrong/);
  refuses(
    () => requireFileAccess({ ...access, query: new URLSearchParams({ path: "hello.txt" }) }, token),
    /provide/,
  );
});

test("a signature expires, and its end cannot be moved", () => {
  const expiration = "1000";
  const signature = signatureOf({ path: "/a", operation: "write", user: "", expiration }, token);
  const query = new URLSearchParams({ path: "/a", signature, signature_expiration: expiration });
  const access = { headers: {}, query, operation: "write" } as const;
  requireFileAccess(access, token, 1000);
  refuses(() => requireFileAccess(access, token, 1001), /already expired/);
  query.set("signature_expiration", "2000");
  refuses(() => requireFileAccess(access, token, 1001), /invalid signature/);
  const endless = signatureOf({ path: "/a", operation: "write", user: "", expiration: "never" }, token);
  const odd = new URLSearchParams({ path: "/a", signature: endless, signature_expiration: "never" });
  refuses(() => requireFileAccess({ ...access, query: odd }, token), /expired/);
});

test("basicUser() reads the name", () => {
  const header = (text: string) => ({ authorization: `Basic ${Buffer.from(text).toString("base64")}` });
  assert.equal(basicUser({}), undefined);
  assert.equal(basicUser(header("user:")), "user");
  assert.equal(basicUser(header("a:b:c")), "a");
  for (const headers of [
    header(":"),
    header("user"),
    { authorization: "Bearer x" },
    { authorization: "Basic" },
  ])
    refuses(() => void basicUser(headers), /Basic/);
});
