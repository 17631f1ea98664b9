/**
 * What a setting is. A table holds everything about each setting in one entry; the schema, the defaults, the
 * environment variables, the flags of `forkd serve` and the documentation are derived from it.
 */
import { availableParallelism, homedir } from "node:os";
import { resolve } from "node:path";
import type { DirectoryFacts } from "@forkd/contract";
import { z } from "zod";

/** The facts that defaults may depend on. */
export type Host = DirectoryFacts & { readonly cores: number };

export type Setting<Schema extends z.ZodType = z.ZodType> = {
  readonly schema: Schema;
  /** without it, the setting has no value unless the user gives one */
  readonly default?: z.output<Schema> | ((host: Host) => z.output<Schema>);
  /** a default that follows from other settings */
  readonly follows?: (values: Readonly<Record<string, unknown>>) => z.output<Schema>;
  /** the default in words, where it depends on the host or on other settings */
  readonly usually?: string;
  /** one sentence for the user */
  readonly meaning: string;
  /** shown after the range of a number */
  readonly unit?: "MiB" | "seconds" | "days" | "percent";
  /** the allowed values in words, where the schema's range or choices are not enough */
  readonly allowed?: string;
  /** gives the setting its own flag of `forkd serve` */
  readonly flag?: {
    /** placeholder of the value; a flag without one means "true" */
    readonly value?: string;
    readonly help: string;
  };
  /** what the running daemon does with the named file; a new value of the setting itself needs a restart */
  readonly reload?: "reopen" | "reread" | "watch";
  /** hides the value from every listing */
  readonly secret?: boolean;
};

export type SettingTable = Readonly<Record<string, Setting>>;

/** Infers the types of an entry from its schema. */
export function setting<Schema extends z.ZodType>(entry: Setting<Schema>): Setting<Schema> {
  return entry;
}

/** A setting of the runtime also says which part of the runtime's configuration it becomes. */
export type RuntimeSetting<Schema extends z.ZodType = z.ZodType, Part extends object = object> =
  // A method, because its parameter must be bivariant: tables hold entries with different schemas.
  Setting<Schema> & { becomes(value: z.output<Schema>): Part };

export function runtimeSetting<Schema extends z.ZodType, Part extends object>(
  entry: RuntimeSetting<Schema, Part>,
): RuntimeSetting<Schema, Part> {
  return entry;
}

export const path = z
  .string()
  .min(1)
  .transform((value) => resolve(value))
  .meta({ description: "a path" });

export const count = (min: number, max: number) => z.coerce.number().int().min(min).max(max);

export function hostFacts(env: DirectoryFacts["env"]): Host {
  return { env, uid: process.getuid?.() ?? 0, home: homedir(), cores: availableParallelism() };
}

/** Leaves out settings without a default and those whose default follows from other settings. */
export function defaultsOf(table: SettingTable, host: Host): Record<string, unknown> {
  const defaults: Record<string, unknown> = {};
  for (const [name, entry] of Object.entries(table)) {
    const value: unknown = typeof entry.default === "function" ? entry.default(host) : entry.default;
    if (value !== undefined) defaults[name] = value;
  }
  return defaults;
}
