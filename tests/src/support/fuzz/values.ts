/** JSON values: valid ones from a schema, and unusual ones. */
import type { Random } from "../random.ts";

export type Json = null | boolean | number | string | Json[] | { [key: string]: Json };
export type JsonSchema = {
  readonly [key: string]: unknown;
  readonly type?: string | readonly string[];
  readonly enum?: readonly Json[];
  readonly anyOf?: readonly JsonSchema[];
  readonly oneOf?: readonly JsonSchema[];
  readonly allOf?: readonly JsonSchema[];
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly required?: readonly string[];
  readonly items?: JsonSchema;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly minItems?: number;
};

const words = ["a", "x1", "main", "default", "A.b_c-d", "0", "k=v", "key"];

/** A value that matches the schema, except that patterns are ignored. Keys of maps are names of variables. */
export function sample(schema: JsonSchema, random: Random, depth = 0): Json {
  if ("const" in schema) return schema["const"] as Json;
  if (schema.enum) return random.pick(schema.enum);
  const choices = schema.anyOf ?? schema.oneOf ?? schema.allOf;
  if (choices) return sample(random.pick(choices), random, depth);
  const type = typeof schema.type === "string" ? schema.type : schema.type && random.pick(schema.type);
  switch (type) {
    case "boolean":
      return random.chance(0.5);
    case "null":
      return null;
    case "integer":
      return integerOf(schema, random);
    case "number":
      return integerOf(schema, random) + random.pick([0, 0, 0.5]);
    case "string":
      return random.pick(words);
    case "array": {
      const length = (schema.minItems ?? 0) + random.below(3);
      return Array.from({ length }, () => sample(schema.items ?? {}, random, depth + 1));
    }
    case "object":
      return objectOf(schema, random, depth);
    default:
      return depth > 3 ? null : random.pick<Json>([null, true, 1.5, "text", [1, [2]], { a: { b: [] } }]);
  }
}

function objectOf(schema: JsonSchema, random: Random, depth: number): Json {
  const value: Record<string, Json> = {};
  for (const [name, property] of Object.entries(schema.properties ?? {})) {
    if (schema.required?.includes(name) || random.chance(0.3))
      value[name] = sample(property, random, depth + 1);
  }
  const rest = schema["additionalProperties"];
  if (typeof rest === "object" && rest !== null) {
    for (let count = random.below(3); count > 0; count--) {
      value[random.pick(["A", "PATH", "x_1"])] = sample(rest as JsonSchema, random, depth + 1);
    }
  }
  return value;
}

function integerOf({ minimum = 0, maximum = 100 }: JsonSchema, random: Random): number {
  const least = Math.max(minimum, -1000);
  const most = Math.min(maximum, 1_000_000_000);
  return random.pick([least, most, least + 1, Math.min(most, least + random.below(20))]);
}

const strangeTexts = [
  "",
  " ",
  "\0",
  "a\0b",
  "\u{1F71A}".repeat(20),
  "\ud800",
  "\ufeffbom",
  "e\u0301\u202egnp.exe",
  "../../etc/passwd",
  "/../../../../proc/self/mem",
  "..%2f..%2fetc",
  "%00",
  "%zz",
  "$(reboot)",
  "'; DROP TABLE x; --",
  "{{7*7}}",
  "\r\nx-evil: 1\r\n",
  "__proto__",
  "constructor",
  "-1",
  "1e999",
  "NaN",
  "0x10",
  "٣",
  "true",
  "sb-",
  "sb-zzzzzzzzzzzzzzzzzzzzzzzz",
  "sb-000000000000000000000000",
];
const strangeNumbers = [
  -1,
  0,
  -0,
  0.1,
  1e-9,
  2 ** 31 - 1,
  2 ** 31,
  2 ** 32,
  2 ** 53,
  2 ** 63,
  1e21,
  1e308,
  -1e308,
  65536,
  31_536_001,
];

export function strangeText(random: Random): string {
  if (random.chance(0.03)) return random.pick(["x", "é", "/"]).repeat(random.pick([65, 257, 4097, 131_073]));
  return random.pick(strangeTexts);
}

export function strangeValue(random: Random): Json {
  switch (random.below(8)) {
    case 0:
      return null;
    case 1:
      return random.chance(0.5);
    case 2:
    case 3:
      return random.pick(strangeNumbers);
    case 4:
    case 5:
      return strangeText(random);
    case 6:
      return random.pick<Json>([[], [[]], [null], ["x", 1, {}], Array.from({ length: 5000 }, () => 0)]);
    default:
      return random.chance(0.2)
        ? nested(random.pick([50, 2000]))
        : random.pick<Json>([{}, { a: 1 }, { "": null }]);
  }
}

function nested(depth: number): Json {
  let value: Json = 0;
  for (let level = 0; level < depth; level++) value = level % 2 === 0 ? [value] : { a: value };
  return value;
}

/** Changes one value of the object, at any depth. */
export function mutate(value: Record<string, Json>, random: Random): Record<string, Json> {
  const keys = Object.keys(value);
  const result: Record<string, Json> = { ...value };
  const key = keys.length > 0 ? random.pick(keys) : "new";
  switch (random.below(6)) {
    case 0:
      delete result[key];
      return result;
    case 1:
      // Assigning would set the prototype instead of a field.
      Object.defineProperty(result, random.pick(["unknown", "__proto__", "constructor", "", "id", "ID"]), {
        value: strangeValue(random),
        enumerable: true,
        configurable: true,
        writable: true,
      });
      return result;
    case 2: {
      const inner = result[key];
      if (typeof inner === "object" && inner !== null && !Array.isArray(inner))
        result[key] = mutate(inner, random);
      else if (Array.isArray(inner)) result[key] = [...inner, strangeValue(random)];
      else result[key] = inner === undefined ? strangeValue(random) : [inner];
      return result;
    }
    default:
      result[key] = strangeValue(random);
      return result;
  }
}
