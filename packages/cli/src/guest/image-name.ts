/** Names of container images on the command line. Pure. */
import { basename, resolve } from "node:path";

const maxTag = 64;
const local = /^(oci|oci-archive|docker-archive):([^:]*)(.*)$/s;

/** The daemon has another working directory. */
export function absoluteImage(text: string): string {
  const [, scheme, path, rest] = local.exec(text) ?? [];
  return path === undefined || path === "" ? text : `${scheme}:${resolve(path)}${rest}`;
}

/** A tag for the snapshot of an image: `python-3.12-slim` for `docker.io/library/python:3.12-slim`. */
export function tagOfImage(text: string): string | undefined {
  const [, , path, rest = ""] = local.exec(text) ?? [];
  const name =
    path === undefined
      ? (text
          .split("/")
          .at(-1)
          ?.replace(/@sha256:.*$/, "") ?? "")
      : archiveName(path, rest);
  const tag = name
    .replace(/[^A-Za-z0-9._-]+/g, "-")
    .replace(/^[^A-Za-z0-9]+/, "")
    .slice(0, maxTag);
  return tag === "" ? undefined : tag;
}

/** `app-2` for an image that an archive calls `example.com/team/app:2`, otherwise the name of the file. */
function archiveName(path: string, selected: string): string {
  const chosen = selected.slice(1);
  if (chosen.includes(":")) return chosen.slice(chosen.lastIndexOf("/") + 1);
  return `${basename(path).replace(/(\.tar)?(\.gz|\.zst)?$/, "")}${selected}`;
}
