/** Names of fields on the wire → names in this SDK, and the unit that a name stands for. types.ts has the same for types. */
import { opaqueFields } from "@forkd/contract/wire";

/** What the value of a field becomes: the same, what was inside converted, milliseconds, or a Date. */
export type Kind = "converted" | "opaque" | "secs" | "unix";
type Field = { readonly name: string; readonly kind: Kind };

const opaque: ReadonlySet<string> = new Set(opaqueFields);
/** Bounded, because a daemon of another version may send any names. */
const known = new Map<string, Field>();
const mostKnown = 2000;

/** The name and the kind of a field of the wire. */
export function fieldFor(wireName: string): Field {
  const found = known.get(wireName);
  if (found) return found;
  const field = makeField(wireName);
  if (known.size < mostKnown) known.set(wireName, field);
  return field;
}

function makeField(wireName: string): Field {
  if (opaque.has(wireName)) return { name: camel(wireName), kind: "opaque" };
  const [, stem = "", unit] = /^(.+)_(secs|seconds|unix)$/.exec(wireName) ?? [];
  if (unit === "unix") return { name: camel(stem), kind: "unix" };
  if (unit !== undefined) return { name: `${camel(stem)}Ms`, kind: "secs" };
  return { name: camel(wireName), kind: "converted" };
}

function camel(name: string): string {
  const [head = "", ...rest] = name.split("_");
  return head + rest.map((word) => word.slice(0, 1).toUpperCase() + word.slice(1)).join("");
}
