/** Where a snapshot is shared: a reference of a registry, or the URL of an archive. */
import { advice, AppError } from "@forkd/contract";
import { hasHost, parseFileUrl, parseReference, type Reference } from "@forkd/registry";

type HubTarget =
  { readonly kind: "registry"; readonly reference: Reference } | { readonly kind: "url"; readonly url: URL };

/** A name without a host is in the registry of the setting. It is never taken for one of Docker Hub. */
export function targetOf(
  text: string,
  { hubRegistry, plainHttp }: { hubRegistry: string | undefined; plainHttp: boolean },
): HubTarget {
  if (/^https?:\/\//i.test(text)) return { kind: "url", url: parseFileUrl(text, { plainHttp }) };
  if (hasHost(text)) return { kind: "registry", reference: parseReference(text) };
  if (hubRegistry !== undefined)
    return { kind: "registry", reference: parseReference(`${hubRegistry}/${text}`) };
  throw new AppError("invalid_request", `"${text}" names no registry`, {
    details: { field: "reference", value: text },
    remedy: advice("Write HOST/REPOSITORY:TAG, or set hub_registry to the registry of names without a host."),
  });
}

/** Where a push sends to. Its digest is known only afterwards, so that it cannot be part of the name. */
export function sendTargetOf(...given: Parameters<typeof targetOf>): HubTarget {
  const target = targetOf(...given);
  if (target.kind === "url" || target.reference.digest === undefined) return target;
  throw new AppError("invalid_request", `Cannot push to "${given[0]}": it names a digest`, {
    details: { field: "reference", value: given[0] },
    remedy: advice("Write HOST/REPOSITORY:TAG."),
  });
}
