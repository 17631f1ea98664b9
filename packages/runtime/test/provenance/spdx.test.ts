import assert from "node:assert/strict";
import { test } from "node:test";
import type { ManifestFacts } from "@forkd/store";
import { PackageList, readRelease } from "../../src/provenance/package-list.ts";
import { spdxDocument } from "../../src/provenance/spdx.ts";

const facts: ManifestFacts = {
  forkd_version: "0.1.0",
  created_at_unix: 1_700_000_000,
  origin: { kind: "build" },
  agent_protocol: 1,
  engine: { name: "qemu", version: "7.2.0" },
  machine: {
    type: "microvm",
    cpu: "max",
    accelerator: "tcg",
    vcpus: 1,
    memory_mib: 128,
    devices: [],
    tsc_khz: 0,
  },
  kernel: { digest: "k", version: "6.1.0", command_line: "" },
  initramfs: { digest: "i" },
  rootfs: { digest: "r" },
  recipe: { name: "python", digest: "abc" },
  env: {},
  kernels: [],
};

const dpkgStatus = `Package: libc6
Status: install ok installed
Architecture: amd64
Version: 2.36-9+deb12u10
Description: C library
 Version: 9.9 in a continuation line

Package: gone
Status: deinstall ok config-files
Architecture: amd64
Version: 1.0

Package: python3-numpy
Status: install ok installed
Architecture: amd64
Version: 1:1.24.2-1
`;

function named(list: PackageList): string[] {
  return list.sorted.map(({ type, name, version }) => `${type} ${name} ${version}`);
}

test("addDpkg() lists installed packages only, and those of distroless images", () => {
  const list = new PackageList();
  list.addDpkg(dpkgStatus);
  list.addDpkg("Package: base-files\nVersion: 12.4\nArchitecture: amd64\n");
  assert.deepEqual(named(list), [
    "deb base-files 12.4",
    "deb libc6 2.36-9+deb12u10",
    "deb python3-numpy 1:1.24.2-1",
  ]);
  assert.equal(list.skipped, 0);
});

test("packages of apk, Python and npm are read, each once", () => {
  const list = new PackageList();
  list.addApk("C:Q1abc=\nP:musl\nV:1.2.4-r2\nA:x86_64\n\nP:busybox\nV:1.36.1-r5\nA:x86_64\n\n");
  for (const entry of [
    "numpy-1.26.4.dist-info",
    "ruamel.yaml-0.18.6.dist-info",
    "six-1.16.0-py3.11.egg-info",
  ])
    list.addPython(entry);
  for (const entry of ["numpy", "numpy.libs", "__pycache__", "x.dist-info"]) list.addPython(entry);
  list.addNode('{"name":"@types/node","version":"20.1.0"}');
  list.addNodeLock(
    '{"packages":{"":{},"node_modules/a":{"version":"1.0.0"},"node_modules/a/node_modules/b":{"version":"2.0.0"}}}',
  );
  list.addPython("numpy-1.26.4.dist-info");
  assert.deepEqual(named(list), [
    "apk busybox 1.36.1-r5",
    "apk musl 1.2.4-r2",
    "npm @types/node 20.1.0",
    "npm a 1.0.0",
    "npm b 2.0.0",
    "pypi numpy 1.26.4",
    "pypi ruamel-yaml 0.18.6",
    "pypi six 1.16.0",
  ]);
});

test("what no package manager writes is left out and counted", () => {
  const list = new PackageList();
  list.addDpkg(
    "Package: <script>\nVersion: 1\n\nPackage: ok\nVersion: 1;rm\n\nPackage: ok\nVersion: 1\nArchitecture: A/B\n",
  );
  list.addNode("[]");
  list.addNode("{");
  list.addNode('{"name":"x","version":{"a":1}}');
  list.addNodeLock("null");
  list.addApk(`P:${"x".repeat(300)}\nV:1\n`);
  assert.deepEqual([list.sorted, list.skipped], [[], 8]);
});

test("a guest cannot make the list longer than its bound", () => {
  const list = new PackageList();
  for (let index = 0; index < 20_010; index++) list.add({ type: "deb", name: `p${index}`, version: "1" });
  assert.deepEqual([list.sorted.length, list.skipped], [20_000, 10]);
});

test("readRelease() keeps only plain names", () => {
  assert.deepEqual(readRelease('NAME="Debian"\nID=debian\nVERSION_ID="12"\n'), {
    id: "debian",
    version: "12",
  });
  assert.deepEqual(readRelease("ID=../../x\nVERSION_ID=$(id)\n"), {});
});

type Document = {
  SPDXID: string;
  documentNamespace: string;
  creationInfo: { created: string };
  packages: {
    SPDXID: string;
    name: string;
    versionInfo?: string;
    comment?: string;
    externalRefs?: { referenceLocator: string }[];
  }[];
  relationships: { spdxElementId: string; relationshipType: string; relatedSpdxElement: string }[];
};

function documentOf(...types: ("deb" | "npm" | "pypi")[]): { text: string; document: Document } {
  const list = new PackageList();
  if (types.includes("deb")) list.addDpkg(dpkgStatus);
  if (types.includes("npm")) list.addNode('{"name":"@types/node","version":"20.1.0"}');
  if (types.includes("pypi")) list.addPython("numpy-1.26.4.dist-info");
  const guest = { packages: list.sorted, skipped: list.skipped, release: { id: "debian", version: "12" } };
  const text = spdxDocument("python", facts, guest);
  return { text, document: JSON.parse(text) as Document };
}

test("the document follows the rules of SPDX 2.3", () => {
  const { document } = documentOf("deb", "npm", "pypi");
  const ids = document.packages.map(({ SPDXID }) => SPDXID);
  assert.equal(new Set(ids).size, ids.length);
  for (const id of [...ids, document.SPDXID]) assert.match(id, /^SPDXRef-[A-Za-z0-9.-]+$/);
  assert.match(
    document.documentNamespace,
    /^urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/,
  );
  assert.equal(document.creationInfo.created, "2023-11-14T22:13:20Z");
  for (const { spdxElementId, relatedSpdxElement } of document.relationships)
    for (const id of [spdxElementId, relatedSpdxElement])
      assert.ok([...ids, document.SPDXID].includes(id), id);
  assert.equal(
    document.relationships.filter(({ relationshipType }) => relationshipType === "DESCRIBES").length,
    1,
  );
  assert.deepEqual(
    document.packages.flatMap(
      ({ externalRefs }) => externalRefs?.map(({ referenceLocator }) => referenceLocator) ?? [],
    ),
    [
      "pkg:deb/debian/libc6@2.36-9%2Bdeb12u10?arch=amd64",
      "pkg:deb/debian/python3-numpy@1:1.24.2-1?arch=amd64",
      "pkg:npm/%40types/node@20.1.0",
      "pkg:pypi/numpy@1.26.4",
    ],
  );
  assert.match(
    document.packages[0]?.comment ?? "",
    /recipe python, digest abc; .*qemu 7\.2\.0; microvm with CPU max on tcg/,
  );
  assert.equal(document.packages[1]?.versionInfo, "6.1.0");
});

test("equal facts give equal bytes, and other packages another namespace", () => {
  assert.equal(documentOf("deb", "npm").text, documentOf("deb", "npm").text);
  assert.notEqual(documentOf("deb").document.documentNamespace, documentOf("npm").document.documentNamespace);
});
