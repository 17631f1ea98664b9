/** Whether one of some keys has signed a digest. Pure. */
import { verify } from "node:crypto";
import { signaturePayloadType } from "@forkd/contract/wire";
import { z } from "zod";
import type { PublicKey } from "./public-key.ts";

/** A signature as a registry has it, not checked. */
export type FoundSignature = {
  readonly payload: Uint8Array;
  /** base64 */
  readonly signature: string;
};

type SignatureFault =
  "wrong_key" | "other_digest" | "malformed_payload" | "malformed_signature" | "tampered_payload";

type Verdict = { readonly key: PublicKey } | { readonly fault: SignatureFault; readonly text: string };

/** Only what decides; cosign adds facts of its own under `optional`. */
const payloadSchema = z.object({
  critical: z.object({
    image: z.object({ "docker-manifest-digest": z.string() }),
    type: z.literal(signaturePayloadType),
  }),
});

const base64 = /^[A-Za-z0-9+/]+={0,2}$/;
const maxSignatureChars = 1024;

/**
 * The payload is read only after a key has verified it: before, anybody may have written it. The repository in it is
 * not compared, so that a copy in another registry keeps its signatures.
 */
export function verifySignature(
  { payload, signature }: FoundSignature,
  digest: string,
  keys: readonly PublicKey[],
): Verdict {
  if (signature.length > maxSignatureChars || !base64.test(signature))
    return { fault: "malformed_signature", text: "the signature is not base64" };
  const bytes = Buffer.from(signature, "base64");
  const key = keys.find((each) => isSignedBy(each, payload, bytes));
  if (!key) return { fault: "wrong_key", text: "no pinned key has made the signature" };
  const signed = readPayload(payload);
  if (signed === undefined)
    return { fault: "malformed_payload", text: "the signed text is not about a snapshot or an image" };
  if (signed !== digest) return { fault: "other_digest", text: `the signature is for ${signed}` };
  return { key };
}

function isSignedBy({ key, algorithm }: PublicKey, payload: Uint8Array, signature: Buffer): boolean {
  try {
    return verify(algorithm === "ed25519" ? null : "sha256", payload, key, signature);
  } catch {
    // A signature of another form, such as one that is too short.
    return false;
  }
}

function readPayload(payload: Uint8Array): string | undefined {
  try {
    const value: unknown = JSON.parse(Buffer.from(payload).toString("utf8"));
    return payloadSchema.safeParse(value).data?.critical.image["docker-manifest-digest"];
  } catch {
    return undefined;
  }
}
