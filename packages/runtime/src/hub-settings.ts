/** Settings of registries; a part of the table in config.ts. */
import { resolve } from "node:path";
import { errorMessage } from "@forkd/contract";
import { parseReference, parseRegistry } from "@forkd/registry";
import { z } from "zod";
import { runtimeSetting as setting } from "./setting.ts";

const place = z.string().refine((text) => text === "none" || isPlace(text), {
  error: 'must be "none", REGISTRY or REGISTRY/PREFIX, such as ghcr.io/team',
});

function isPlace(text: string): boolean {
  try {
    parseReference(`${text}/x`);
    return /^localhost(?:\/|$)|^[^/]*[.:]/.test(text);
  } catch {
    return false;
  }
}

const mirrors = z
  .union([z.string().transform((text) => text.split(",").map((each) => each.trim())), z.array(z.string())])
  .transform((entries) => entries.filter((entry) => entry !== ""))
  .superRefine((entries, context) => {
    for (const entry of entries) {
      try {
        mirrorOf(entry);
      } catch (error) {
        context.addIssue({ code: "custom", message: errorMessage(error) });
      }
    }
  });

function mirrorOf(entry: string): [registry: string, url: string] {
  const [, registry, url] = /^([^=]+)=(https?:\/\/[^/?#@\s]+)\/?$/.exec(entry) ?? [];
  if (registry === undefined || url === undefined || !URL.canParse(url))
    throw new Error(`"${entry}" is not REGISTRY=URL, such as docker.io=https://mirror.example.com`);
  return [parseRegistry(registry), url];
}

function mirrorsOf(entries: readonly string[]): Record<string, string[]> {
  const found: Record<string, string[]> = {};
  for (const [registry, url] of entries.map(mirrorOf)) (found[registry] ??= []).push(url);
  return found;
}

export const hubSettings = {
  hub_registry: setting({
    schema: place,
    default: "none",
    allowed: '"none", REGISTRY or REGISTRY/PREFIX',
    meaning: "Registry of references without a host, and of searches that name none.",
    becomes: (registry): { hub: { registry: string | undefined } } => ({
      hub: { registry: registry === "none" ? undefined : registry },
    }),
  }),
  registry_mirrors: setting({
    schema: mirrors,
    default: [],
    allowed: "REGISTRY=URL, comma-separated",
    meaning:
      "Mirrors of registries, asked first when something is fetched. They get no credentials; digests are checked as usual.",
    becomes: (entries) => ({ hub: { mirrors: mirrorsOf(entries) } }),
  }),
  registry_ca_file: setting({
    schema: z.string().min(1),
    default: "system",
    allowed: '"system" or a path',
    meaning: "File with certificate authorities of registries, trusted in addition to the usual ones.",
    becomes: (file): { hub: { caFile: string | undefined } } => ({
      hub: { caFile: file === "system" ? undefined : resolve(file) },
    }),
  }),
};
