/**
 * Where signatures are in a registry: an image manifest under the tag `sha256-<digest>.sig`, with one layer per
 * signature, as cosign writes and reads it. Pure.
 */
import { createHash } from "node:crypto";
import { AppError } from "@forkd/contract";
import { z } from "zod";

const manifestType = "application/vnd.oci.image.manifest.v1+json";
const configType = "application/vnd.oci.image.config.v1+json";
const payloadType = "application/vnd.dev.cosign.simplesigning.v1+json";
const signatureAnnotation = "dev.cosignproject.cosign/signature";

const maxSignatures = 64;
export const maxPayloadBytes = 64 * 1024;
/** cosign keeps certificates and log entries in annotations. */
const maxSignatureManifestBytes = 4 << 20;

const descriptorSchema = z.looseObject({
  mediaType: z.string(),
  digest: z.string().regex(/^sha256:[0-9a-f]{64}$/),
  size: z.int().min(0),
  annotations: z.record(z.string(), z.string()).optional(),
});
const manifestSchema = z.looseObject({
  schemaVersion: z.literal(2),
  config: descriptorSchema,
  layers: z.array(descriptorSchema).max(maxSignatures),
});
type Descriptor = z.output<typeof descriptorSchema>;
export type SignatureManifest = z.output<typeof manifestSchema>;

/** The tag under which the signatures of a manifest are. */
export function signatureTag(digest: string): string {
  return `${digest.replace(":", "-")}.sig`;
}

/** Throws `signature_invalid` for what is not a manifest of signatures. */
export function parseSignatureManifest(bytes: Uint8Array): SignatureManifest {
  const fault = (why: string, cause?: unknown) =>
    new AppError("signature_invalid", `Cannot read the signatures in the registry: ${why}`, {
      details: { reason: "malformed_signature" },
      cause,
    });
  if (bytes.length > maxSignatureManifestBytes)
    throw fault(`their manifest is longer than ${maxSignatureManifestBytes} bytes`);
  let value: unknown;
  try {
    value = JSON.parse(Buffer.from(bytes).toString("utf8"));
  } catch (error) {
    throw fault("their manifest is not JSON", error);
  }
  const parsed = manifestSchema.safeParse(value);
  if (!parsed.success) throw fault(z.prettifyError(parsed.error).replaceAll("\n", " "), parsed.error);
  return parsed.data;
}

/** The signatures that a manifest names, without layers of another kind. */
export function signaturesIn({
  layers,
}: SignatureManifest): { payload: { digest: string; size: number }; signature: string }[] {
  return layers.flatMap(({ mediaType, digest, size, annotations }) => {
    const signature = annotations?.[signatureAnnotation];
    return mediaType === payloadType && signature !== undefined
      ? [{ payload: { digest, size }, signature }]
      : [];
  });
}

type Bytes = { readonly digest: string; readonly bytes: Uint8Array };
type WithSignature = {
  readonly manifest: Uint8Array;
  readonly mediaType: string;
  /** blobs that the manifest needs in addition */
  readonly blobs: readonly Bytes[];
};

/** A manifest with one more signature; undefined if `before` has it. Throws if there are too many. */
export function withSignature(
  before: SignatureManifest | undefined,
  { payload, signature }: { payload: string; signature: string },
): WithSignature | undefined {
  const text = blob(payload);
  const known = before ? signaturesIn(before) : [];
  if (known.some((each) => each.signature === signature && each.payload.digest === text.digest))
    return undefined;
  if ((before?.layers.length ?? 0) >= maxSignatures)
    throw new AppError(
      "invalid_request",
      `Cannot add a signature: there are ${maxSignatures}, which is the most`,
    );
  const layer: Descriptor = {
    mediaType: payloadType,
    digest: text.digest,
    size: text.bytes.length,
    annotations: { [signatureAnnotation]: signature },
  };
  const layers = [...(before?.layers ?? []), layer];
  const config = blob(configFor(layers));
  const manifest = {
    schemaVersion: 2,
    mediaType: manifestType,
    config: { mediaType: configType, size: config.bytes.length, digest: config.digest },
    layers,
  };
  return { manifest: Buffer.from(JSON.stringify(manifest)), mediaType: manifestType, blobs: [text, config] };
}

/** Tools that read any image expect a file system with as many layers. */
function configFor(layers: readonly Descriptor[]): string {
  const created = "0001-01-01T00:00:00Z";
  return JSON.stringify({
    architecture: "",
    created,
    history: layers.map(() => ({ created })),
    os: "",
    rootfs: { type: "layers", diff_ids: layers.map(({ digest }) => digest) },
    config: {},
  });
}

function blob(text: string): Bytes {
  const bytes = Buffer.from(text);
  return { digest: `sha256:${createHash("sha256").update(bytes).digest("hex")}`, bytes };
}
