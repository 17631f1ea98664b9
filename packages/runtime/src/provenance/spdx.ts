/** The packages of a guest as an SPDX 2.3 document (docs/spec/sbom.md). Pure; equal facts give equal bytes. */
import { createHash } from "node:crypto";
import type { ManifestFacts } from "@forkd/store";
import type { GuestPackages } from "./collect-packages.ts";
import type { InstalledPackage } from "./package-list.ts";

const snapshotRef = "SPDXRef-Snapshot";

export function spdxDocument(tag: string, facts: ManifestFacts, guest: GuestPackages): string {
  const { packages, release } = guest;
  const unknown = { downloadLocation: "NOASSERTION", filesAnalyzed: false } as const;
  const described = packages.map((each, index) => ({
    SPDXID: `SPDXRef-Package-${index + 1}`,
    name: each.name,
    versionInfo: each.version,
    ...unknown,
    externalRefs: [
      {
        referenceCategory: "PACKAGE-MANAGER",
        referenceType: "purl",
        referenceLocator: packageUrl(each, release),
      },
    ],
  }));
  const kernel = {
    SPDXID: "SPDXRef-Kernel",
    name: "linux",
    versionInfo: facts.kernel.version,
    ...unknown,
    comment: `the kernel that the guest was booted with, digest ${facts.kernel.digest}`,
  };
  const snapshot = {
    SPDXID: snapshotRef,
    name: tag,
    ...unknown,
    primaryPackagePurpose: "OPERATING-SYSTEM",
    comment: provenanceText(facts, guest),
  };
  const contained = [kernel, ...described];
  const document = {
    spdxVersion: "SPDX-2.3",
    dataLicense: "CC0-1.0",
    SPDXID: "SPDXRef-DOCUMENT",
    name: tag,
    documentNamespace: "",
    creationInfo: {
      created: new Date(facts.created_at_unix * 1000).toISOString().replace(/\.\d+Z$/, "Z"),
      creators: [`Tool: forkd-${facts.forkd_version}`],
    },
    packages: [snapshot, ...contained],
    relationships: [
      relationship("SPDXRef-DOCUMENT", "DESCRIBES", snapshotRef),
      ...contained.map(({ SPDXID }) => relationship(snapshotRef, "CONTAINS", SPDXID)),
    ],
  };
  // A name for this content and no other.
  document.documentNamespace = `urn:uuid:${uuidOf(JSON.stringify(document))}`;
  return `${JSON.stringify(document, undefined, 2)}\n`;
}

function relationship(from: string, type: string, to: string): object {
  return { spdxElementId: from, relationshipType: type, relatedSpdxElement: to };
}

function provenanceText(facts: ManifestFacts, { skipped, release }: GuestPackages): string {
  const { engine, machine, recipe } = facts;
  const parts = [
    recipe ? `recipe ${recipe.name}, digest ${recipe.digest}` : "no recipe",
    `root file system, digest ${facts.rootfs.digest}`,
    `${engine.name} ${engine.version}`,
    `${machine.type} with CPU ${machine.cpu} on ${machine.accelerator}`,
    ...(release.id === undefined ? [] : [`guest ${release.id} ${release.version ?? ""}`.trim()]),
    ...(skipped === 0 ? [] : [`${skipped} entries of package databases were left out`]),
  ];
  return parts.join("; ");
}

/** A package URL: `pkg:deb/debian/libc6@2.36-9?arch=amd64` */
function packageUrl(
  { type, name, version, architecture }: InstalledPackage,
  { id }: { id?: string },
): string {
  const encode = (text: string) => encodeURIComponent(text).replaceAll("%3A", ":");
  const path = name.split("/").map(encode).join("/");
  const isSystem = type === "deb" || type === "apk";
  const namespace = isSystem ? `${id ?? (type === "deb" ? "debian" : "alpine")}/` : "";
  const qualifier = architecture === undefined ? "" : `?arch=${encode(architecture)}`;
  return `pkg:${type}/${namespace}${path}@${encode(version)}${qualifier}`;
}

/** A UUID of version 8, which is free to be made from a digest. */
function uuidOf(text: string): string {
  const bytes = createHash("sha256").update(text).digest().subarray(0, 16);
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x80;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  const hex = bytes.toString("hex");
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}
