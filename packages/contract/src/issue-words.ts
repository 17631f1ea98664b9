/** Words for zod's findings, for messages about requests and recipes (pure). */
import { plural } from "./wire/plural.ts";

const typeNames: Readonly<Record<string, string>> = {
  string: "a string",
  number: "a number",
  int: "a whole number",
  boolean: "true or false",
  array: "a list",
  object: "an object",
  record: "an object",
};

/** The name of a type that zod expected. */
export function typeName(expected: string): string {
  return typeNames[expected] ?? expected;
}

/** The rule of a bound, such as "must have at least 2 entries". */
export function boundRule(origin: string, limit: "at least" | "at most", value: number): string {
  if (origin === "string" && value === 1) return limit === "at least" ? "must not be empty" : "is too long";
  if (origin === "string") return `must have ${limit} ${value} characters`;
  if (origin === "array") return `must have ${limit} ${plural(value, "entry", "entries")}`;
  return `must be ${limit} ${value}`;
}
