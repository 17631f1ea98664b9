/** Whose signatures a pull asks for. */
import type { ParsedOf, TrustEntry } from "@forkd/contract";
import type { Runtime } from "../runtime.ts";

export function listTrust({ trust }: Pick<Runtime, "trust">): TrustEntry[] {
  return trust.list();
}

export function setTrust(
  { trust }: Pick<Runtime, "trust">,
  request: ParsedOf<"setTrust">,
): Promise<TrustEntry> {
  return trust.set(request);
}

export function removeTrust(
  { trust }: Pick<Runtime, "trust">,
  request: ParsedOf<"removeTrust">,
): Promise<void> {
  return trust.remove(request);
}
