/** What describes a snapshot: the packages of its guest and its recipe, also after a branch and a copy. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { generateKeyPairSync } from "node:crypto";
import { readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { runProgram } from "@forkd/base";
import { readRecipe, unpackRecipe } from "@forkd/image";
import { rejectsWith } from "@forkd/test-support";
import { startDaemon, withDaemons, type TestDaemon } from "../support/daemon.ts";
import { cliPath } from "../support/places.ts";

let daemon: TestDaemon;
before(async () => {
  daemon = await startDaemon({ snapshots: ["python", "tiny"] });
});
after(() => daemon[Symbol.asyncDispose]());

type Sbom = {
  packages: { name: string; externalRefs?: { referenceLocator: string }[] }[];
  creationInfo: { created: string };
};

async function sbomOf(tag: string): Promise<Sbom> {
  return (await daemon.forkd.snapshots.sbom(tag)) as Sbom;
}

function locators({ packages }: Sbom): string[] {
  return packages.flatMap(
    ({ externalRefs }) => externalRefs?.map(({ referenceLocator }) => referenceLocator) ?? [],
  );
}

test("a build lists the packages of its guest, and a branch and a copy have the list too", async () => {
  const { forkd } = daemon;
  const sbom = await sbomOf("python");
  const found = locators(sbom);
  assert.ok(
    found.some((each) => /^pkg:deb\/debian\/libc6@[^?]+\?arch=amd64$/.test(each)),
    found.join("\n"),
  );
  assert.ok(found.some((each) => each.startsWith("pkg:pypi/numpy@")));
  const { manifest } = await forkd.snapshots.info("python");
  const made = Date.parse(sbom.creationInfo.created) / 1000;
  assert.equal(made, manifest["created_at_unix"]);
  await using child = await forkd.create("python");
  await child.branch({ tag: "branched" });
  await child.kill();
  await forkd.snapshots.compact("branched", "copied");
  for (const tag of ["branched", "copied"]) assert.deepEqual(await sbomOf(tag), sbom);
  await forkd.snapshots.info("copied", { verify: true });
});

test("a guest without a package manager has a list with its kernel", async () => {
  const { packages } = await sbomOf("tiny");
  assert.deepEqual(
    packages.map(({ name }) => name),
    ["tiny", "linux"],
  );
});

test("the recipe of a build is kept, and is the same recipe", async (t) => {
  const target = join(daemon.dir, "recipe");
  const archive = await readFile(join(daemon.dataDir, "snapshots", "python", "recipe.tar"));
  await unpackRecipe(archive, target);
  const { manifest } = await daemon.forkd.snapshots.info("python");
  const { digest } = manifest["recipe"] as { digest: string };
  assert.equal((await readRecipe(target)).digest, digest);
  t.diagnostic(`${archive.length} bytes`);
});

test("forkd sbom prints a table, SPDX with --json, and writes a file", async () => {
  const run = (...args: string[]) =>
    runProgram(process.execPath, [cliPath, "sbom", "python", ...args], { env: daemon.env });
  assert.match((await run()).stdout, /^libc6 +\S+ +deb$/m);
  const document = await sbomOf("python");
  assert.deepEqual(JSON.parse((await run("--json")).stdout), document);
  const file = join(daemon.dir, "python.spdx.json");
  await run("-o", file);
  const stored = await readFile(join(daemon.dataDir, "snapshots", "python", "sbom.spdx.json"));
  assert.ok((await readFile(file)).equals(stored));
});

test("a changed list is refused, and its snapshot can still be forked", async () => {
  const { forkd, dataDir } = daemon;
  const file = join(dataDir, "snapshots", "copied", "sbom.spdx.json");
  const text = await readFile(file, "utf8");
  await runProgram("cp", ["--remove-destination", "/dev/null", file]);
  await writeFile(file, text.replace("SPDX-2.3", "SPDX-9.9"));
  await rejectsWith(forkd.snapshots.sbom("copied"), "snapshot_corrupt", /sbom\.spdx\.json/);
  await using child = await forkd.create("copied");
  assert.equal((await child.commands.run("echo ok")).stdout, "ok\n");
});

test("pinned keys outlive the daemon, and one that cannot be used stops the next", async () => {
  const { publicKey } = generateKeyPairSync("ed25519");
  const pem = String(publicKey.export({ format: "pem", type: "spki" }));
  const repository = "registry.example.com/team/*";
  await withDaemons([], async (start, dataDir) => {
    const first = await start();
    const pinned = await first.forkd.trust.pin(repository, pem);
    assert.equal(pinned.policy, "require");
    await rejectsWith(first.forkd.trust.pin(repository, "no key"), "invalid_signing_key");
    await rejectsWith(first.forkd.trust.pin("team/python", pem), "invalid_request", /with its registry/);
    await first[Symbol.asyncDispose]();
    const second = await start();
    assert.deepEqual(await second.forkd.trust.list(), [pinned]);
    await second[Symbol.asyncDispose]();
    await writeFile(join(dataDir, "trust.json"), "{}");
    await assert.rejects(start(), /Cannot use .*trust\.json/);
    await rm(join(dataDir, "trust.json"));
  });
});
