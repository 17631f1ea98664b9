/** What describes a snapshot, as layers that other tools can read without unpacking the snapshot. */
import type { ExtraBlob } from "@forkd/archive";
import { fileNames, readAttachment, type AttachmentRole, type StoredSnapshot } from "@forkd/store";

export const extraTypes = {
  sbom: "application/spdx+json",
  recipe: "application/vnd.forkd.recipe.v1.tar",
} as const satisfies Record<AttachmentRole, string>;

export async function extrasOf(snapshot: StoredSnapshot, signal?: AbortSignal): Promise<ExtraBlob[]> {
  const extras: ExtraBlob[] = [];
  for (const [role, mediaType] of Object.entries(extraTypes) as [AttachmentRole, string][]) {
    const bytes = await readAttachment(snapshot, role, signal);
    const annotations = { "org.opencontainers.image.title": fileNames[role] };
    if (bytes) extras.push({ mediaType, bytes, annotations });
  }
  return extras;
}
