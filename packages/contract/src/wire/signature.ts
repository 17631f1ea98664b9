/**
 * The text that a signature of a pushed snapshot covers, in the form of cosign (docs/spec/signature.md). The
 * signer and the daemon both make it, so that a signature travels without its text. Imports nothing.
 */

export const signaturePayloadType = "cosign container image signature";

/** `repository` has its registry and neither tag nor digest; `digest` is that of the pushed manifest. */
export function signaturePayload(repository: string, digest: string): string {
  return JSON.stringify({
    critical: {
      identity: { "docker-reference": repository },
      image: { "docker-manifest-digest": digest },
      type: signaturePayloadType,
    },
    optional: null,
  });
}
