/**
 * Schemas of arguments and answers: JSON Schema for clients, checks with our words, and types. A schema library
 * would do the same, but making two hundred schemas with it takes a tenth of the time in which a client expects
 * the list of tools.
 */
import { AppError, plural, similarNames } from "@forkd/contract/wire";

type Json = Readonly<Record<string, unknown>>;
type Rule = { readonly holds: (value: unknown) => boolean; readonly message: string };

/** Throws AppError `invalid_request` with the path of the field in its details. */
type Check = (value: unknown, path: string) => unknown;

export class Schema<T> {
  /** Only a type: the values that pass. */
  declare readonly type: T;
  readonly json: Json;
  readonly #check: Check;
  readonly #rules: readonly Rule[];
  readonly isOptional: boolean;

  constructor(json: Json, check: Check, rules: readonly Rule[] = [], isOptional = false) {
    this.json = json;
    this.#check = check;
    this.#rules = rules;
    this.isOptional = isOptional;
  }

  /** Returns the value with defaults filled in. */
  check(value: unknown, path: string): T {
    if (value === undefined && this.isOptional) return this.json["default"] as T;
    const checked = this.#check(value, path);
    for (const { holds, message } of this.#rules) if (!holds(checked)) throw refused(path, message);
    return checked as T;
  }

  describe(description: string): Schema<T> {
    return this.#with({ description });
  }

  optional(): Schema<T | undefined> {
    return new Schema<T | undefined>(this.json, this.#check, this.#rules, true);
  }

  default(value: T & (string | number | boolean)): Schema<T> {
    return new Schema<T>({ ...this.json, default: value }, this.#check, this.#rules, true);
  }

  /** Smallest number, or shortest text or list. */
  min(least: number): Schema<T> {
    const name = boundNames[String(this.json["type"])]?.[0] ?? "minimum";
    const message = boundRule(this.json, "at least", least);
    return this.#with({ [name]: least }, { holds: (value) => sizeOf(value) >= least, message });
  }

  max(most: number): Schema<T> {
    const name = boundNames[String(this.json["type"])]?.[1] ?? "maximum";
    const message = boundRule(this.json, "at most", most);
    return this.#with({ [name]: most }, { holds: (value) => sizeOf(value) <= most, message });
  }

  regex(pattern: RegExp, message: string): Schema<T> {
    const holds = (value: unknown) => pattern.test(String(value));
    return this.#with({ pattern: pattern.source }, { holds, message });
  }

  /** A rule that JSON Schema cannot express. */
  refine(isTrue: (value: T) => boolean, message: string): Schema<T> {
    return this.#with({}, { holds: (value) => isTrue(value as T), message });
  }

  #with(json: Json, rule?: Rule): Schema<T> {
    const rules = rule === undefined ? this.#rules : [...this.#rules, rule];
    return new Schema<T>({ ...this.json, ...json }, this.#check, rules, this.isOptional);
  }
}

type Shape = Readonly<Record<string, Schema<unknown>>>;
type OutputOf<S extends Shape> = { [K in keyof S]: S[K]["type"] };

export class ObjectSchema<S extends Shape> extends Schema<OutputOf<S>> {
  readonly shape: S;
  readonly #isLoose: boolean;

  constructor(shape: S, isLoose: boolean) {
    const required = Object.keys(shape).filter((name) => shape[name]?.isOptional === false);
    const properties = Object.fromEntries(Object.entries(shape).map(([name, { json }]) => [name, json]));
    super(
      { type: "object", properties, ...(required.length > 0 && { required }), additionalProperties: isLoose },
      (value, path) => checkObject(shape, isLoose, { value, path }),
    );
    this.shape = shape;
    this.#isLoose = isLoose;
  }

  extend<More extends Shape>(more: More): ObjectSchema<S & More> {
    return new ObjectSchema<S & More>({ ...this.shape, ...more }, this.#isLoose);
  }
}

const boundNames: Readonly<Record<string, readonly [string, string]>> = {
  string: ["minLength", "maxLength"],
  array: ["minItems", "maxItems"],
};

function sizeOf(value: unknown): number {
  return typeof value === "string" || Array.isArray(value) ? value.length : Number(value);
}

function boundRule({ type }: Json, limit: string, bound: number): string {
  if (type === "string" && bound === 1 && limit === "at least") return "must not be empty";
  if (type === "string") return `must have ${limit} ${plural(bound, "character")}`;
  if (type === "array") return `must have ${limit} ${plural(bound, "entry", "entries")}`;
  return `must be ${limit} ${bound}`;
}

function refused(path: string, message: string, details: Json = {}): AppError {
  const text = path === "" ? `Invalid arguments: ${message}` : `Invalid argument "${path}": ${message}`;
  return new AppError("invalid_request", text, { details: { field: path, ...details } });
}

function checkObject(
  shape: Shape,
  isLoose: boolean,
  { value, path }: { value: unknown; path: string },
): Record<string, unknown> {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    throw refused(path, `must be an object, not ${nameOf(value)}`);
  const at = (name: string) => (path === "" ? name : `${path}.${name}`);
  const names = Object.keys(shape);
  for (const name of isLoose ? [] : Object.keys(value))
    if (!Object.hasOwn(shape, name))
      throw refused(at(name), `there is no such argument; there are ${names.join(", ") || "none"}`, {
        arguments: names,
        ...similarNames(name, names),
      });
  const given = value as Record<string, unknown>;
  const entries = names.map((name) => {
    if (given[name] === undefined && shape[name]?.isOptional === false)
      throw refused(at(name), "is required");
    return [name, shape[name]?.check(given[name], at(name))] as const;
  });
  return Object.fromEntries(entries.filter(([, each]) => each !== undefined));
}

function nameOf(value: unknown): string {
  if (value === null) return "null";
  if (Array.isArray(value)) return "a list";
  if (value === undefined) return "nothing";
  return typeof value === "object" ? "an object" : `a ${typeof value}`;
}

function ofType<T>(type: string, what: string, isIt: (value: unknown) => boolean): Schema<T> {
  return new Schema<T>({ type }, (value, path) => {
    if (!isIt(value)) throw refused(path, `must be ${what}, not ${nameOf(value)}`);
    return value;
  });
}

/** Makers of schemas, with the names that schema libraries use. */
export const s = {
  string: () => ofType<string>("string", "a string", (value) => typeof value === "string"),
  number: () => ofType<number>("number", "a number", Number.isFinite),
  int: () => ofType<number>("integer", "a whole number", Number.isSafeInteger),
  boolean: () => ofType<boolean>("boolean", "true or false", (value) => typeof value === "boolean"),
  unknown: () => new Schema<unknown>({}, (value) => value),
  base64: () =>
    ofType<string>("string", "a string", (value) => typeof value === "string").regex(
      /^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$/,
      "must be base64",
    ),
  enum: <const Values extends readonly string[]>(values: Values) =>
    new Schema<Values[number]>({ type: "string", enum: values }, (value, path) => {
      if (!values.includes(value as string))
        throw refused(path, `must be one of: ${values.join(", ")}`, similarNames(String(value), values));
      return value;
    }),
  array: <T>(entry: Schema<T>) =>
    new Schema<T[]>({ type: "array", items: entry.json }, (value, path) => {
      if (!Array.isArray(value)) throw refused(path, `must be a list, not ${nameOf(value)}`);
      return value.map((each, index) => entry.check(each, `${path}.${index}`));
    }),
  record: <T>(entry: Schema<T>) =>
    new Schema<Record<string, T>>({ type: "object", additionalProperties: entry.json }, (value, path) => {
      const given = checkObject({}, true, { value, path }) && (value as Record<string, unknown>);
      return Object.fromEntries(
        Object.entries(given).map(([name, each]) => [name, entry.check(each, `${path}.${name}`)]),
      );
    }),
  /** Refuses other fields. */
  object: <S extends Shape>(shape: S) => new ObjectSchema<S>(shape, false),
  /** Has other fields too. */
  looseObject: <S extends Shape>(shape: S) => new ObjectSchema<S>(shape, true),
  /** Only for answers. */
  nullable: <T>(schema: Schema<T>) =>
    new Schema<T | null>({ anyOf: [schema.json, { type: "null" }] }, (value) => value),
  /** Only for answers. */
  either: (...schemas: readonly Schema<unknown>[]) =>
    new Schema<unknown>({ anyOf: schemas.map(({ json }) => json) }, (value) => value),
};
