/** What a registry as a whole answers. */
import { discard } from "./http/body.ts";
import { withRetries } from "./http/retry.ts";
import { listPages } from "./list.ts";
import { isRepositoryName } from "./reference.ts";
import type { Registries } from "./registries.ts";

/** Asks whether this is a registry and accepts the credentials. False if it does not ask for any. */
export async function checkAccess(
  registries: Registries,
  registry: string,
  signal?: AbortSignal,
): Promise<boolean> {
  const host = registries.host(registry);
  const what = `Cannot log in to ${host.name}`;
  await withRetries(registries.retries, signal, async () => {
    discard(await host.request({ method: "GET", target: "", what, signal }));
  });
  return host.asksForCredentials;
}

/** The names of all repositories. Many public registries do not answer this. */
export async function listRepositories(
  registries: Registries,
  registry: string,
  signal?: AbortSignal,
): Promise<string[]> {
  const host = registries.host(registry);
  const { retries } = registries;
  const list = { host, retries, target: "_catalog?n=1000", scopes: ["registry:catalog:*"] };
  const what = `Cannot list the repositories of ${host.name}`;
  return (await listPages({ ...list, field: "repositories", what, signal })).filter(isRepositoryName);
}
