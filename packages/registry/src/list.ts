/** Lists in pages: tags and repositories. */
import { broken } from "./errors.ts";
import type { RegistryHost } from "./host.ts";
import { readJsonBody } from "./http/body.ts";
import { withRetries, type RetryPolicy } from "./http/retry.ts";

type List = {
  readonly host: RegistryHost;
  readonly retries: RetryPolicy;
  /** below `/v2/` */
  readonly target: string;
  readonly scopes: readonly string[];
  readonly field: "tags" | "repositories";
  readonly what: string;
  readonly signal: AbortSignal | undefined;
};

const maxPageBytes = 4 * 1024 * 1024;
const maxPages = 1000;
const maxNames = 100_000;
const maxNameLength = 512;

export async function listPages(list: List): Promise<string[]> {
  const { host, retries, what, signal } = list;
  const names: string[] = [];
  let target: string | URL | undefined = list.target;
  for (let page = 0; target !== undefined; page++) {
    if (page === maxPages) throw broken(what, `there are more than ${maxPages} pages`);
    const { scopes, field } = list;
    const asked: string | URL = target;
    [target] = await withRetries(retries, signal, async () => {
      const incoming = await host.request({ method: "GET", target: asked, scopes, what, signal });
      const { [field]: found } = ((await readJsonBody(incoming, maxPageBytes, what)) ?? {}) as Record<
        string,
        unknown
      >;
      // null: some registries say so of a repository without tags.
      const texts = found ?? [];
      if (!isNames(texts)) throw broken(what, `the answer has no list of ${field}`);
      if (names.length + texts.length > maxNames) throw broken(what, `there are more than ${maxNames}`);
      names.push(...texts);
      return [texts.length === 0 ? undefined : nextOf(host, incoming.headers["link"], incoming.url)];
    });
  }
  return names;
}

function isNames(value: unknown): value is string[] {
  return (
    Array.isArray(value) && value.every((each) => typeof each === "string" && each.length <= maxNameLength)
  );
}

/** `Link: </v2/…?last=x&n=100>; rel="next"`. A page of another host is not followed. */
function nextOf(host: RegistryHost, link: string | string[] | undefined, base: URL): URL | undefined {
  const text = Array.isArray(link) ? link[0] : link;
  const target = /<([^>]*)>\s*;[^,]*\brel="?next"?/i.exec(text ?? "")?.[1];
  if (target === undefined) return undefined;
  const url = host.resolve(target, base);
  return url.origin === base.origin ? url : undefined;
}
