/** What the config of an image says about running it, checked. Pure. */
import { posix } from "node:path";
import type { ConfigDocument } from "./manifest.ts";

export type ImageConfig = {
  env: Record<string, string>;
  /** absolute path */
  workdir: string;
  /** as in USER: a name or number, perhaps with a group; "": root */
  user: string;
  entrypoint: string[];
  cmd: string[];
  /** such as `8080/tcp` */
  ports: string[];
  volumes: string[];
  labels: Record<string, string>;
};

const maxLabelBytes = 65_536;

const hasNul = (text: string): boolean => text.includes("\0");

export function imageConfig({ config }: ConfigDocument): ImageConfig {
  const env: Record<string, string> = {};
  for (const entry of config?.Env ?? []) {
    const at = entry.indexOf("=");
    if (at > 0 && !hasNul(entry)) env[entry.slice(0, at)] = entry.slice(at + 1);
  }
  return {
    env,
    workdir: guestPath(config?.WorkingDir ?? ""),
    user: hasNul(config?.User ?? "") ? "" : (config?.User ?? ""),
    entrypoint: [...(config?.Entrypoint ?? [])],
    cmd: [...(config?.Cmd ?? [])],
    ports: Object.keys(config?.ExposedPorts ?? {}).sort(),
    volumes: Object.keys(config?.Volumes ?? {}).sort(),
    labels: boundedLabels(config?.Labels ?? {}),
  };
}

/** The first of them: labels are for people, and a manifest keeps them. */
function boundedLabels(labels: Readonly<Record<string, string>>): Record<string, string> {
  let bytes = 0;
  return Object.fromEntries(
    Object.entries(labels).filter(([key, value]) => (bytes += key.length + value.length) <= maxLabelBytes),
  );
}

/** Relative to the root, as container runtimes read it. */
function guestPath(path: string): string {
  return hasNul(path) ? "/" : posix.join("/", path).replace(/(.)\/$/, "$1");
}
