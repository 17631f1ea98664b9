/** What a client has to know of the fields of requests and answers, read from the schemas of the routes. */

/** The schema inside optional(), default(), nullable() and transform(). */
function inner(schema) {
  const { type, innerType, in: input } = schema.def;
  if (innerType) return inner(innerType);
  return type === "pipe" ? inner(input) : schema;
}

function isOpaque(schema) {
  const { type, catchall } = schema.def;
  if (type === "object") return catchall?.def.type === "unknown";
  return type === "record" || type === "unknown" || type === "any";
}

/** Objects in a schema: itself, the elements of an array, the members of a union. */
function objectsIn(schema) {
  const found = inner(schema);
  const { type, element, options } = found.def;
  if (type === "array") return objectsIn(element);
  if (type === "union") return options.flatMap(objectsIn);
  return type === "object" && !isOpaque(found) ? [found] : [];
}

function holdsOpaque(schema) {
  const found = inner(schema);
  const { type, element, options } = found.def;
  if (type === "array") return holdsOpaque(element);
  return type === "union" ? options.some(holdsOpaque) : isOpaque(found);
}

function* fieldsOf(schema) {
  for (const object of objectsIn(schema)) {
    for (const [name, field] of Object.entries(object.shape)) {
      yield [name, field];
      yield* fieldsOf(field);
    }
  }
}

/** Throws if a name is opaque in one place and has fields in another: the name alone could not decide. */
export function opaqueFields(routes) {
  const opaque = new Set();
  const structured = new Set();
  for (const { input, output, streamed } of Object.values(routes)) {
    for (const schema of [input, output, ...(streamed ? [streamed] : [])]) {
      for (const [name, field] of fieldsOf(schema)) {
        if (holdsOpaque(field)) opaque.add(name);
        if (objectsIn(field).length > 0) structured.add(name);
      }
    }
  }
  for (const name of opaque)
    if (structured.has(name))
      throw new Error(
        `The field "${name}" has keys of the user in one place and fields in another: rename one`,
      );
  return [...opaque].sort();
}

function isWhole({ def }) {
  return def.format === "safeint" || (def.checks ?? []).some((check) => check._zod.def.format === "safeint");
}

const isCompatibility = (schema) => schema.meta()?.description?.startsWith("Accepted for compatibility");

function shapeOf(schema) {
  const shape = {};
  for (const object of objectsIn(schema)) {
    for (const [name, field] of Object.entries(object.shape)) {
      if (isCompatibility(field) || inner(field).def.type === "undefined") continue;
      if (holdsOpaque(field)) shape[name] = "opaque";
      else if (objectsIn(field).length > 0) shape[name] = shapeOf(field);
      else if (name.endsWith("_secs")) shape[name] = isWhole(inner(field)) ? "whole_secs" : "secs";
      else if (name.endsWith("_unix")) shape[name] = "unix";
      else shape[name] = "plain";
    }
  }
  return shape;
}

/** route → field → its kind, or the fields in it */
export function requestFields(routes) {
  return Object.fromEntries(Object.entries(routes).map(([name, { input }]) => [name, shapeOf(input)]));
}
