/** Attaches a signature to what was pushed. The caller has made it: the daemon has no private key. */
import { AppError, type ParsedOf, type SignResult } from "@forkd/contract";
import { formatReference } from "@forkd/registry";
import type { RuntimeConfig } from "../config.ts";
import { openRegistries } from "./open-registries.ts";
import { targetOf } from "./target.ts";
import { attachSignature } from "./trust/attach-signature.ts";
import { signaturesOf } from "./trust/registry-signatures.ts";

export async function signManifest(
  config: RuntimeConfig,
  request: ParsedOf<"signPushed">,
  signal: AbortSignal,
): Promise<SignResult> {
  const { digest, signature, public_key: publicKey } = request;
  const plainHttp = request.plain_http ?? false;
  const target = targetOf(request.reference, { hubRegistry: config.hub.registry, plainHttp });
  if (target.kind === "url")
    throw new AppError("invalid_request", "Invalid request: reference: an archive cannot have a signature");
  const { registry, repository: path } = target.reference;
  using registries = openRegistries(config, registry, request);
  const repository = registries.repository(target.reference, "pull,push");
  const name = formatReference({ registry, repository: path, digest });
  if ((await repository.head(digest, signal)) === undefined)
    throw new AppError("artifact_not_found", `Cannot sign ${name}: the repository does not have it`, {
      details: { reference: name },
    });
  const made = { repository: `${registry}/${path}`, digest, signature, publicKey };
  const { tag, fingerprint } = await attachSignature(signaturesOf(repository, signal), made);
  return { reference: name, digest, signature_tag: tag, fingerprint };
}
