/**
 * Text that JSON can contain and nothing else can: half of a surrogate pair, which is not Unicode text, and the
 * name `__proto__`, which objects of JavaScript do not keep as a field. Both are refused in every request, so
 * that no answer, record or guest ever has them.
 */
import { invalidRequest, type Issue } from "./invalid-request.ts";

/** Only an escape can write a lone surrogate in UTF-8, or hide the name. */
const suspicious = /\\u(?:d[89a-f]|00)/i;
const loneSurrogate = /\p{Surrogate}/u;
const forbiddenName = "__proto__";

/** Throws `invalid_request` with the field. `text` is the JSON of `value`. */
export function requireWellFormed(text: string, value: object): void {
  if (!suspicious.test(text) && !text.includes(forbiddenName)) return;
  const issue = issueIn(value, []);
  if (issue) throw invalidRequest([issue]);
}

/** Throws `invalid_request` if a field cannot have this name. */
export function requireFieldName(name: string): void {
  if (name === forbiddenName) throw invalidRequest([{ path: name, message: "is not an allowed name" }]);
}

/** The depth of a body is limited before. */
function issueIn(value: unknown, path: readonly string[]): Issue | undefined {
  if (typeof value === "string") {
    if (loneSurrogate.test(value))
      return issueAt(path, "is not Unicode text: it has half of a surrogate pair");
    return undefined;
  }
  if (typeof value !== "object" || value === null) return undefined;
  for (const [name, member] of Object.entries(value)) {
    if (name === forbiddenName) return issueAt([...path, name], "is not an allowed name");
    if (loneSurrogate.test(name)) return issueAt([...path, name], "is not a name in Unicode text");
    const issue = issueIn(member, [...path, name]);
    if (issue) return issue;
  }
  return undefined;
}

/** The path as UTF-8, so that the error does not repeat the fault. */
function issueAt(path: readonly string[], message: string): Issue {
  return { path: Buffer.from(path.join(".").slice(0, 256)).toString(), message };
}
