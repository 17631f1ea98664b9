/** The digest by which OCI names content. */
import { createHash } from "node:crypto";

export function digestOf(bytes: Uint8Array): string {
  return `sha256:${createHash("sha256").update(bytes).digest("hex")}`;
}
