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
  try {
    return JSON.parse(body.toString());
  } catch (error) {
    throw invalid("the body is not JSON", error);
  }
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
