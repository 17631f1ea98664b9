/** Tables of what a schema accepts and refuses. */
import assert from "node:assert/strict";
import { inspect } from "node:util";
import type { z } from "zod";

/** Fails unless the value is refused with a message about the field at `path` that matches. */
export function assertRefused(schema: z.ZodType, value: unknown, path: string, message = /./): void {
  const result = schema.safeParse(value);
  assert.ok(!result.success, `accepted: ${inspect(value).slice(0, 200)}`);
  const found = result.error.issues.map((issue) => ({ path: issue.path.join("."), message: issue.message }));
  assert.ok(
    found.some((issue) => issue.path === path && message.test(issue.message)),
    `expected "${path}" ${message}, got ${JSON.stringify(found)}`,
  );
}

export function assertAccepted(schema: z.ZodType, value: unknown): void {
  const result = schema.safeParse(value);
  assert.ok(result.success, `refused: ${inspect(value).slice(0, 200)}: ${result.error?.message}`);
}
