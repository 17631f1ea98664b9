/** Bodies and queries of requests, checked. Fields that E2B adds later are ignored, as E2B does. */
import { AppError } from "@forkd/contract";
import type { z } from "zod";

const maxIssues = 3;

export function parse<S extends z.ZodType>(schema: S, value: unknown): z.output<S> {
  const parsed = schema.safeParse(value);
  if (parsed.success) return parsed.data;
  const issues = parsed.error.issues.map(({ path, message }) => ({
    path: path.map(String).join(".").slice(0, 256),
    message,
  }));
  const text = issues.map(({ path, message }) => (path === "" ? message : `${path}: ${message}`));
  throw new AppError("invalid_request", `Invalid request: ${text.slice(0, maxIssues).join("; ")}`, {
    details: { issues: issues.slice(0, 100) },
  });
}
