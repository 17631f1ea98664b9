/** Credentials of registries, where Docker and Podman keep them, and whether a registry accepts them. */
import { advice, AppError } from "@forkd/contract/wire";
import type { Forkd, RegistryAuth } from "@forkd/sdk";
import {
  checkAccess,
  dropCredentials,
  findCredentials,
  hasHost,
  keepCredentials,
  parseRegistry,
  Registries,
} from "@forkd/registry";

export { dropCredentials, keepCredentials, parseRegistry };

type Login = {
  readonly registry: string;
  readonly username: string;
  readonly password: string;
  readonly plainHttp?: boolean | undefined;
  readonly caFile?: string | undefined;
};

/** Throws if the registry refuses them. False if it does not ask for any, so that they could not be checked. */
export async function checkLogin(login: Login, signal: AbortSignal): Promise<boolean> {
  const { registry, username, password, plainHttp, caFile } = login;
  const credentials = () => Promise.resolve({ username, password });
  using registries = new Registries({ credentials, plainHttp, caFile });
  try {
    return await checkAccess(registries, registry, signal);
  } catch (error) {
    if (!(error instanceof AppError) || error.code !== "registry_denied") throw error;
    throw new AppError("registry_denied", `${registry} does not accept the password of "${username}"`, {
      details: error.details,
      remedy: advice(
        "Check the name and the password. Some registries take a token instead of the password.",
      ),
      cause: error,
    });
  }
}

/**
 * The credentials of this user for the registry of a reference. A reference without a host is in the registry of
 * the daemon's setting; a URL needs none.
 */
export async function authFor(
  forkd: Forkd,
  reference: string | undefined,
  signal: AbortSignal,
): Promise<RegistryAuth | undefined> {
  if (reference?.includes("://")) return undefined;
  if (reference === undefined || !hasHost(reference)) {
    const { settings } = await forkd.config({ signal });
    const place = settings.find(({ name }) => name === "hub_registry")?.value;
    if (typeof place !== "string" || place === "none") return undefined;
    return await authFor(forkd, reference === undefined ? `${place}/` : `${place}/${reference}`, signal);
  }
  const [host = "", ...path] = reference.split("/");
  const repository = path.join("/").replace(/[:@].*$/s, "");
  return await findCredentials(parseRegistry(host), repository === "" ? undefined : repository, signal);
}
