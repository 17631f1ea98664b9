/** The converter against the schemas of the contract: every field of every route. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { routes, type Route } from "@forkd/contract";
import { requestFields } from "@forkd/contract/wire";
import type { z } from "zod";
import { fromWire, remember, wireOf } from "../src/convert/answer.ts";
import { fieldFor } from "../src/convert/names.ts";
import { filterOf, refuseUnknown, requestOf } from "../src/convert/request.ts";

type Schema = z.ZodType & { def: Record<string, unknown> & { type: string } };
type Choose = (count: number) => number;

/** A small generator of numbers, so that a failure can be repeated. */
function random(seed: number): Choose {
  let state = seed;
  return (count) => {
    state = (state * 1_103_515_245 + 12_345) & 0x7fffffff;
    return Math.floor((state / 0x80000000) * count);
  };
}

/** Keys that a conversion would change, as a user may choose them. */
const strange = { snake_case_key: 1, created_at_unix: 5, ttl_secs: { deep_key: [true] }, __proto: "x" };

/** A value that has the shape of the schema; its texts need not be valid. */
function sample(schema: Schema, choose: Choose): unknown {
  const { def } = schema;
  switch (def.type) {
    case "optional":
      return choose(3) === 0 ? undefined : sample(def["innerType"] as Schema, choose);
    case "nullable":
      return choose(3) === 0 ? null : sample(def["innerType"] as Schema, choose);
    case "default":
    case "prefault":
      return sample(def["innerType"] as Schema, choose);
    case "pipe":
      return sample(def["in"] as Schema, choose);
    case "object": {
      const shape = (schema as unknown as { shape: Record<string, Schema> }).shape;
      const fields = Object.entries(shape).map(([name, field]) => [name, sample(field, choose)] as const);
      const loose = (def["catchall"] as Schema | undefined)?.def.type === "unknown" ? strange : {};
      return { ...Object.fromEntries(fields.filter(([, value]) => value !== undefined)), ...loose };
    }
    case "array":
      return Array.from({ length: choose(3) }, () => sample(def["element"] as Schema, choose));
    case "union": {
      const options = def["options"] as Schema[];
      return sample(options[choose(options.length)] ?? options[0]!, choose);
    }
    case "record":
    case "unknown":
      return strange;
    case "number":
      return choose(100_000);
    case "boolean":
      return choose(2) === 1;
    case "void":
    case "undefined":
      return undefined;
    case "enum":
      return Object.values(def["entries"] as object)[0];
    case "literal":
      return (def["values"] as unknown[])[0];
    case "null":
      return null;
    default:
      return `text ${choose(100)}`;
  }
}

/** What the converter must make of a value, written without the converter: by the rules of the surface. */
function expected(wire: unknown): unknown {
  if (typeof wire !== "object" || wire === null) return wire;
  if (Array.isArray(wire)) return wire.map(expected);
  return Object.fromEntries(
    Object.entries(wire).map(([name, value]): [string, unknown] => {
      const camel = (text: string) => text.replaceAll(/_(.)/g, (_, letter: string) => letter.toUpperCase());
      if (opaqueNames.has(name)) return [camel(name), value];
      if (name.endsWith("_unix"))
        return [camel(name.slice(0, -5)), typeof value === "number" ? new Date(value * 1000) : value];
      const secs = /^(.*)_sec(ond)?s$/.exec(name);
      if (secs)
        return [`${camel(secs[1] ?? "")}Ms`, typeof value === "number" ? value * 1000 : expected(value)];
      return [camel(name), expected(value)];
    }),
  );
}
const opaqueNames = new Set(
  "env labels values details result_json data remedy remedy_data manifest pool timings_ms languages json chart extra annotations".split(
    " ",
  ),
);

test("answers of every route are converted by the rules, and wireOf() returns them as they were", () => {
  let fields = 0;
  // The answer is a document of another format, which sbom() returns as it is.
  const converted = Object.entries<Route>(routes).filter(([name]) => name !== "snapshotSbom");
  for (const [name, route] of converted) {
    for (let seed = 1; seed <= 20; seed++) {
      for (const schema of [route.output, ...(route.streamed ? [route.streamed] : [])]) {
        const wire = sample(schema as Schema, random(seed * 7919));
        const before = structuredClone(wire);
        const value: unknown = fromWire(wire);
        assert.deepEqual(value, expected(wire), `${name}, seed ${seed}`);
        assert.deepEqual(wire, before, "the answer is not changed");
        if (typeof value === "object" && value !== null) assert.equal(wireOf(value), wire);
        fields += JSON.stringify(wire)?.length ?? 0;
      }
    }
  }
  assert.ok(fields > 100_000, "the samples are not empty");
});

test("requests of every route survive options → fields, in both units", () => {
  for (const name of Object.keys(requestFields) as (keyof typeof requestFields)[]) {
    for (let seed = 1; seed <= 20; seed++) {
      const wire = onlyKnown(
        sample(routes[name].input as unknown as Schema, random(seed)),
        requestFields[name],
      );
      const options = fromWire(wire) as object;
      assert.deepEqual(filterOf(name, {}, options), wire, `${name}, seed ${seed}`);
    }
  }
});

