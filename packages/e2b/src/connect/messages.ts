/** Messages of Connect as JSON (proto3): how a request becomes checked input. Pure. */
import { isUtf8 } from "node:buffer";
import { AppError } from "@forkd/contract";
import { z } from "zod";

/** Parses and checks a message. `null` stands for an absent field. */
export function parseMessage<T>(schema: z.ZodType<T>, body: Buffer): T {
  const parsed = schema.safeParse(withoutNulls(parseJson(body)));
  if (parsed.success) return parsed.data;
  const [issue] = parsed.error.issues;
  const field = issue?.path.join(".");
  throw invalid(field ? `the field "${field}": ${issue?.message}` : (issue?.message ?? "not a message"));
}

function parseJson(body: Buffer): unknown {
  if (body.length === 0) return {};
  if (!isUtf8(body)) throw invalid("the body is not UTF-8");
  requireCheap(body);
  try {
    return JSON.parse(body.toString());
  } catch (error) {
    throw invalid("the body is not JSON", error);
  }
}

/** Small values are little to send, and much to hold and to check. */
const maxValues = 20_000;
const maxDepth = 64;
const [quote, backslash, comma] = [0x22, 0x5c, 0x2c];
const opening: ReadonlySet<number> = new Set([0x5b, 0x7b]);
const closing: ReadonlySet<number> = new Set([0x5d, 0x7d]);

/** Does not check whether the text is JSON. */
function requireCheap(body: Buffer): void {
  let [values, depth] = [0, 0];
  for (let at = 0; at < body.length; at++) {
    const byte = body[at] ?? 0;
    if (byte === quote) at = endOfString(body, at);
    else if (byte === comma) values++;
    else if (opening.has(byte)) {
      values++;
      depth++;
    } else if (closing.has(byte)) depth--;
    if (depth > maxDepth) throw invalid(`it has more than ${maxDepth} objects and lists in each other`);
    if (values > maxValues) throw invalid(`it has more than ${maxValues} values`);
  }
}

/** Most of a long message is one string, so this is the part that has to be fast. */
function endOfString(body: Buffer, start: number): number {
  for (let end = body.indexOf(quote, start + 1); end >= 0; end = body.indexOf(quote, end + 1)) {
    let escapes = end;
    while (body[escapes - 1] === backslash) escapes--;
    if ((end - escapes) % 2 === 0) return end;
  }
  return body.length;
}

function invalid(why: string, cause?: unknown): AppError {
  return new AppError("invalid_request", `Cannot read the request: ${why}`, { cause });
}

function withoutNulls(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(withoutNulls);
  if (value === null || typeof value !== "object") return value;
  const kept = Object.entries(value).filter(([, each]) => each !== null);
  return Object.fromEntries(kept.map(([name, each]) => [name, withoutNulls(each)]));
}

/** bytes: base64, standard or URL-safe */
export const bytesSchema = z
  .string()
  .regex(/^[A-Za-z0-9+/_-]*={0,2}$/, "must be base64")
  .transform((text) => Buffer.from(text, "base64"));

export const uint32Schema = z.union([z.number(), z.string().regex(/^\d+$/).transform(Number)]).pipe(
  z
    .int()
    .min(0)
    .max(2 ** 32 - 1),
);

/** Limits of the header `Connect-Timeout-Ms`: at most ten digits; 0 and no header mean no deadline. */
export function timeoutMs(header: string | string[] | undefined): number | undefined {
  if (header === undefined) return undefined;
  if (typeof header !== "string" || !/^\d{1,10}$/.test(header))
    throw invalid('the header "Connect-Timeout-Ms" must be a number of at most ten digits');
  return Number(header) || undefined;
}

const defaultKeepaliveMs = 90_000;

/** How long a stream may be silent before it sends a keepalive. */
export function keepaliveMs(header: string | string[] | undefined): number {
  const secs = typeof header === "string" && /^\d{1,6}$/.test(header) ? Number(header) : 0;
  return secs > 0 ? secs * 1000 : defaultKeepaliveMs;
}
