/**
 * Answers the challenges of one registry: Basic, or tokens of the server that the registry names.
 *
 * Like every client of this protocol, it sends the password to that token server. This gives a hostile
 * registry nothing that it could not have by asking for Basic itself; TLS is required in both cases.
 */
import { SingleFlight } from "@forkd/base";
import type { Credentials } from "../credentials/credentials.ts";
import { broken, denied, quoted, unreachable } from "../errors.ts";
import { readErrorText, readJsonBody } from "../http/body.ts";
import { retryAfterMs } from "../http/retry.ts";
import type { Incoming, Outgoing } from "../http/transport.ts";
import { parseChallenges, type Challenge } from "./challenge.ts";

type Token = { readonly text: string; readonly untilMs: number };
type TokenServer = { readonly realm: URL; readonly service: string | undefined };
type AuthorizerOptions = {
  readonly registry: string;
  readonly credentials: () => Promise<Credentials | undefined>;
  /** whether the password may be sent there without TLS */
  readonly isPlainAllowed: (url: URL) => boolean;
  readonly send: (url: URL, outgoing: Omit<Outgoing, "silenceMs">) => Promise<Incoming>;
};

const maxTokenAnswer = 256 * 1024;
const maxTokenLength = 64 * 1024;
const maxTokens = 256;
const defaultLifeMs = 60_000;
/** A token is renewed this long before it expires. */
const marginMs = 10_000;

export class Authorizer {
  readonly #options: AuthorizerOptions;
  readonly #tokens = new Map<string, Token>();
  readonly #fetching = new SingleFlight<Token>();
  #basic: string | undefined;
  #server: TokenServer | undefined;

  constructor(options: AuthorizerOptions) {
    this.#options = options;
  }

  get wasAsked(): boolean {
    return this.#basic !== undefined || this.#server !== undefined;
  }

  /** The header for these scopes, or undefined as long as the registry has not asked for one. */
  async header(scopes: readonly string[], signal: AbortSignal | undefined): Promise<string | undefined> {
    if (this.#basic !== undefined) return this.#basic;
    return this.#server && `Bearer ${(await this.#token(this.#server, scopes, signal)).text}`;
  }

  /** Reads the challenge of an answer 401. Throws if this client cannot meet it. */
  async learn(incoming: Incoming, scopes: readonly string[], wasSent: boolean): Promise<void> {
    const { registry } = this.#options;
    const what = `Cannot log in to ${registry}`;
    const challenges = parseChallenges(incoming.headers["www-authenticate"] ?? "");
    const bearer = challenges.find(({ scheme }) => scheme === "bearer");
    if (wasSent) {
      const { error } = bearer?.parameters ?? {};
      // A token may have been revoked, or have expired by the clock of the registry.
      const isFresh = this.#tokens.delete(keyOf(scopes)) === false || error === "insufficient_scope";
      if (this.#basic !== undefined || isFresh)
        throw denied(`${registry} denies access`, registry, (await readErrorText(incoming)) ?? "status 401");
      return;
    }
    if (bearer) {
      this.#server = this.#serverOf(bearer, what);
      return;
    }
    if (!challenges.some(({ scheme }) => scheme === "basic"))
      throw broken(what, "the registry asks for a way to log in that this client does not know");
    const credentials = await this.#options.credentials();
    if (!credentials) throw denied(what, registry, "it needs a user name and a password");
    this.#basic =
      "registryToken" in credentials ? `Bearer ${credentials.registryToken}` : basicOf(credentials, what);
  }

  #serverOf({ parameters }: Challenge, what: string): TokenServer {
    const { realm = "", service } = parameters;
    if (!URL.canParse(realm)) throw broken(what, `"${quoted(realm)}" is not the address of a token server`);
    const url = new URL(realm);
    if (url.protocol !== "https:" && !(url.protocol === "http:" && this.#options.isPlainAllowed(url)))
      throw broken(what, `the token server "${quoted(realm)}" does not use TLS`);
    url.username = url.password = "";
    return { realm: url, service };
  }

  async #token(
    server: TokenServer,
    scopes: readonly string[],
    signal: AbortSignal | undefined,
  ): Promise<Token> {
    const key = keyOf(scopes);
    const known = this.#tokens.get(key);
    if (known && performance.now() < known.untilMs) return known;
    const token = await this.#fetching.run(key, (ends) => this.#askServer(server, scopes, ends), signal);
    const [oldest] = this.#tokens.keys();
    if (this.#tokens.size >= maxTokens && oldest !== undefined) this.#tokens.delete(oldest);
    this.#tokens.set(key, token);
    return token;
  }

  async #askServer(server: TokenServer, scopes: readonly string[], signal: AbortSignal): Promise<Token> {
    const { registry, send } = this.#options;
    const credentials = await this.#options.credentials();
    if (credentials && "registryToken" in credentials)
      return { text: credentials.registryToken, untilMs: Infinity };
    const what = `Cannot get a token for ${registry}`;
    const [url, outgoing] = requestOf(server, scopes, credentials, what);
    const incoming = await send(url, { ...outgoing, signal });
    if (incoming.status === 200) return tokenOf(await readJsonBody(incoming, maxTokenAnswer, what), what);
    const why = (await readErrorText(incoming)) ?? `status ${incoming.status} of ${url.host}`;
    if (incoming.status === 429 || incoming.status >= 500)
      throw unreachable(what, why, retryAfterMs(incoming.headers["retry-after"]));
    if (incoming.status === 400 || incoming.status === 401 || incoming.status === 403)
      throw denied(what, registry, why);
    throw broken(what, why);
  }
}

function keyOf(scopes: readonly string[]): string {
  return scopes.toSorted().join(" ");
}

function requestOf(
  { realm, service }: TokenServer,
  scopes: readonly string[],
  credentials: Exclude<Credentials, { registryToken: string }> | undefined,
  what: string,
): [URL, Pick<Outgoing, "method" | "headers" | "body">] {
  const url = new URL(realm);
  if (credentials && "identityToken" in credentials) {
    const form = new URLSearchParams({
      grant_type: "refresh_token",
      client_id: "forkd",
      refresh_token: credentials.identityToken,
      scope: scopes.join(" "),
      ...(service !== undefined && { service }),
    });
    const headers = { "content-type": "application/x-www-form-urlencoded" };
    return [url, { method: "POST", headers, body: Buffer.from(form.toString()) }];
  }
  if (service !== undefined) url.searchParams.set("service", service);
  for (const scope of scopes) url.searchParams.append("scope", scope);
  const headers = credentials ? { authorization: basicOf(credentials, what) } : {};
  return [url, { method: "GET", headers }];
}

function basicOf(credentials: Exclude<Credentials, { registryToken: string }>, what: string): string {
  if ("identityToken" in credentials)
    throw broken(what, "the registry asks for a password, and there is only an identity token for it");
  return `Basic ${Buffer.from(`${credentials.username}:${credentials.password}`).toString("base64")}`;
}

function tokenOf(answer: unknown, what: string): Token {
  const { token, access_token: accessToken, expires_in: expires } = (answer ?? {}) as Record<string, unknown>;
  const text = typeof token === "string" && token !== "" ? token : accessToken;
  if (typeof text !== "string" || !/^[\x21-\x7e]+$/.test(text) || text.length > maxTokenLength)
    throw broken(what, "the answer of the token server has no token");
  const isLife = typeof expires === "number" && Number.isFinite(expires) && expires > 0;
  const lifeMs = isLife ? Math.min(expires * 1000, 86_400_000) : defaultLifeMs;
  return { text, untilMs: performance.now() + Math.max(lifeMs - marginMs, lifeMs / 2) };
}
