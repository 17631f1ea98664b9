/**
 * The files in which tools keep credentials of registries: Docker's config.json and Podman's auth.json. They
 * have the same form.
 */
import { mkdir, readFile } from "node:fs/promises";
import { homedir } from "node:os";
import { dirname, join } from "node:path";
import { isErrno, writeFileAtomic } from "@forkd/base";
import { AppError } from "@forkd/contract";
import type { Credentials } from "./credentials.ts";

/** The parts of a file that matter here; others stay as they are. */
export type AuthFile = {
  readonly path: string;
  readonly auths: Readonly<Record<string, Credentials>>;
  readonly credsStore: string | undefined;
  readonly credHelpers: Readonly<Record<string, string>>;
  readonly content: Readonly<Record<string, unknown>>;
};

const maxBytes = 1 << 20;
const helperName = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;

/** Docker's own file. */
export function dockerConfigPath(env: NodeJS.ProcessEnv = process.env): string {
  const { DOCKER_CONFIG: directory, HOME: home } = env;
  return join(directory || join(home || homedir(), ".docker"), "config.json");
}

/** In the order in which they are searched; `login` writes to the first. */
export function authFilePaths(env: NodeJS.ProcessEnv = process.env): string[] {
  const { REGISTRY_AUTH_FILE: named, XDG_RUNTIME_DIR: runtime, XDG_CONFIG_HOME: config, HOME: home } = env;
  return [
    named,
    dockerConfigPath(env),
    runtime && join(runtime, "containers/auth.json"),
    join(config || join(home || homedir(), ".config"), "containers/auth.json"),
  ].filter((path): path is string => path !== undefined && path !== "");
}

/** An empty one if the file does not exist. */
export async function readAuthFile(path: string): Promise<AuthFile> {
  let text: string;
  try {
    text = await readFile(path, "utf8");
  } catch (error) {
    if (isErrno(error, "ENOENT", "ENOTDIR"))
      return { path, auths: {}, credsStore: undefined, credHelpers: {}, content: {} };
    throw unusable(path, error instanceof Error ? error.message : String(error));
  }
  if (text.length > maxBytes) throw unusable(path, `it is longer than ${maxBytes} bytes`);
  let content: unknown;
  try {
    content = JSON.parse(text);
  } catch {
    throw unusable(path, "it is not JSON");
  }
  if (!isRecord(content)) throw unusable(path, "it is not a JSON object");
  const { auths, credsStore, credHelpers } = content;
  return {
    path,
    auths: authsOf(isRecord(auths) ? auths : {}),
    credsStore:
      typeof credsStore === "string" && credsStore !== "" ? checkedHelper(path, credsStore) : undefined,
    credHelpers: Object.fromEntries(
      Object.entries(isRecord(credHelpers) ? credHelpers : {})
        .filter((entry): entry is [string, string] => typeof entry[1] === "string" && entry[1] !== "")
        .map(([host, helper]) => [host, checkedHelper(path, helper)]),
    ),
    content,
  };
}

/** Replaces or removes one entry of `auths`; everything else in the file stays. */
export async function writeAuth(
  file: AuthFile,
  key: string,
  credentials: Credentials | undefined,
): Promise<void> {
  const { auths } = file.content;
  const entries = new Map(Object.entries(isRecord(auths) ? auths : {}));
  if (credentials === undefined) entries.delete(key);
  else entries.set(key, entryOf(credentials));
  await mkdir(dirname(file.path), { recursive: true, mode: 0o700 });
  const content = { ...file.content, auths: Object.fromEntries(entries) };
  await writeFileAtomic(file.path, `${JSON.stringify(content, undefined, "\t")}\n`, 0o600);
}

function entryOf(credentials: Credentials): Record<string, string> {
  if ("registryToken" in credentials) return { registrytoken: credentials.registryToken };
  if ("identityToken" in credentials) return { identitytoken: credentials.identityToken };
  return { auth: Buffer.from(`${credentials.username}:${credentials.password}`).toString("base64") };
}

function authsOf(entries: Readonly<Record<string, unknown>>): Record<string, Credentials> {
  return Object.fromEntries(
    Object.entries(entries).flatMap(([key, entry]) => {
      const found = isRecord(entry) ? credentialsOf(entry) : undefined;
      return found ? [[key, found]] : [];
    }),
  );
}

function credentialsOf(entry: Readonly<Record<string, unknown>>): Credentials | undefined {
  const { auth, username, password, identitytoken, registrytoken } = entry;
  if (typeof registrytoken === "string" && registrytoken !== "") return { registryToken: registrytoken };
  if (typeof identitytoken === "string" && identitytoken !== "") return { identityToken: identitytoken };
  if (typeof auth === "string" && auth !== "") {
    const text = Buffer.from(auth, "base64").toString("utf8").replace(/\0+$/, "");
    const colon = text.indexOf(":");
    return colon < 1 ? undefined : { username: text.slice(0, colon), password: text.slice(colon + 1) };
  }
  if (typeof username === "string" && username !== "" && typeof password === "string")
    return { username, password };
  return undefined;
}

/** The name becomes part of a program's name. */
function checkedHelper(path: string, name: string): string {
  if (helperName.test(name)) return name;
  throw unusable(path, `"${name.slice(0, 80)}" is not the name of a credential helper`);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function unusable(path: string, why: string): AppError {
  return new AppError("invalid_request", `Cannot read credentials of registries from "${path}": ${why}`);
}
