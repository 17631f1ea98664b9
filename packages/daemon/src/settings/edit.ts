/** Settings for a person: each with value, origin, meaning and range; and the file that holds them, changed one at a time. */
import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";
import { writeFileAtomic } from "@forkd/base";
import { advice, AppError, type SettingInfo } from "@forkd/contract";
import { z } from "zod";
import {
  configFileOf,
  defaultsOf,
  loadConfig,
  readConfigFile,
  settingNames,
  settingsSchema,
  type Config,
  type Environment,
  type SettingName,
} from "./config.ts";
import { settingMeanings } from "./meanings.ts";

/** Names whose values are not shown; none of today's settings holds a secret itself. */
const secretNames = /token$|secret|password|private/;

export function describeSettings(config: Config, env: Environment = process.env): SettingInfo[] {
  const defaults: Readonly<Record<string, unknown>> = { ...defaultsOf(env) };
  return settingNames.map((name) => {
    const hide = (value: unknown) => (secretNames.test(name) ? "[hidden]" : plain(value));
    return {
      name,
      value: hide(config.values[name]),
      // A setting without a default that nobody gave has no source.
      source: config.sources[name] ?? "default",
      // The socket's default follows from another setting.
      default: name === "socket" ? "forkd.sock in runtime_dir" : hide(defaults[name]),
      meaning: settingMeanings[name]?.meaning ?? "",
      allowed: settingMeanings[name]?.allowed ?? allowedOf(name),
      variable: variableOf(name),
    };
  });
}

export function variableOf(name: string): string {
  return `FORKD_${name.toUpperCase()}`;
}

/** What crosses the wire is text, a number or a truth value; anything else is shown as JSON. */
function plain(value: unknown): string | number | boolean | null {
  if (value === undefined || value === null) return null;
  if (typeof value === "string" || typeof value === "number" || typeof value === "boolean") return value;
  return JSON.stringify(value);
}

/** "1 to 1000", "auto, kvm or tcg", "text". */
function allowedOf(name: SettingName): string {
  const schema = z.toJSONSchema(settingsSchema.shape[name], { io: "input", unrepresentable: "any" });
  if (schema.enum)
    return schema.enum
      .map(String)
      .join(", ")
      .replace(/, ([^,]*)$/, " or $1");
  if (schema.minimum !== undefined && schema.maximum !== undefined)
    return `${schema.minimum} to ${schema.maximum}`;
  if (schema.type === "boolean") return "true or false";
  return name.endsWith("_dir") || name === "socket" ? "a path" : "text";
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
  /** what a daemon would use now: not the file's value where a variable hides it; undefined if no setting has the name */
  readonly effective: SettingInfo | undefined;
};

/** Writes settings into config.json, all or none: some are allowed only together. */
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
  const parsed = settingsSchema.shape[setting].safeParse(text);
  if (parsed.success) return [setting, parsed.data];
  const rule = parsed.error.issues.map(({ message }) => message).join("; ");
  throw new AppError("invalid_request", `Cannot set ${setting} to "${text}": ${rule}`, {
    details: { field: setting },
    remedy: advice(`It may be: ${settingMeanings[setting]?.allowed ?? allowedOf(setting)}.`),
  });
}

/** Takes settings out of config.json, so that their defaults count again; also those that this version does not know. */
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
  const content = edit(await readConfigFile(file));
  // All settings together, because one may depend on another.
  const config = await loadConfig({}, env, { file: content });
  await mkdir(dirname(file), { recursive: true, mode: 0o700 });
  await writeFileAtomic(file, `${JSON.stringify(content, undefined, 2)}\n`, 0o600);
  const all = describeSettings(config, env);
  return names.map((name) => ({
    name,
    file,
    value: plain(content[name]),
    effective: all.find((each) => each.name === name),
  }));
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
