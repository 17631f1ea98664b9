/** The names of container images. Pure. */
import { resolve } from "node:path";
import { advice, AppError } from "@forkd/contract";

export type ImageReference =
  /** an OCI layout: a directory, or a tar archive of one */
  | { kind: "oci"; path: string; tag?: string | undefined }
  /** the output of `docker save` */
  | { kind: "docker-archive"; path: string; tag?: string | undefined }
  | { kind: "registry"; name: string };

const maxLength = 4096;
const localPattern = /^(oci|oci-archive|docker-archive):(.*)$/s;

/** Whether a name means a path of the host and not a registry. */
export function isLocalImage(text: string): boolean {
  return localPattern.test(text);
}

/**
 * `oci:PATH[:TAG]`, `docker-archive:PATH[:NAME:TAG]`, or a name in a registry, perhaps after `docker://`.
 * Relative paths start at `directory`. Throws `invalid_image`.
 */
export function parseReference(text: string, directory = "/"): ImageReference {
  if (text.length > maxLength) throw wrong(text.slice(0, 100), "it is too long");
  if (text.includes("\0")) throw wrong(text.replaceAll("\0", ""), "it has a NUL byte");
  const local = localPattern.exec(text);
  if (local) return localReference(text, { scheme: local[1] ?? "", rest: local[2] ?? "", directory });
  const name = text.replace(/^docker:\/\//, "");
  if (/^[./~]/.test(name))
    throw wrong(
      text,
      "it is a path",
      `Write oci:${name} for an OCI layout or docker-archive:${name} for a saved image.`,
    );
  if (/^[a-z][a-z0-9+.-]*:\/\//i.test(name)) throw wrong(text, "it is a URL; leave out the scheme");
  if (name === "") throw wrong(text, "it is empty");
  return { kind: "registry", name };
}

function localReference(
  text: string,
  { scheme, rest, directory }: { scheme: string; rest: string; directory: string },
): ImageReference {
  // A path has no colon; everything after the first one selects an image in it.
  const colon = rest.indexOf(":");
  const path = colon < 0 ? rest : rest.slice(0, colon);
  const tag = colon < 0 ? undefined : rest.slice(colon + 1);
  if (path === "") throw wrong(text, "the path is missing");
  if (tag === "") throw wrong(text, "the tag after the colon is missing");
  const kind = scheme === "docker-archive" ? "docker-archive" : "oci";
  return { kind, path: resolve(directory, path), tag };
}

function wrong(text: string, why: string, remedy?: string): AppError {
  return new AppError("invalid_image", `Cannot use the image "${text}": ${why}`, {
    ...(remedy !== undefined && { remedy: advice(remedy) }),
  });
}
