/** Says in plain words what is wrong with a recipe.json (pure). */
import { findJsonFault } from "@forkd/base";
import { boundRule, similarNames, typeName } from "@forkd/contract";
import { z } from "zod";

type RawIssue = Parameters<z.core.$ZodErrorMap>[0];

const maxShown = 5;
const maxKey = 64;

/** `line 3, column 7: expected a value` of text that is not JSON. */
export function describeJsonFault(text: string): string {
  const bytes = Buffer.from(text);
  const fault = findJsonFault(bytes);
  if (fault === undefined) return "it is nested too deeply";
  const before = bytes.subarray(0, fault.at).toString("utf8").split("\n");
  const end = fault.at >= bytes.length ? ", but the file ends" : "";
  return `line ${before.length}, column ${(before.at(-1) ?? "").length + 1}: expected ${fault.expected}${end}`;
}

/** One readable line: `base.packages[2]: is not the name of a Debian package`. */
export function describeIssues(error: z.ZodError): string {
  const lines = error.issues.slice(0, maxShown).map((issue) => {
    const where = issue.path
      .map((key) => (typeof key === "number" ? `[${key}]` : `.${String(key)}`))
      .join("")
      .replace(/^\./, "");
    if (issue.code === "unrecognized_keys") {
      return where === "" ? issue.message : issue.message.replace(/^unknown keys? [^.]*/, `$& in ${where}`);
    }
    return where === "" ? issue.message : `${where}: ${issue.message}`;
  });
  const more = error.issues.length - lines.length;
  return lines.join("; ") + (more > 0 ? `; and ${more} more` : "");
}

/** The messages of the rules that the schema does not word itself. */
export function wordIssue(issue: RawIssue): string | undefined {
  switch (issue.code) {
    case "invalid_value":
      return wordValue(issue.input, issue.values);
    case "invalid_type":
      return issue.input === undefined ? "is missing" : `must be ${typeName(issue.expected)}`;
    case "too_small":
      return boundRule(issue.origin, "at least", Number(issue.minimum));
    case "too_big":
      return boundRule(issue.origin, "at most", Number(issue.maximum));
    case "invalid_key":
      return issue.issues[0]?.message;
    case "unrecognized_keys":
      return wordUnknown(issue.keys, issue.inst instanceof z.ZodObject ? Object.keys(issue.inst.shape) : []);
    default:
      return undefined;
  }
}

function wordValue(input: unknown, values: readonly unknown[]): string {
  const allowed = values.map((value) => JSON.stringify(value)).join(" or ");
  return input === undefined ? `is missing; write ${allowed}` : `must be ${allowed}`;
}

/** describeIssues() adds where the keys are. */
function wordUnknown(keys: readonly string[], known: readonly string[]): string {
  const names = keys.map((key) => `"${key.slice(0, maxKey)}"`).join(", ");
  const meant = keys.flatMap((key) => similarNames(key, known).similar?.[0] ?? []);
  const hint = meant.length > 0 ? `. Did you mean ${meant.map((key) => `"${key}"`).join(", ")}?` : ".";
  return `unknown key${keys.length > 1 ? "s" : ""} ${names}${hint} Known keys: ${known.join(", ")}`;
}
