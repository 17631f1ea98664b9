/** The registries of one operation, with the credentials of its request and the settings of this host. */
import type { RegistryAuth } from "@forkd/contract";
import { Registries, type Credentials } from "@forkd/registry";
import type { RuntimeConfig } from "../config.ts";

type RegistryAccess = {
  readonly auth?: RegistryAuth | undefined;
  readonly plain_http?: boolean | undefined;
};

/** The credentials are for `registry` alone: a mirror does not get them. */
export function openRegistries(
  { hub }: Pick<RuntimeConfig, "hub">,
  registry: string | undefined,
  { auth, plain_http: plainHttp }: RegistryAccess,
): Registries {
  const credentials = auth && credentialsOf(auth);
  return new Registries({
    credentials: async (name) => (name === registry ? credentials : undefined),
    plainHttp,
    caFile: hub.caFile,
    mirrors: hub.mirrors,
  });
}

function credentialsOf(auth: RegistryAuth): Credentials {
  if ("identity_token" in auth) return { identityToken: auth.identity_token };
  if ("registry_token" in auth) return { registryToken: auth.registry_token };
  return auth;
}