/** Without the fields that are accepted only for compatibility. */
function onlyKnown(value: unknown, shape: unknown): Record<string, unknown> {
  const known = Object.entries(value as object).filter(([field]) => field in (shape as object));
  return Object.fromEntries(
    known.map(([field, each]: [string, unknown]) => {
      const inner = (shape as Record<string, unknown>)[field];
      if (typeof inner !== "object" || each === null || Array.isArray(each)) return [field, each];
      return [field, onlyKnown(each, inner)];
    }),
  );
}

test("no two fields of a request have the same option, and none hides `signal`", () => {
  for (const [route, fields] of Object.entries(requestFields)) {
    const names = Object.keys(fields).map((field) => fieldFor(field).name);
    assert.equal(new Set(names).size, names.length, route);
    if (route !== "execSignal") assert.ok(!names.includes("signal"), route);
  }
});

test("times are converted with their unit, and rounded up where the daemon wants whole seconds", () => {
  const request = requestOf("fork", { snapshot_tag: "py" }, { ttlMs: 1, idleTimeoutMs: 2001 });
  assert.deepEqual(request, { snapshot_tag: "py", ttl_secs: 1, idle_timeout_secs: 3 });
  assert.equal(requestOf("exec", { id: "i", args: ["x"] }, { timeoutMs: 250 }).timeout_secs, 0.25);
  assert.equal(requestOf("setTimeouts", { id: "i" }, { ttlMs: null }).ttl_secs, null);
  const expiresAt = new Date(1_700_000_000_900);
  assert.equal(requestOf("createKey", { name: "k" }, { expiresAt }).expires_at_unix, 1_700_000_000);
  for (const ttlMs of [Number.NaN, Infinity, "5" as unknown as number])
    assert.throws(() => requestOf("fork", {}, { ttlMs }), { code: "invalid_request", message: /"ttlMs"/ });
  for (const wrong of [new Date(Number.NaN), 5 as unknown as Date])
    assert.throws(() => requestOf("createKey", {}, { expiresAt: wrong }), { message: /"expiresAt".*Date/ });
});

test("an unknown option is refused, with the nearest known one or with all of them", () => {
  const refusal = (options: object, route: "fork" | "exec" = "fork") => {
    try {
      requestOf(route, { id: "i" } as never, options);
    } catch (error) {
      return error as Error & { code: string; details: Record<string, unknown>; remedy: { text: string } };
    }
    throw new Error("nothing was refused");
  };
  const misspelled = refusal({ lables: {} });
  assert.equal(misspelled.code, "invalid_request");
  assert.match(misspelled.message, /Unknown option "lables" of fork/);
  assert.equal(misspelled.remedy.text, 'Did you mean "labels"?');
  assert.deepEqual(misspelled.details["similar"], ["labels"]);
  assert.match(refusal({ count: 3 }).remedy.text, /^Use options of: .*\bn\b.*vary/);
  assert.match(refusal({ limits: { memoryMb: 5 } }).message, /"limits\.memoryMb"/);
  assert.match(refusal({ vary: [{}, { value: 1 }] }).message, /"vary\[1\]\.value"/);
  assert.match(refusal({ ttl_secs: 5 }).message, /"ttl_secs"/);
  assert.match(refusal({ perChildNetns: true }).message, /"perChildNetns"/);
  assert.match(refusal({ stream: true, timeoutSecs: 5 }, "exec").remedy.text, /timeoutMs/);
  assert.match(refusal([] as object).message, /must be an object/);
  assert.match(refusal({ network: "none" }).message, /"network".*must be an object/);
  assert.throws(() => refuseUnknown("connect", { sockt: "/s" }, ["socket"]), {
    message: /"sockt" of connect/,
  });
  // A field that the call fills in is not an option; `undefined` counts as absent.
  assert.throws(() => requestOf("fork", { n: 1 }, { n: 2 }), { message: /"n"/ });
  assert.deepEqual(requestOf("fork", { n: 1 }, { env: undefined, signal: undefined }), { n: 1 });
});

test('keys of the user are not renamed, and a field "__proto__" changes no prototype', () => {
  const wire = JSON.parse(
    '{"labels":{"my_key":"a"},"result_json":{"a_b":1},"__proto__":{"x_y":1}}',
  ) as object;
  const value = fromWire(wire) as Record<string, unknown>;
  assert.deepEqual([value["labels"], value["resultJson"]], [{ my_key: "a" }, { a_b: 1 }]);
  assert.equal(Object.getPrototypeOf(value), Object.prototype);
  assert.ok(!Object.hasOwn(value, "__proto__"));
});

test("wireOf() maps lists of values, and returns what it does not know", () => {
  const [a, b] = [{ snake_case: 1 }, { other_name: 2 }];
  assert.deepEqual(wireOf([fromWire(a), fromWire(b)]), [a, b]);
  assert.deepEqual(wireOf({ ownName: 1 }), { ownName: 1 });
  assert.deepEqual([wireOf(5), wireOf(null), wireOf(undefined)], [5, null, undefined]);
  const own = remember({}, a);
  assert.equal(wireOf(own), a);
});
