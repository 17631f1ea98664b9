/** The types of handlers: what each route takes and gives. */
import type { Logger } from "@forkd/base";
import type { ParsedOf, ResponseOf, RouteName, Routes, StreamedOf } from "@forkd/contract";
import type { Caller } from "@forkd/runtime";
import type { Page } from "./answer/page.ts";

/**
 * `signal` fires when the client closes the connection before the answer is complete, or loses the right to
 * the answer.
 */
export type RequestContext = {
  readonly signal: AbortSignal;
  readonly log: Logger;
  readonly requestId: string;
  /** of performance.now() */
  readonly receivedAt?: number | undefined;
  readonly caller?: Caller | undefined;
  /** Disposes it when the answer is encoded, or not needed. */
  readonly untilAnswered?: ((held: Disposable) => void) | undefined;
  /** header Last-Event-ID */
  readonly lastEventId?: string | undefined;
};
type UploadContext = RequestContext & { readonly content: AsyncIterable<Uint8Array> };

export type AnswerOf<N extends RouteName> = Routes[N]["kind"] extends "bytes"
  ? AsyncIterable<Uint8Array>
  : Routes[N]["kind"] extends "events" | "sse"
    ? AsyncIterable<ResponseOf<N>>
    : | ResponseOf<N>
      | (ResponseOf<N> extends readonly unknown[] ? Page<ResponseOf<N>[number]> : never)
      | ([StreamedOf<N>] extends [never] ? never : AsyncIterable<StreamedOf<N>>);
export type ContextOf<N extends RouteName> = Routes[N]["kind"] extends "upload"
  ? UploadContext
  : RequestContext;

/**
 * One function per route. A rejection becomes a status. Iterables are sent line by line (or byte by byte)
 * once the handler resolves, so everything that can fail with a status must fail before.
 */
export type Handlers = {
  readonly [N in RouteName]: (
    input: ParsedOf<N>,
    context: ContextOf<N>,
  ) => AnswerOf<N> | Promise<AnswerOf<N>>;
};
/** A handler whose route is known only at run time. */
export type AnyHandler = (input: Record<string, unknown>, context: RequestContext | UploadContext) => unknown;
