/**
 * The text of a manifest. Its last key, `manifest_digest`, is the sha256 of the whole text with the digits of
 * that digest as zeros, so that every changed byte is noticed. Manifests without it are from older versions.
 */
import { createHash } from "node:crypto";
import { z } from "zod";
import type { Manifest } from "./manifest.ts";

const zeros = "0".repeat(64);
const digestSchema = z.looseObject({ manifest_digest: z.string().optional() });

export function encodeManifest(manifest: Manifest): string {
  const text = `${JSON.stringify({ ...manifest, manifest_digest: zeros }, null, 2)}\n`;
  return replaceLast(text, zeros, sha256(text));
}

/** Removes the digest from `value`, the parsed `text`. Returns "mismatch" if the text does not match it. */
export function withoutDigest(value: unknown, text: string): { readonly rest: unknown } | "mismatch" {
  const { manifest_digest: digest, ...rest } = digestSchema.safeParse(value).data ?? {};
  if (digest === undefined) return { rest: value };
  return sha256(replaceLast(text, digest, zeros)) === digest ? { rest } : "mismatch";
}

function replaceLast(text: string, part: string, replacement: string): string {
  const at = text.lastIndexOf(part);
  return at < 0 ? text : text.slice(0, at) + replacement + text.slice(at + part.length);
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
