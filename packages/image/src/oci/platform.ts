/** Chooses the image for this host from an index. Pure. */
import { DocumentFault, type ConfigDocument, type Descriptor } from "./manifest.ts";

const architectures: Readonly<Record<string, string>> = { x64: "amd64", arm64: "arm64" };

export function hostArchitecture(arch: string = process.arch): string {
  return architectures[arch] ?? arch;
}

/** The entry for Linux on this architecture. Entries without a platform count if there is only one. */
export function choosePlatform(
  entries: readonly Descriptor[],
  architecture = hostArchitecture(),
): Descriptor {
  const [only] = entries;
  if (only && entries.length === 1 && !only.platform) return only;
  const fitting = entries.find(
    ({ platform }) => platform?.os === "linux" && platform.architecture === architecture,
  );
  if (fitting) return fitting;
  const names = entries.flatMap(({ platform }) =>
    platform && platform.os !== "unknown" ? [platformName(platform)] : [],
  );
  const exists = names.length === 0 ? "it names no platform" : `it is for ${[...new Set(names)].join(", ")}`;
  throw new DocumentFault(`it has no image for linux/${architecture}; ${exists}`);
}

/** Throws DocumentFault if a config is for another machine. */
export function requirePlatform({ os, architecture }: ConfigDocument, own = hostArchitecture()): void {
  const isFitting = (!os || os === "linux") && (!architecture || architecture === own);
  if (!isFitting)
    throw new DocumentFault(`it is for ${os || "linux"}/${architecture || "?"}, not for linux/${own}`);
}

function platformName({ os, architecture, variant }: NonNullable<Descriptor["platform"]>): string {
  return `${os}/${architecture}${variant ? `/${variant}` : ""}`;
}
