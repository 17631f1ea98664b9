/** Secrets, which the proxy fills in and guests never hold. */
import type { ParsedOf, SecretInfo } from "@forkd/contract";
import type { Runtime } from "../runtime.ts";

export function listSecrets({ network }: Pick<Runtime, "network">): SecretInfo[] {
  return network.secrets.list();
}

/** Sandboxes that have it use the new value from now on. */
export async function setSecret(
  { network }: Pick<Runtime, "network">,
  request: ParsedOf<"setSecret">,
): Promise<SecretInfo> {
  const info = await network.secrets.set(request);
  await network.refresh();
  return info;
}

export async function removeSecret(
  { network }: Pick<Runtime, "network">,
  { name }: { name: string },
): Promise<void> {
  await network.secrets.remove(name);
  await network.refresh();
}
