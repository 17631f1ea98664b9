/**
 * Reads settings once: flags, then FORKD_* variables, then config.json in the data directory, then defaults.
 */
import { readFile } from "node:fs/promises";
import { join, resolve } from "node:path";
import { isErrno } from "@forkd/base";
import { AppError, defaultDataDir } from "@forkd/contract";
import { defaultsOf, hostFacts, type SettingTable } from "@forkd/runtime";
import { z } from "zod";
import { issuesOf } from "../http/body/invalid-request.ts";
import { exposureProblem } from "./exposure.ts";
import { schemaOf, settingTable, variableOf, type SettingName, type Settings, type Table } from "./table.ts";

export type { SettingName, Settings } from "./table.ts";
export type Source = "flag" | "environment" | "file" | "default";
export type Config = { readonly values: Settings; readonly sources: Readonly<Record<SettingName, Source>> };
export type Flags = { readonly [N in SettingName]?: string | number | undefined };
export type Environment = Readonly<Record<string, string | undefined>>;
type Given = Readonly<Record<string, unknown>>;

type LoadOptions = {
  /** replace the usual defaults */
  readonly defaults?: Flags;
  /** replaces the content of config.json */
  readonly file?: Given;
  readonly table?: Table;
};

export async function loadConfig(
  flags: Flags = {},
  env: Environment = process.env,
  options: LoadOptions = {},
): Promise<Config> {
  const { table = settingTable } = options;
  const variables = Object.keys(table).map((name) => [name, env[variableOf(name)] || undefined] as const);
  const layers: Layer[] = [
    ["flag", flags],
    ["environment", Object.fromEntries(variables)],
    ["file", options.file ?? (await readConfigFile(configFileOf(flags, env)))],
    ["default", options.defaults ?? {}],
    ["default", defaultsOf(table, hostFacts(env))],
  ];
  return parse(merge(layers, table), table);
}

/** The file that a daemon with these flags and this environment reads. */
export function configFileOf(flags: Flags = {}, env: Environment = process.env): string {
  const dataDir = flags.data_dir ?? defaultDataDir(hostFacts(env));
  return join(resolve(String(dataDir)), "config.json");
}

type Layer = readonly [Source, Given];
type Merged = { readonly values: Given; readonly sources: Readonly<Record<string, Source>> };

/** Pure. The first layer that names a setting wins. */
function merge(layers: readonly Layer[], table: SettingTable): Merged {
  const values: Record<string, unknown> = {};
  const sources: Record<string, Source> = {};
  for (const [source, layer] of layers) {
    for (const [name, value] of Object.entries(layer)) {
      if (value === undefined || name in values) continue;
      values[name] = value;
      sources[name] = source;
    }
  }
  for (const [name, { follows }] of Object.entries(table)) {
    if (follows === undefined || name in values) continue;
    values[name] = follows(values);
    sources[name] = "default";
  }
  return { values, sources };
}

function parse({ values, sources }: Merged, table: Table): Config {
  const settings = schemaOf(table).safeParse(values);
  if (!settings.success) {
    const issues = issuesOf(settings.error).map((issue) => ({ ...issue, source: sources[issue.path] }));
    const text = issues.map(
      ({ path: name, message, source }) => `${name} (from ${source ?? "file"}): ${message}`,
    );
    throw new AppError("invalid_request", `Invalid settings: ${text.join("; ")}`, { details: { issues } });
  }
  const exposed = exposureProblem(settings.data);
  if (exposed !== undefined) throw new AppError("invalid_request", `Invalid settings: ${exposed}`);
  return Object.freeze({
    values: Object.freeze(settings.data),
    // Cast: the strict schema accepted the names, so there are no others.
    sources: sources as Record<SettingName, Source>,
  });
}

export async function readConfigFile(file: string): Promise<Given> {
  let text: string;
  try {
    text = await readFile(file, "utf8");
  } catch (error) {
    if (isErrno(error, "ENOENT")) return {};
    throw new AppError("invalid_request", `Cannot read ${file}: ${String(error)}`, { cause: error });
  }
  try {
    const { data_dir: _, ...rest } = z.record(z.string(), z.unknown()).parse(JSON.parse(text));
    return rest;
  } catch (error) {
    throw new AppError("invalid_request", `Cannot read ${file}: it must hold one JSON object`, {
      cause: error,
    });
  }
}
