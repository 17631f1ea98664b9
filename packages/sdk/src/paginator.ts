/** Pages of a list. */
import type { RequestOf, ResponseOf } from "@forkd/contract";
import type { CallOptions, Client, ListRoute, Page } from "./client.ts";
import { filterOf, refuseUnknown } from "./convert/request.ts";

/** Longest page that the daemon allows. */
const pageLength = 1000;

/** A list that is read page by page: `for await` each entry, `all()`, or `page()` for the next page. */
export class Paginator<T> implements AsyncIterable<T> {
  readonly #read: (cursor: string | undefined, length: number) => Promise<Page<T>>;
  #left: number;
  #cursor: string | undefined;
  #isAtEnd = false;
  #last: Promise<unknown> = Promise.resolve();

  /** @internal */
  constructor(
    read: (cursor: string | undefined, length: number) => Promise<Page<T>>,
    limit = Number.POSITIVE_INFINITY,
  ) {
    this.#read = read;
    this.#left = limit;
  }

  /** True until the last page was read. */
  get hasNext(): boolean {
    return !this.#isAtEnd;
  }

  /** Reads the next page; empty after the last one. */
  page(): Promise<T[]> {
    const page = this.#last.then(() => this.#next());
    this.#last = page.catch(() => undefined);
    return page;
  }

  /** Reads all pages that are left. */
  async all(): Promise<T[]> {
    const pages: T[][] = [];
    while (this.hasNext) pages.push(await this.page());
    return pages.flat();
  }

  /** Iterates the entries and reads pages when they are needed. */
  async *[Symbol.asyncIterator](): AsyncGenerator<T> {
    while (this.hasNext) yield* await this.page();
  }

  async #next(): Promise<T[]> {
    if (this.#isAtEnd) return [];
    const { items, next } = await this.#read(this.#cursor, Math.min(pageLength, this.#left));
    this.#left -= items.length;
    this.#cursor = next;
    this.#isAtEnd = next === undefined || this.#left <= 0;
    return items;
  }
}

type Paging = { limit?: unknown; cursor?: unknown };

/** Lists with the fields of `filter`; `limit` is the number of entries of all pages together. */
export function paginate<N extends ListRoute, T>(
  client: Client,
  name: N,
  { filter, options }: { filter: { limit?: number | undefined }; options: CallOptions },
  toItem: (wire: ResponseOf<N>[number]) => T,
): Paginator<T> {
  return new Paginator(async (cursor, limit) => {
    refuseUnknown(name, options, []);
    const { limit: _, ...given } = filter;
    const paging = { limit: undefined, cursor: undefined } as Partial<RequestOf<N>>;
    const request: RequestOf<N> & Paging = filterOf(name, paging, given);
    const { items, next } = await client.page(name, { ...request, limit, cursor }, options);
    return { items: items.map(toItem), next };
  }, filter.limit);
}
