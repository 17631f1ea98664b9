/** Answers of the daemon → values of this SDK. */
import { fieldFor, type Kind } from "./names.ts";
import type { Camel } from "./types.ts";

const wires = new WeakMap<object, unknown>();

/** Converts an answer; `wireOf()` returns the answer itself. */
export function fromWire<T>(wire: T): Camel<T> {
  // The rules of names.ts are those of the type.
  return convert(wire) as Camel<T>;
}

function convert(wire: unknown): unknown {
  if (typeof wire !== "object" || wire === null) return wire;
  if (Array.isArray(wire)) return remember(wire.map(convert), wire);
  const value: Record<string, unknown> = {};
  for (const [wireName, each] of Object.entries(wire)) {
    const { name, kind } = fieldFor(wireName);
    value[name] = convertField(each, kind);
  }
  return remember(value, wire);
}

function convertField(value: unknown, kind: Kind): unknown {
  if (kind === "opaque") return value;
  if (typeof value !== "number") return convert(value);
  if (kind === "secs") return value * 1000;
  return kind === "unix" ? new Date(value * 1000) : value;
}

/** Makes `wireOf(value)` return this answer. */
export function remember<T extends object>(value: T, wire: unknown): T {
  wires.set(value, wire);
  return value;
}

/**
 * Returns what the daemon sent for a value of this SDK, with the names and units of the HTTP API: for a sandbox its
 * last state, for a list that of each element. Returns other values as they are. The caller names the type.
 */
export function wireOf<Wire = unknown>(value: unknown): Wire {
  return found(value) as Wire;
}

function found(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  if (wires.has(value)) return wires.get(value);
  return Array.isArray(value) ? value.map(found) : value;
}
