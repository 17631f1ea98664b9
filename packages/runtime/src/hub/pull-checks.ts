/** What is asked before a pull transfers pages: who has signed the snapshot, and whether it can be forked here. */
import type { Unpacker } from "@forkd/archive";
import type { PullRequest } from "@forkd/contract";
import type { Repository } from "@forkd/registry";
import type { Runtime } from "../runtime.ts";
import { requirePortable } from "./portability.ts";
import { checkTrust, noSignature, type TrustReport } from "./trust/check-trust.ts";
import { signaturesOf } from "./trust/registry-signatures.ts";
import type { Trust } from "./trust/trust-list.ts";
import type { OnHubProgress } from "./transfer-progress.ts";

type CheckContext = { signal: AbortSignal; onProgress: OnHubProgress };
type Skips = Pick<PullRequest, "insecure_skip_signature">;

/** Throws `signature_missing` or `signature_invalid`. A warning is one line of progress. */
export async function checkSignatures(
  { trust }: Pick<Runtime, "trust">,
  repository: Repository,
  { name, digest, request }: { name: string; digest: string; request: Skips },
  { signal, onProgress }: CheckContext,
): Promise<TrustReport> {
  const asked = askedFor(trust.for(name), request);
  const report = await checkTrust(asked, { repository: name, digest }, signaturesOf(repository, signal));
  return reported(report, onProgress);
}

/** An archive has no place for signatures, so that it counts as unsigned. */
export async function checkUnsigned(
  { trust }: Pick<Runtime, "trust">,
  { url, request }: { url: string; request: Skips },
  { onProgress }: CheckContext,
): Promise<TrustReport> {
  const name = url.replace(/^https?:\/\//i, "").replace(/\?.*$/s, "");
  return reported(
    await checkTrust(askedFor(trust.for(name), request), { repository: name }, noSignature),
    onProgress,
  );
}

function askedFor(trust: Trust, { insecure_skip_signature: isSkipped }: Skips): Trust {
  return isSkipped ? { ...trust, policy: "off" } : trust;
}

function reported(report: TrustReport, onProgress: OnHubProgress): TrustReport {
  if (report.policy !== "off") onProgress({ step: "trust", message: report.text });
  return report;
}

/** Throws `snapshot_incompatible` with what helps. A snapshot that is here already is not refused. */
export function checkPortable(
  { host }: Pick<Runtime, "host">,
  reference: string,
  { manifest, snapshots }: Pick<Unpacker, "manifest" | "snapshots">,
): void {
  if (snapshots.at(-1)?.exists) return;
  requirePortable({ reference, manifest, hasRecipe: manifest.files.recipe !== undefined }, host);
}
