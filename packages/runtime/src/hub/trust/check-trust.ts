/** Decides, before a pull transfers anything, whether the signatures of a manifest are good enough. */
import { createHash } from "node:crypto";
import { AppError, errorMessage, type Remedy, type TrustPolicy } from "@forkd/contract";
import { verifySignature, type FoundSignature } from "./signature.ts";
import { maxPayloadBytes, parseSignatureManifest, signaturesIn, signatureTag } from "./signature-manifest.ts";
import type { Trust } from "./trust-list.ts";

/** One repository of a registry, as far as signatures need it. */
export type SignatureReader = {
  /** the manifest of a tag; undefined if there is none */
  readonly readManifest: (tag: string) => Promise<Uint8Array | undefined>;
  /** at most `size` bytes; what the registry gives instead may be refused with `artifact_corrupt` */
  readonly readBlob: (blob: { digest: string; size: number }) => Promise<Uint8Array>;
};

export type TrustReport = {
  readonly policy: TrustPolicy;
  /**
   * signed: a pinned key has signed it; unsigned: it has no signature; untrusted: it has some, but none by a
   * pinned key; unchecked: the policy is off, or the signatures could not be read
   */
  readonly outcome: "signed" | "unsigned" | "untrusted" | "unchecked";
  /** fingerprint of the key */
  readonly signer?: string;
  /** one line for a person */
  readonly text: string;
};

/** Without a digest: the snapshot is not in a registry. */
type Subject = { readonly repository: string; readonly digest?: string };

/** Of what has no place for signatures. */
export const noSignature: SignatureReader = {
  readManifest: () => Promise.resolve(undefined),
  readBlob: () => Promise.reject(new Error("There is no signature")),
};

/** Throws `signature_missing` or `signature_invalid` if the policy requires a signature by a pinned key. */
export async function checkTrust(
  trust: Trust,
  subject: Subject,
  registry: SignatureReader,
): Promise<TrustReport> {
  const { policy, keys } = trust;
  const { repository, digest } = subject;
  if (policy === "off")
    return { policy, outcome: "unchecked", text: `Signatures of ${repository} are not checked` };
  let found: Found;
  try {
    found = await findSignatures(digest ?? "", registry);
    if (found.signatures.length === 0 && found.faults.length === 0) throw missing(subject);
    const signer = judge(found, trust, subject);
    return { policy, outcome: "signed", signer, text: `${repository} is signed by ${short(signer)}` };
  } catch (error) {
    if (policy === "require") throw error;
    const outcome = outcomeOf(error);
    if (outcome === "untrusted" && keys.length === 0) {
      const text = `${repository} is signed, but no key is pinned for it, so the signature is not verified`;
      return { policy, outcome, text };
    }
    return { policy, outcome, text: errorMessage(error) };
  }
}

function outcomeOf(error: unknown): "unsigned" | "untrusted" | "unchecked" {
  if (!(error instanceof AppError)) return "unchecked";
  if (error.code === "signature_missing") return "unsigned";
  return error.code === "signature_invalid" ? "untrusted" : "unchecked";
}

type Fault = { readonly reason: string; readonly text: string };
type Found = { readonly signatures: FoundSignature[]; readonly faults: Fault[] };

/** Signatures whose text cannot be read count as faults: another one may be good. */
async function findSignatures(digest: string, registry: SignatureReader): Promise<Found> {
  const bytes = await registry.readManifest(signatureTag(digest));
  const found: Found = { signatures: [], faults: [] };
  if (bytes === undefined) return found;
  for (const { payload, signature } of signaturesIn(parseSignatureManifest(bytes))) {
    if (payload.size > maxPayloadBytes) {
      found.faults.push({
        reason: "malformed_payload",
        text: `its text is longer than ${maxPayloadBytes} bytes`,
      });
      continue;
    }
    const text = await readPayload(registry, payload);
    if (text && `sha256:${createHash("sha256").update(text).digest("hex")}` === payload.digest)
      found.signatures.push({ payload: text, signature });
    else found.faults.push({ reason: "tampered_payload", text: "its text differs from its digest" });
  }
  return found;
}

const damageCodes: readonly string[] = ["artifact_corrupt", "artifact_not_found", "registry_failed"];

/** undefined if the registry does not have it as it was */
async function readPayload(
  registry: SignatureReader,
  payload: { digest: string; size: number },
): Promise<Uint8Array | undefined> {
  try {
    return await registry.readBlob(payload);
  } catch (error) {
    const isDamaged = error instanceof AppError && damageCodes.includes(error.code);
    if (isDamaged) return undefined;
    throw error;
  }
}

/** The fingerprint of the pinned key that has signed the digest. Throws `signature_invalid`. */
function judge({ signatures, faults }: Found, { keys }: Trust, subject: Subject): string {
  const all = [...faults];
  for (const signature of signatures) {
    const verdict = verifySignature(signature, subject.digest ?? "", keys);
    if ("key" in verdict) return verdict.key.fingerprint;
    all.push({ reason: verdict.fault, text: verdict.text });
  }
  // The most telling one: a pinned key that signed something else says more than an unknown key.
  const worst = all.find(({ reason }) => reason !== "wrong_key") ?? all[0];
  const { repository, digest } = subject;
  const why = worst?.text ?? "it has no signature";
  throw new AppError("signature_invalid", `Cannot trust ${nameOf(subject)}: ${why}`, {
    details: { repository, digest, reason: worst?.reason ?? "wrong_key", signatures: all.length },
    remedy: pinRemedy(subject),
  });
}

function missing(subject: Subject): AppError {
  const { repository, digest } = subject;
  return new AppError("signature_missing", `${nameOf(subject)} has no signature`, {
    details: { repository, digest },
    remedy: pinRemedy(subject),
  });
}

function nameOf({ repository, digest }: Subject): string {
  return digest === undefined ? repository : `${repository}@${digest}`;
}

function pinRemedy({ repository }: Subject): Remedy {
  return { action: "pin_key", repository };
}

/** As many digits as a person compares. */
function short(fingerprint: string): string {
  return fingerprint.slice(0, "sha256:".length + 16);
}
