/** Adds a signature, made by the caller, to those that a registry has of a manifest. */
import { AppError } from "@forkd/contract";
import { signaturePayload } from "@forkd/contract/wire";
import type { SignatureReader } from "./check-trust.ts";
import { readPublicKey } from "./public-key.ts";
import { verifySignature } from "./signature.ts";
import { parseSignatureManifest, signatureTag, withSignature } from "./signature-manifest.ts";

export type SignatureWriter = SignatureReader & {
  readonly writeBlob: (blob: { digest: string; bytes: Uint8Array }) => Promise<void>;
  readonly writeManifest: (tag: string, manifest: { bytes: Uint8Array; mediaType: string }) => Promise<void>;
};

/** What the caller has signed: the text of signaturePayload(). */
type MadeSignature = {
  readonly repository: string;
  readonly digest: string;
  /** base64 */
  readonly signature: string;
  /** PEM */
  readonly publicKey: string;
};

/**
 * Refuses a signature that its own key does not verify, so that the first pull does not find that out. Returns the
 * tag of the signatures and the fingerprint of the key.
 */
export async function attachSignature(
  registry: SignatureWriter,
  { repository, digest, signature, publicKey }: MadeSignature,
): Promise<{ tag: string; fingerprint: string }> {
  const key = readPublicKey(publicKey);
  const payload = signaturePayload(repository, digest);
  const verdict = verifySignature({ payload: Buffer.from(payload), signature }, digest, [key]);
  if ("fault" in verdict)
    throw new AppError("signature_invalid", `Cannot attach the signature: ${verdict.text}`, {
      details: { repository, digest, reason: verdict.fault },
    });
  const tag = signatureTag(digest);
  const before = await registry.readManifest(tag);
  const next = withSignature(before && parseSignatureManifest(before), { payload, signature });
  if (next) {
    for (const blob of next.blobs) await registry.writeBlob(blob);
    await registry.writeManifest(tag, { bytes: next.manifest, mediaType: next.mediaType });
  }
  return { tag, fingerprint: key.fingerprint };
}
