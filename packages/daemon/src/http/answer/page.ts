/**
 * A list → one page and the cursor of the next. A cursor is the sort key of the last entry seen, so that
 * pages neither skip nor repeat entries that exist throughout, whatever is added or removed between two
 * pages.
 */
import type { IncomingMessage, ServerResponse } from "node:http";
import { invalidRequest } from "../body/invalid-request.ts";

export class Page<T> {
  readonly items: T[];
  readonly next: string | undefined;

  constructor(items: T[], next: string | undefined) {
    this.items = items;
    this.next = next;
  }
}

type Key = readonly (number | string)[];
type KeyKind<T> = {
  readonly name: string;
  readonly types: readonly ("number" | "string")[];
  readonly of: (item: T) => Key;
};

export const byAgeKey: KeyKind<{ created_at_unix: number; id: string }> = {
  name: "age",
  types: ["number", "string"],
  of: ({ created_at_unix, id }) => [created_at_unix, id],
};
export const byTagKey: KeyKind<{ tag: string }> = { name: "tag", types: ["string"], of: ({ tag }) => [tag] };

/** `items` are in the order of their keys. */
export function pageOf<T, K extends T>(
  items: readonly K[],
  { limit, cursor }: { limit?: number | undefined; cursor?: string | undefined },
  kind: KeyKind<T>,
): Page<K> {
  const after = cursor === undefined ? undefined : decode(cursor, kind);
  const rest = after === undefined ? [...items] : items.filter((item) => compare(kind.of(item), after) > 0);
  if (limit === undefined || rest.length <= limit) return new Page(rest, undefined);
  const page = rest.slice(0, limit);
  const last = page.at(-1);
  return new Page(page, last === undefined ? undefined : encode(kind.name, kind.of(last)));
}

function compare(a: Key, b: Key): number {
  for (const [index, left] of a.entries()) {
    const right = b[index];
    if (right === undefined || left === right) continue;
    return left < right ? -1 : 1;
  }
  return 0;
}

function encode(name: string, key: Key): string {
  return Buffer.from(JSON.stringify([name, ...key])).toString("base64url");
}

function decode<T>(cursor: string, { name, types }: KeyKind<T>): Key {
  try {
    const [found, ...key] = JSON.parse(Buffer.from(cursor, "base64url").toString("utf8")) as unknown[];
    if (found === name && key.length === types.length && key.every((part, at) => typeof part === types[at]))
      return key as (number | string)[];
  } catch (error) {
    if (!(error instanceof SyntaxError || error instanceof TypeError)) throw error;
  }
  throw invalidRequest([
    { path: "cursor", message: "is not one of this list: use X-Next-Cursor of the page before, unchanged" },
  ]);
}

/** Returns the entries and puts the cursor of the next page into the headers. */
export function answerPage<T>(outgoing: ServerResponse, incoming: IncomingMessage, page: Page<T>): T[] {
  if (page.next !== undefined) {
    const [path = "/", query = ""] = (incoming.url ?? "").split("?", 2);
    const parameters = new URLSearchParams(query);
    parameters.set("cursor", page.next);
    outgoing.setHeader("x-next-cursor", page.next);
    outgoing.setHeader("link", `<${path}?${parameters.toString()}>; rel="next"`);
  }
  return page.items;
}
