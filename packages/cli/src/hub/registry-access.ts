/** Credentials of registries, where Docker and Podman keep them, and whether a registry accepts them. */
import {
  checkAccess,
  dropCredentials,
  findCredentials,
  keepCredentials,
  parseReference,
  parseRegistry,
  Registries,
} from "@forkd/registry";

export { dropCredentials, findCredentials, keepCredentials, parseReference, parseRegistry };

export type Login = {
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
  return await checkAccess(registries, registry, signal);
}
