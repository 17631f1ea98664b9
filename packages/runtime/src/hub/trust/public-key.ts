/** Public keys of publishers, as PEM. */
import { createHash, createPublicKey, type KeyObject } from "node:crypto";
import { AppError, maxPublicKeyChars, type TrustEntry } from "@forkd/contract";

type Algorithm = TrustEntry["keys"][number]["algorithm"];

export type PublicKey = {
  readonly key: KeyObject;
  readonly algorithm: Algorithm;
  /** `sha256:` and the digest of the key in its DER form */
  readonly fingerprint: string;
  /** in the form in which it is stored, whatever text was given */
  readonly pem: string;
};

const onePem = /^\s*-----BEGIN ([A-Z0-9 ]+)-----[\sA-Za-z0-9+/=]+-----END \1-----\s*$/;

/** Throws `invalid_signing_key` with a `reason`. */
export function readPublicKey(text: string): PublicKey {
  if (text.length > maxPublicKeyChars)
    throw invalid("malformed", `it is longer than ${maxPublicKeyChars} characters`);
  const label = onePem.exec(text)?.[1];
  if (label === undefined) throw invalid("malformed", "it is not one key in PEM form");
  if (label.includes("PRIVATE KEY")) throw invalid("private_key", "it is a private key; give the public key");
  if (label !== "PUBLIC KEY") throw invalid("malformed", `it is a ${label.toLowerCase()}, not a public key`);
  let key: KeyObject;
  try {
    key = createPublicKey({ key: text, format: "pem", type: "spki" });
  } catch (error) {
    throw invalid("malformed", "its content is not a public key", error);
  }
  const der = key.export({ format: "der", type: "spki" });
  return {
    key,
    algorithm: algorithmOf(key),
    fingerprint: `sha256:${createHash("sha256").update(der).digest("hex")}`,
    pem: String(key.export({ format: "pem", type: "spki" })),
  };
}

function algorithmOf(key: KeyObject): Algorithm {
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = key;
  if (type === "ed25519") return "ed25519";
  if (type === "ec" && details?.namedCurve === "prime256v1") return "ecdsa-p256";
  const name =
    type === "ec" ? `an EC key on the curve ${details?.namedCurve ?? "?"}` : `of the type ${type ?? "?"}`;
  throw invalid("unknown_algorithm", `it is ${name}; only Ed25519 and ECDSA P-256 are supported`);
}

function invalid(reason: string, why: string, cause?: unknown): AppError {
  return new AppError("invalid_signing_key", `Cannot use the public key: ${why}`, {
    details: { reason },
    cause,
  });
}
