/** The token of a port in a request to its host name: where it is, and the request without it. Pure. */
import { createHash, timingSafeEqual } from "node:crypto";
import type { IncomingHttpHeaders } from "node:http";
import { portToken } from "@forkd/contract";

/** A page of another sandbox may set further cookies of that name; so many are looked at. */
const maxCookies = 8;

/** Clients of E2B send the token of a port in this header. */
const e2bTrafficHeader = "e2b-traffic-access-token";

type GivenTokens = {
  readonly query: string | undefined;
  readonly header: string | undefined;
  readonly cookies: readonly string[];
};

export function givenTokens(url: string, headers: IncomingHttpHeaders): GivenTokens {
  const header = headers[portToken.header] ?? headers[e2bTrafficHeader];
  return {
    query: pairsOf(url).find(({ name }) => name === portToken.query)?.value,
    header: typeof header === "string" ? header : undefined,
    cookies: cookiesOf(headers.cookie)
      .filter(({ name }) => name === portToken.cookie)
      .slice(0, maxCookies)
      .map(({ value }) => value),
  };
}

/** In constant time. */
export function isToken(given: string | undefined, token: string): boolean {
  return given !== undefined && timingSafeEqual(digestOf(given), digestOf(token));
}

function digestOf(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/** The target without the token; everything else keeps its spelling. */
export function withoutToken(url: string): string {
  const at = url.indexOf("?");
  if (at < 0) return url;
  const rest = pairsOf(url).filter(({ name }) => name !== portToken.query);
  const query = rest.map(({ text }) => text).join("&");
  return query === "" ? url.slice(0, at) : `${url.slice(0, at)}?${query}`;
}

/** The header Cookie without the token; undefined if nothing is left. */
export function withoutCookie(header: string): string | undefined {
  const rest = cookiesOf(header).filter(({ name }) => name !== portToken.cookie);
  return rest.length === 0 ? undefined : rest.map(({ text }) => text).join("; ");
}

/** Where a browser goes next. Never to another host, whatever the path looks like. */
export function redirectTarget(url: string): string {
  const target = withoutToken(url)
    .replace(/^https?:\/\/[^/?]*/i, "")
    .replaceAll("\\", "%5C");
  const path = target.startsWith("/") ? target : `/${target}`;
  return path.startsWith("//") ? `/.${path}` : path;
}

/** The header Set-Cookie for the token. */
export function tokenCookie(token: string, isHttps: boolean): string {
  return `${portToken.cookie}=${token}; Path=/; HttpOnly; SameSite=Lax${isHttps ? "; Secure" : ""}`;
}

type Pair = { readonly text: string; readonly name: string; readonly value: string };

function pairsOf(url: string): Pair[] {
  const at = url.indexOf("?");
  if (at < 0) return [];
  return url
    .slice(at + 1)
    .split("&")
    .map((text) => {
      const [[name, value] = ["", ""]] = new URLSearchParams(text);
      return { text, name, value };
    });
}

function cookiesOf(header = ""): Pair[] {
  return header
    .split(";")
    .map((part) => part.trim())
    .filter((text) => text !== "")
    .map((text) => {
      const at = text.indexOf("=");
      return { text, name: text.slice(0, Math.max(0, at)), value: text.slice(at + 1) };
    });
}
