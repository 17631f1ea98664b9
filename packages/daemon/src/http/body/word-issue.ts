/** zod's findings about a request in plain words (pure). */
import type { z } from "zod";

type RawIssue = Parameters<z.core.$ZodErrorMap>[0];

const typeNames: Readonly<Record<string, string>> = {
  string: "a string",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "an object",
  record: "an object",
};

/** The message of a rule that the schema does not word itself; undefined for zod's own. */
export function wordIssue(issue: RawIssue): string | undefined {
  switch (issue.code) {
    case "invalid_type":
      return issue.input === undefined ? "is required" : `must be ${typeName(issue.expected)}`;
    case "invalid_value":
      return issue.input === undefined ? "is required" : `must be ${listed(issue.values.map(String))}`;
    case "too_small":
      return bound(issue.origin, "at least", Number(issue.minimum));
    case "too_big":
      return bound(issue.origin, "at most", Number(issue.maximum));
    case "invalid_key":
      return `is not a valid name: ${issue.issues[0]?.message ?? "it is refused"}`;
    case "invalid_union":
      return issue.input === undefined ? "is required" : listed(rulesOf(issue));
    default:
      return undefined;
  }
}

function typeName(expected: string): string {
  return typeNames[expected] ?? expected;
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

function bound(origin: string, limit: string, value: number): string {
  if (origin === "string" && value === 1) return limit === "at least" ? "must not be empty" : "is too long";
  if (origin === "string") return `must have ${limit} ${value} characters`;
  if (origin === "array") return `must have ${limit} ${value} ${value === 1 ? "entry" : "entries"}`;
  return `must be ${limit} ${value}`;
}
