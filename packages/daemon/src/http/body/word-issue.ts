/** zod's findings about a request in plain words (pure). */
import { boundRule, typeName } from "@forkd/contract";
import type { z } from "zod";

type RawIssue = Parameters<z.core.$ZodErrorMap>[0];

/** The message of a rule that the schema does not word itself; undefined for zod's own. */
export function wordIssue(issue: RawIssue): string | undefined {
  switch (issue.code) {
    case "invalid_type":
      return issue.input === undefined ? "is required" : `must be ${typeName(issue.expected)}`;
    case "invalid_value":
      return issue.input === undefined ? "is required" : `must be ${listed(issue.values.map(String))}`;
    case "too_small":
      return boundRule(issue.origin, "at least", Number(issue.minimum));
    case "too_big":
      return boundRule(issue.origin, "at most", Number(issue.maximum));
    case "invalid_key":
      return `is not a valid name: ${issue.issues[0]?.message ?? "it is refused"}`;
    case "invalid_union":
      return issue.input === undefined ? "is required" : listed(rulesOf(issue));
    default:
      return undefined;
  }
}

function rulesOf(issue: Extract<RawIssue, { code: "invalid_union" }>): string[] {
  const rules = issue.errors.flatMap(([first]) => (first === undefined ? [] : [first.message]));
  const [head = "is not valid", ...rest] = new Set(rules);
  return [head, ...rest.map((rule) => rule.replace(/^must be /, ""))];
}

/** "a", "a or b", "a, b or c" */
function listed(words: readonly string[]): string {
  return words.join(", ").replace(/, ([^,]*)$/, " or $1");
}
