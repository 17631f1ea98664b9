/** zod's findings → `invalid_request`, with the field and the rule of each. */
import { AppError } from "@forkd/contract";
import type { z } from "zod";

type Issue = { path: string; message: string };

/** Bounds of an error: the caller chooses names of fields, as long and as many as a body can hold */
const maxIssues = 100;
const maxPath = 256;

export function issuesOf(error: z.ZodError): Issue[] {
  return error.issues.slice(0, maxIssues).flatMap((issue): Issue[] => {
    const path = issue.path.map(String);
    if (issue.code !== "unrecognized_keys") return [issueAt(path, issue.message)];
    return issue.keys.slice(0, maxIssues).map((key) => issueAt([...path, key], "is not a known field"));
  });
}

function issueAt(path: readonly string[], message: string): Issue {
  const text = path.join(".");
  return { path: text.length > maxPath ? `${text.slice(0, maxPath)}…` : text, message };
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
