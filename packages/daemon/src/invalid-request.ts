/** zod's findings → `invalid_request`, with the field and the rule of each. */
import { AppError } from "@forkd/contract";
import type { z } from "zod";

export type Issue = { path: string; message: string };

export function issuesOf(error: z.ZodError): Issue[] {
  return error.issues.flatMap((issue): Issue[] => {
    const path = issue.path.map(String);
    if (issue.code !== "unrecognized_keys") return [{ path: path.join("."), message: issue.message }];
    return issue.keys.map((key) => ({ path: [...path, key].join("."), message: "is not a known field" }));
  });
}

export function invalidRequest(issues: readonly Issue[]): AppError {
  const text = issues.map(({ path, message }) => (path === "" ? message : `${path}: ${message}`));
  return new AppError(
    "invalid_request",
    `Invalid request: ${text.slice(0, 3).join("; ")}${more(issues.length - 3)}`,
    {
      details: { issues: [...issues] },
    },
  );
}

function more(count: number): string {
  return count > 0 ? ` (and ${count} more)` : "";
}
