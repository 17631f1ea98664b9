/** Who may call the agent of a sandbox: access tokens, signed URLs of files, names of users. Pure. */
import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { AppError } from "@forkd/contract";
import { signatureOf } from "../signature.ts";

/** Compares digests, so that the time says nothing about either text. */
export function isSame(one: string, other: string): boolean {
  const digest = (text: string) => createHash("sha256").update(text).digest();
  return timingSafeEqual(digest(one), digest(other));
}

/** Throws unless the request has the token. A sandbox without a token serves every request. */
export function requireToken(headers: IncomingHttpHeaders, token: string | undefined): void {
  if (token === undefined) return;
  const given = headers["x-access-token"];
  if (given === undefined)
    throw new AppError(
      "unauthenticated",
      'unauthorized access, please provide a valid "X-Access-Token" header',
    );
  if (typeof given !== "string" || !isSame(given, token))
    throw new AppError("unauthenticated", 'unauthorized access: the "X-Access-Token" header is wrong');
}

/** The same for contexts of code, to which clients send only the token of the ports. */
export function requireEitherToken(
  headers: IncomingHttpHeaders,
  { token, trafficToken }: { token: string | undefined; trafficToken: string | undefined },
): void {
  const given = headers["e2b-traffic-access-token"];
  const isTraffic = typeof given === "string" && trafficToken !== undefined && isSame(given, trafficToken);
  if (!isTraffic) requireToken(headers, token);
}

type FileAccess = {
  readonly headers: IncomingHttpHeaders;
  readonly query: URLSearchParams;
  readonly operation: "read" | "write";
};

/** The same for a file, where a signature in the query does instead of the token. */
export function requireFileAccess(
  { headers, query, operation }: FileAccess,
  token: string | undefined,
  nowSecs = Date.now() / 1000,
): void {
  if (token === undefined) return;
  const signature = query.get("signature");
  if (headers["x-access-token"] !== undefined || signature === null) return requireToken(headers, token);
  const expiration = query.get("signature_expiration") ?? undefined;
  const expected = signatureOf(
    { path: query.get("path") ?? "", operation, user: query.get("username") ?? "", expiration },
    token,
  );
  if (!isSame(signature, expected)) throw new AppError("unauthenticated", "invalid signature");
  if (expiration !== undefined && !(Number(expiration) >= nowSecs))
    throw new AppError("unauthenticated", "signature is already expired");
}

/** The user of `Authorization: Basic`, whose password is empty; undefined without the header. */
export function basicUser(headers: IncomingHttpHeaders): string | undefined {
  const { authorization } = headers;
  if (authorization === undefined) return undefined;
  const [, encoded] = /^Basic ([A-Za-z0-9+/=_-]+)$/i.exec(authorization) ?? [];
  const text = encoded === undefined ? "" : Buffer.from(encoded, "base64").toString();
  const colon = text.indexOf(":");
  if (colon < 1)
    throw new AppError("unauthenticated", 'The header "Authorization" must be Basic with the name of a user');
  return text.slice(0, colon);
}
