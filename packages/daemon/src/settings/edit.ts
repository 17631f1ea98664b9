/** Settings for the user: lists each with value, origin, meaning and range, and edits config.json. */
import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import { writeFileAtomic } from "@forkd/base";
import { advice, AppError, toAppError, type SettingInfo } from "@forkd/contract";
import { defaultsOf, hostFacts, type Setting, type SettingTable } from "@forkd/runtime";
import { z } from "zod";
import { configFileOf, loadConfig, readConfigFile, type Config, type Environment } from "./load.ts";
import { settingNames, settingTable, variableOf, type SettingName, type Table } from "./table.ts";

const reloads = {
  reopen: " SIGHUP reopens it.",
  reread: " SIGHUP rereads it.",
  watch: " The daemon rereads it when it changes and on SIGHUP.",
};

export function describeSettings(
  config: Config,
  env: Environment = process.env,
  table: Table = settingTable,
): SettingInfo[] {
  const defaults = defaultsOf(table, hostFacts(env));
  const values: Readonly<Record<string, unknown>> = config.values;
  const sources: Readonly<Record<string, SettingInfo["source"]>> = config.sources;
  return Object.entries<Setting>(table).map(([name, entry]) => {
    return {
      name,
      value: shown(entry, values[name]),
      // A setting without a value has no source.
      source: sources[name] ?? "default",
      default: entry.follows ? (entry.usually ?? null) : shown(entry, defaults[name]),
      meaning: entry.meaning + (entry.reload ? reloads[entry.reload] : ""),
      allowed: allowedOf(entry),
      variable: variableOf(name),
    };
  });
}

/** The wire has text, numbers and booleans; other values are shown as JSON. */
function shown(entry: Setting | undefined, value: unknown): string | number | boolean | null {
  if (entry?.secret) return "[hidden]";
  if (value === undefined || value === null) return null;
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") return value;
  return JSON.stringify(value);
}

/** "1 to 3600 seconds", "auto, kvm or tcg", "a path", "text". */
function allowedOf({ allowed, schema, unit }: Setting): string {
  if (allowed !== undefined) return allowed;
  const json = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
  if (json.enum)
    return json.enum
      .map(String)
      .join(", ")
      .replace(/, ([^,]*)$/, " or $1");
  if (json.minimum !== undefined && json.maximum !== undefined)
    return `${json.minimum} to ${json.maximum}${unit === undefined ? "" : ` ${unit}`}`;
  return json.description ?? "text";
}

export function requireSetting(name: string): SettingName {
  const found = settingNames.find((each) => each === name || variableOf(each) === name);
  if (found !== undefined) return found;
  throw new AppError("invalid_request", `There is no setting "${name}"`, {
    details: { field: "name" },
    remedy: advice(`The settings are: ${settingNames.join(", ")}.`),
  });
}

export type Change = {
  readonly name: string;
  readonly file: string;
  readonly value: string | number | boolean | null;
  /** what a daemon would use now: a variable overrides the file; undefined if there is no such setting */
  readonly effective: SettingInfo | undefined;
};

/** Writes all settings into config.json, or none: some are valid only together. */
export async function setSettings(
  given: readonly (readonly [name: string, text: string])[],
  env: Environment = process.env,
): Promise<Change[]> {
  const values = Object.fromEntries(given.map(([name, text]) => parseSetting(name, text)));
  if (Object.keys(values).length < given.length)
    throw new AppError("invalid_request", "A setting is given twice", {
      details: { field: "name" },
      remedy: advice("Give each setting once."),
    });
  return change(Object.keys(values), env, (file) => ({ ...file, ...values }));
}

function parseSetting(name: string, text: string): [SettingName, unknown] {
  const setting = requireSetting(name);
  if (setting === "data_dir") throw notInFile();
  const parsed = settingTable[setting].schema.safeParse(text);
  if (parsed.success) return [setting, parsed.data];
  const rule = parsed.error.issues.map(({ message }) => message).join("; ");
  // The remedy says what the general rules of the schema library say.
  const own = /^(Invalid|Too) /.test(rule) ? "" : `: ${rule}`;
  throw new AppError("invalid_request", `Cannot set ${setting} to "${text}"${own}`, {
    details: { field: setting, rule },
    remedy: advice(`It must be ${allowedOf(settingTable[setting])}.`),
  });
}

/** Removes settings from config.json, including those that this version does not know. */
export async function unsetSettings(
  names: readonly string[],
  env: Environment = process.env,
): Promise<Change[]> {
  const content = await readConfigFile(configFileOf({}, env));
  const known = names.map((name) => (Object.hasOwn(content, name) ? name : requireSetting(name)));
  return change(known, env, (file) =>
    Object.fromEntries(Object.entries(file).filter(([each]) => !known.includes(each))),
  );
}

type FileContent = Readonly<Record<string, unknown>>;

async function change(
  names: readonly string[],
  env: Environment,
  edit: (content: FileContent) => FileContent,
): Promise<Change[]> {
  const file = configFileOf({}, env);
  const before = await readConfigFile(file);
  const content = edit(before);
  // Checks all settings together, because one may depend on another.
  const config = await loadConfig({}, env, { file: content });
  await requireOwnSense(file, before, content);
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  await writeFileAtomic(file, `${JSON.stringify(content, undefined, 2)}\n`, 0o600);
  const entries: SettingTable = settingTable;
  const all = describeSettings(config, env);
  return names.map((name) => ({
    name,
    file,
    value: shown(entries[name], content[name]),
    effective: all.find((each) => each.name === name),
  }));
}

/**
 * The next daemon may start without the variables of this shell, so the file must be valid without them. A file
 * that is not valid already may be repaired step by step.
 */
async function requireOwnSense(file: string, before: FileContent, content: FileContent): Promise<void> {
  const problemOf = (given: FileContent): Promise<AppError | undefined> =>
    loadConfig({}, { FORKD_DATA_DIR: dirname(file) }, { file: given }).then(() => undefined, toAppError);
  const problem = await problemOf(content);
  if (problem === undefined || (await problemOf(before)) !== undefined) return;
  throw new AppError(
    "invalid_request",
    `Cannot change ${file}: a daemon without the FORKD_ variables of this environment would not start. ${problem.message}`,
    { details: { ...problem.details, file }, cause: problem },
  );
}

function notInFile(): AppError {
  return new AppError(
    "invalid_request",
    "Cannot set data_dir in config.json: the file is in that directory",
    {
      details: { field: "data_dir" },
      remedy: advice("Set FORKD_DATA_DIR, or give --data-dir to `forkd serve`."),
    },
  );
}
