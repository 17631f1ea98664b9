/** Finds, keeps and removes the credentials of this user, where other tools keep them. */
import { authFilePaths, dockerConfigPath, readAuthFile, writeAuth, type AuthFile } from "./auth-file.ts";
import type { Credentials } from "./credentials.ts";
import { askHelper, eraseWithHelper, storeWithHelper } from "./helper.ts";

/** Docker keeps the credentials of Docker Hub under this name. */
const hubKey = "https://index.docker.io/v1/";

/**
 * Looks in `$REGISTRY_AUTH_FILE`, Docker's config.json and Podman's auth.json, the nearest entry first: one for
 * the repository or its namespace (Podman), then one for the registry.
 */
export async function findCredentials(
  registry: string,
  repository?: string,
  signal?: AbortSignal,
): Promise<Credentials | undefined> {
  for (const path of authFilePaths()) {
    const file = await readAuthFile(path);
    const found = await findIn(file, { registry, repository, signal });
    if (found) return found;
  }
  return undefined;
}

type Wanted = { registry: string; repository: string | undefined; signal: AbortSignal | undefined };

async function findIn(
  file: AuthFile,
  { registry, repository, signal }: Wanted,
): Promise<Credentials | undefined> {
  const helper = file.credHelpers[registry];
  if (helper !== undefined) return await askHelper(helper, serverOf(registry), signal);
  if (file.credsStore !== undefined) {
    const found = await askHelper(file.credsStore, serverOf(registry), signal);
    if (found) return found;
  }
  const names = (repository?.split("/") ?? []).map((_, index, parts) =>
    [registry, ...parts.slice(0, parts.length - index)].join("/"),
  );
  for (const name of [...names, registry]) {
    const key = Object.keys(file.auths).find((each) => plainKey(each) === name);
    if (key !== undefined) return file.auths[key];
  }
  return undefined;
}

/** Docker writes some keys as URLs, `https://index.docker.io/v1/`, and keeps the port of HTTPS if it was given. */
function plainKey(key: string): string {
  const plain = key
    .replace(/^https?:\/\//, "")
    .replace(/\/v[12]\/?$/, "")
    .replace(/\/$/, "")
    .replace(/:443(?=\/|$)/, "");
  return plain === "index.docker.io" || plain === "registry-1.docker.io" ? "docker.io" : plain;
}

function serverOf(registry: string): string {
  return registry === "docker.io" ? hubKey : registry;
}

/** Returns where they are kept now: the path of a file, or the name of a helper program. */
export async function keepCredentials(registry: string, credentials: Credentials): Promise<string> {
  // An older entry in a file that is searched earlier would hide this one.
  const [path = dockerConfigPath()] = authFilePaths();
  const file = await readAuthFile(path);
  const helper = file.credHelpers[registry] ?? file.credsStore;
  if (helper === undefined) {
    await writeAuth(file, serverOf(registry), credentials);
    return file.path;
  }
  await storeWithHelper(helper, serverOf(registry), credentials);
  return `docker-credential-${helper}`;
}

/** Removes them from every file that `findCredentials()` reads. Returns where there were any. */
export async function dropCredentials(registry: string): Promise<string[]> {
  const places: string[] = [];
  for (const path of authFilePaths()) {
    const file = await readAuthFile(path);
    const helper = file.credHelpers[registry] ?? file.credsStore;
    if (helper !== undefined && (await askHelper(helper, serverOf(registry)))) {
      await eraseWithHelper(helper, serverOf(registry));
      places.push(`docker-credential-${helper}`);
    }
    const keys = Object.keys(file.auths).filter((each) => plainKey(each) === registry);
    for (const key of keys) await writeAuth(await readAuthFile(path), key, undefined);
    if (keys.length > 0) places.push(path);
  }
  return places;
}
