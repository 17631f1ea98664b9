/** Tries again what may succeed later. */
import { setTimeout as sleep } from "node:timers/promises";
import { RegistryTrouble } from "../errors.ts";

export type RetryPolicy = {
  readonly attempts: number;
  /** wait before the second attempt; doubles for each further one */
  readonly firstMs: number;
  readonly maxMs: number;
};

export const defaultRetries: RetryPolicy = { attempts: 5, firstMs: 500, maxMs: 20_000 };

export async function withRetries<T>(
  policy: RetryPolicy,
  signal: AbortSignal | undefined,
  work: (attempt: number) => Promise<T>,
): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work(attempt);
    } catch (error) {
      signal?.throwIfAborted();
      if (attempt >= policy.attempts || !isTransient(error)) throw error;
      await pause(policy, { attempt, error, signal });
    }
  }
}

export function isTransient(error: unknown): error is RegistryTrouble {
  return error instanceof RegistryTrouble && error.isTransient;
}

/** The registry may ask for a longer pause than ours, up to the longest of ours. */
export async function pause(
  { firstMs, maxMs }: RetryPolicy,
  { attempt, error, signal }: { attempt: number; error: unknown; signal: AbortSignal | undefined },
): Promise<void> {
  const own = firstMs * 2 ** (attempt - 1) * (0.75 + Math.random() / 2);
  const asked = isTransient(error) ? (error.retryAfterMs ?? 0) : 0;
  await sleep(Math.min(Math.max(own, asked), maxMs), undefined, signal ? { signal } : {});
}

/** `Retry-After` in seconds or as a date. */
export function retryAfterMs(header: string | undefined): number | undefined {
  if (header === undefined) return undefined;
  if (/^\d{1,6}$/.test(header)) return Number(header) * 1000;
  const at = Date.parse(header);
  return Number.isNaN(at) ? undefined : Math.max(0, at - Date.now());
}
