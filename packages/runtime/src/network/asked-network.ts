/** The network of new sandboxes, checked: rules that can be read, secrets that exist and may be used. */
import { AppError, type AskedNetwork } from "@forkd/contract";
import type { StoredSnapshot } from "@forkd/store";
import type { Caller } from "../context.ts";
import type { Runtime } from "../runtime.ts";
import { branchedNetwork, newNetwork, type SandboxNetwork } from "./sandbox-network.ts";

type WithNetwork = {
  network?: AskedNetwork | undefined;
  secrets?: readonly string[] | undefined;
};

/** For children of a snapshot. */
export function networkForFork(
  { network }: Pick<Runtime, "network">,
  snapshot: StoredSnapshot,
  request: WithNetwork,
  caller: Caller | undefined,
): SandboxNetwork {
  if (isAsked(request)) network.requireDevice();
  const found = newNetwork({
    asked: request.network,
    snapshot: snapshot.manifest.network,
    defaults: network.defaults,
    caller,
    secrets: placeholdersOf(network, request.secrets ?? [], caller),
  });
  network.check(found);
  return found;
}

/** For children of a branch: as the source, unless the request says otherwise. */
export function networkForBranch(
  { network }: Pick<Runtime, "network">,
  source: SandboxNetwork,
  request: WithNetwork,
  caller: Caller | undefined,
): SandboxNetwork {
  if (isAsked(request)) network.requireDevice();
  const secrets = request.secrets
    ? placeholdersOf(network, request.secrets, caller)
    : allowedSecrets(source.secrets, caller);
  const found = branchedNetwork(source, request.network, caller, secrets);
  network.check(found);
  return found;
}

/** Those of the source that the caller may use. */
function allowedSecrets(
  secrets: Readonly<Record<string, string>>,
  caller: Caller | undefined,
): Readonly<Record<string, string>> {
  const allowed = caller?.secrets;
  if (!allowed) return secrets;
  return Object.fromEntries(Object.entries(secrets).filter(([name]) => allowed.includes(name)));
}

function isAsked({ network, secrets }: WithNetwork): boolean {
  const { mode = "none", rules = [] } = network ?? {};
  return mode !== "none" || rules.length > 0 || (secrets?.length ?? 0) > 0;
}

/** Throws `secret_not_found` or `forbidden`. */
export function placeholdersOf(
  network: Runtime["network"],
  names: readonly string[],
  caller: Caller | undefined,
): Record<string, string> {
  return Object.fromEntries(
    names.map((name): [string, string] => {
      if (caller?.secrets && !caller.secrets.includes(name))
        throw new AppError("forbidden", `The key "${caller.name}" may not use the secret "${name}"`, {
          details: { secret: name, key: caller.name },
        });
      const found = network.secrets.info(name);
      if (found) return [name, found.placeholder];
      throw new AppError("secret_not_found", `Cannot find secret "${name}"`, {
        details: { secret: name },
        remedy: { action: "list_secrets", name },
      });
    }),
  );
}
