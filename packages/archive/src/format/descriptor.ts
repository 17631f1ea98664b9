/** How OCI names content: by media type, digest and length. */
import { z } from "zod";
import { digestOf } from "./digest.ts";

export const digestSchema = z.string().regex(/^sha256:[0-9a-f]{64}$/, "must be sha256: and 64 digits");

export const descriptorSchema = z.object({
  mediaType: z.string().min(1).max(255),
  digest: digestSchema,
  size: z.int().min(0),
  annotations: z.record(z.string(), z.string()).optional(),
});
export type Descriptor = z.output<typeof descriptorSchema>;

export function describe(mediaType: string, bytes: Uint8Array): Descriptor {
  return { mediaType, digest: digestOf(bytes), size: bytes.length };
}
