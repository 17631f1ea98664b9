/**
 * References to artifacts, `HOST[:PORT]/REPOSITORY[:TAG][@DIGEST]`, as other tools write them: a name without
 * a host is on Docker Hub, and there a name without a slash is an official image.
 */
import { AppError } from "@forkd/contract";
import { isDigest } from "./digest.ts";

export type Reference = {
  /** host and port, as in `ghcr.io` or `localhost:5000` */
  readonly registry: string;
  readonly repository: string;
  readonly tag?: string;
  readonly digest?: string;
};

const dockerHub = "docker.io";
const maxLength = 1024;
const maxRepositoryLength = 255;

const repositoryForm = /^[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*)*$/;
const tagForm = /^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$/;
const hostForm =
  /^(?:\[[0-9a-fA-F:.]+\]|[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*)(?::[0-9]{1,5})?$/;

export function parseReference(text: string): Reference {
  if (text.length > maxLength)
    throw invalid(`${text.slice(0, 60)}…`, `it is longer than ${maxLength} characters`);
  if (/^[a-z]+:\/\//i.test(text)) throw invalid(text, "it starts with a scheme, but a reference has none");
  const { rest, digest } = cutDigest(text);
  const slash = rest.indexOf("/");
  const first = slash < 0 ? "" : rest.slice(0, slash);
  // No repository has upper case, so that it can only be a host.
  const isRegistry = hasHost(rest) || first !== first.toLowerCase();
  const registry = isRegistry ? parseRegistry(first) : dockerHub;
  const path = isRegistry ? rest.slice(slash + 1) : rest;
  const colon = path.lastIndexOf(":");
  const name = colon < 0 ? path : path.slice(0, colon);
  const tag = colon < 0 ? undefined : path.slice(colon + 1);
  if (tag !== undefined && !tagForm.test(tag))
    throw invalid(
      text,
      `the tag "${tag}" is not made of at most 128 letters, digits, dots, dashes and underscores`,
    );
  const repository = usualRepository(registry, name);
  checkRepository(text, repository);
  return { registry, repository, ...(tag !== undefined && { tag }), ...(digest !== undefined && { digest }) };
}

/** Whether a name begins with a host. Without a slash, a colon is before the tag: "python-numpy:v1". */
export function hasHost(text: string): boolean {
  const [first = "", ...rest] = text.split("/");
  return rest.length > 0 && (/[.:]/.test(first) || first === "localhost");
}

/** A name without a slash is an official image on Docker Hub. */
export function usualRepository(registry: string, name: string): string {
  return registry === dockerHub && name !== "" && !name.includes("/") ? `library/${name}` : name;
}

/**
 * `HOST[:PORT]` in one form for each registry, because keys are pinned and passwords kept by this name: lower case,
 * without the port of HTTPS, addresses in their usual form, and the names of Docker Hub made one.
 */
export function parseRegistry(text: string): string {
  if (!hostForm.test(text) || text.length > 255)
    throw invalid(text, "the registry is not a host with an optional port");
  const host = text.toLowerCase();
  const port = /:(\d+)$/.exec(host.replace(/^\[[^\]]*\]/, ""))?.[1];
  if (port !== undefined && (Number(port) < 1 || Number(port) > 65_535))
    throw invalid(text, `${port} is not a port`);
  if (!URL.canParse(`https://${host}`)) throw invalid(text, `"${host}" is not a host`);
  const usual = new URL(`https://${host}`).host;
  return usual === "index.docker.io" || usual === "registry-1.docker.io" ? dockerHub : usual;
}

export function formatReference({ registry, repository, tag, digest }: Reference): string {
  return `${registry}/${repository}${tag === undefined ? "" : `:${tag}`}${digest === undefined ? "" : `@${digest}`}`;
}

export function isTagName(text: string): boolean {
  return tagForm.test(text);
}

export function isRepositoryName(text: string): boolean {
  return text.length <= maxRepositoryLength && repositoryForm.test(text);
}

function cutDigest(text: string): { rest: string; digest?: string } {
  const at = text.indexOf("@");
  if (at < 0) return { rest: text };
  const digest = text.slice(at + 1);
  if (!isDigest(digest))
    throw invalid(text, `"${digest}" is not a digest such as sha256: with 64 hexadecimal digits`);
  return { rest: text.slice(0, at), digest };
}

function checkRepository(text: string, repository: string): void {
  if (isRepositoryName(repository)) return;
  throw invalid(
    text,
    repository === ""
      ? "it names no repository"
      : `the repository "${repository}" is not made of lower-case letters, digits and single separators`,
  );
}

function invalid(text: string, reason: string): AppError {
  return new AppError("invalid_request", `"${text}" is not a reference of a registry: ${reason}`, {
    details: { field: "reference", value: text },
    remedy: { action: "advice", text: "Write HOST/REPOSITORY:TAG, as in ghcr.io/team/python-numpy:v1." },
  });
}
