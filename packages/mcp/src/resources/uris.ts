/** Addresses of the resources. Pure. */

export const snapshotsUri = "forkd://snapshots";
export const lineageUri = "forkd://lineage";
export const sandboxesUri = "forkd://sandboxes";

/** The path of a file is percent-encoded piece by piece, so that any name fits into an address. */
export function fileUri(id: string, path: string): string {
  return `forkd://sandboxes/${id}/files${path.split("/").map(encodeURIComponent).join("/")}`;
}

export function consoleUri(id: string): string {
  return `forkd://sandboxes/${id}/console`;
}

export function sandboxUri(id: string): string {
  return `forkd://sandboxes/${id}`;
}

export function snapshotUri(tag: string): string {
  return `forkd://snapshots/${tag}`;
}
