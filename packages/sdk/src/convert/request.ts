/** Options of this SDK → the input of a route. The one place that knows which options a call takes. */
import { advice, AppError, requestFields, similarNames } from "@forkd/contract/wire";
import type { RequestOf, RouteName } from "@forkd/contract";
import { fieldFor } from "./names.ts";
import type { CamelInput } from "./types.ts";

type Shape = { readonly [field: string]: string | Shape };
/** option → field of the wire, its kind or the fields in it */
type Options = ReadonlyMap<string, { readonly field: string; readonly shape: string | Shape }>;

/** Options of a call to a route; a call may have others too. So the compiler compares them with the contract. */
export type OptionsFor<N extends RouteName> = Fields<CamelInput<RequestOf<N>>> & {
  signal?: AbortSignal | undefined;
};
/** Without `signal`, which aborts every call, and without the index of an object that has no fields. */
type Fields<T> = {
  [Name in keyof T as string extends Name ? never : Exclude<Name, "signal">]?: T[Name] | undefined;
};

/** Options of every call, which are not sent as fields. */
const callOptions = ["signal", "timeoutMs"];

/**
 * `fixed` has the fields that the call itself fills in; the caller cannot give them as options. `own` names options
 * that are not fields, in addition to `signal` and `timeoutMs`. Throws `invalid_request` for an unknown option.
 */
export function requestOf<N extends RouteName>(
  route: N,
  fixed: Partial<RequestOf<N>>,
  options: OptionsFor<N>,
  own: readonly string[] = [],
): RequestOf<N> {
  return filterOf(route, fixed, options, [...own, ...callOptions]);
}

/** The same for an object of fields alone, without `signal` and `timeoutMs`. */
export function filterOf<N extends RouteName>(
  route: N,
  fixed: Partial<RequestOf<N>>,
  fields: OptionsFor<N>,
  own: readonly string[] = [],
): RequestOf<N> {
  const known = optionsOf(requestFields[route], (field) => !(field in fixed));
  const request = toFields(fields, known, { where: route, path: "", own });
  // The table of fields is made from the schemas that the type is made from.
  return { ...fixed, ...request } as RequestOf<N>;
}

/** Refuses options that are not among `names`, for calls whose options are not fields of one route. */
export function refuseUnknown(where: string, options: object, names: readonly string[]): void {
  toFields(options, new Map(), { where, path: "", own: [...names, ...callOptions] });
}

type Place = { readonly where: string; readonly path: string; readonly own: readonly string[] };

function toFields(options: object, known: Options, place: Place): Record<string, unknown> {
  if (typeof options !== "object" || options === null || Array.isArray(options))
    throw invalid(place, "must be an object with options", options);
  const fields: Record<string, unknown> = {};
  for (const [name, value] of Object.entries(options)) {
    const option = known.get(name);
    if (option === undefined && !place.own.includes(name)) throw unknownOption(name, known, place);
    if (option === undefined || value === undefined) continue;
    fields[option.field] = toField(value, option.shape, { ...place, path: place.path + name, own: [] });
  }
  return fields;
}

function toField(value: unknown, shape: string | Shape, place: Place): unknown {
  if (typeof shape !== "string") {
    const known = optionsOf(shape);
    if (!Array.isArray(value)) return toFields(value as object, known, inside(place, "."));
    return value.map((each: object, index) => toFields(each, known, inside(place, `[${index}].`)));
  }
  if (value === null) return null;
  if (shape === "secs" || shape === "whole_secs") {
    // The daemon would refuse a negative number in seconds, by the name of its own field.
    if (typeof value !== "number" || !Number.isFinite(value) || value < 0)
      throw invalid(place, "must be a number of milliseconds from 0 on", value);
    return shape === "secs" ? value / 1000 : Math.ceil(value / 1000);
  }
  if (shape === "unix") {
    if (!(value instanceof Date) || Number.isNaN(value.getTime()))
      throw invalid(place, "must be a valid Date", value);
    return Math.floor(value.getTime() / 1000);
  }
  return value;
}

function inside(place: Place, separator: string): Place {
  return { ...place, path: place.path + separator };
}

function optionsOf(shape: Shape, isOption: (field: string) => boolean = () => true): Options {
  const entries = Object.entries(shape).filter(([field]) => isOption(field));
  return new Map(entries.map(([field, kind]) => [fieldFor(field).name, { field, shape: kind }]));
}

function unknownOption(name: string, known: Options, { where, path, own }: Place): AppError {
  const names = [...new Set([...known.keys(), ...own])];
  const { similar = [] } = similarNames(name, names);
  const option = path + name;
  return new AppError("invalid_request", `Unknown option "${option}" of ${where}`, {
    details: { option, known: names, ...(similar.length > 0 && { similar }) },
    remedy: advice(
      similar.length > 0
        ? `Did you mean ${similar.map((each) => `"${each}"`).join(" or ")}?`
        : `Use options of: ${names.join(", ")}.`,
    ),
  });
}

function invalid({ where, path }: Place, rule: string, value: unknown): AppError {
  const option = path.replace(/[.]$/, "");
  const what = option === "" ? `The options of ${where}` : `Option "${option}" of ${where}`;
  return new AppError("invalid_request", `${what} ${rule}, not ${shown(value)}`, {
    details: option === "" ? {} : { option },
  });
}

/** A wrong value in a message. */
export function shown(value: unknown): string {
  return typeof value === "number" ? String(value) : String(JSON.stringify(value)).slice(0, 100);
}
