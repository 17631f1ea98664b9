/** Signatures, portability and rebuilding, between two daemons and a real registry. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash, createPublicKey, generateKeyPairSync, verify } from "node:crypto";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test, type TestContext } from "node:test";
import { promisify } from "node:util";
import { rejectsWith, startRegistry, temporaryDirectory, type TestRegistry } from "@forkd/test-support";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { cliPath } from "../support/places.ts";
import { sh } from "../support/sandboxes.ts";

const run = promisify(execFile);
let here: TestDaemon;
/** Another host. Each test has its own repositories, and pins keys only for these. */
let there: TestDaemon;
before(async () => {
  here = await startDaemon({ snapshots: ["tiny"] });
  there = await startDaemon();
});
after(async () => {
  await there[Symbol.asyncDispose]();
  await here[Symbol.asyncDispose]();
});

async function otherHost(t: TestContext, env: Record<string, string> = {}): Promise<TestDaemon> {
  const daemon = await startDaemon({ env });
  t.after(() => daemon[Symbol.asyncDispose]());
  return daemon;
}

/** Runs the CLI of the publisher, with its own keys. */
async function cli(home: string, ...args: string[]): Promise<string> {
  const { stdout } = await run(process.execPath, [cliPath, ...args], {
    env: { ...here.env, XDG_CONFIG_HOME: home },
  });
  return stdout;
}

/** The file of a blob in the data of the registry. */
function blobFile({ directory }: TestRegistry, digest: string): string {
  const hex = digest.replace("sha256:", "");
  return join(directory, "data/docker/registry/v2/blobs/sha256", hex.slice(0, 2), hex, "data");
}

function strangersKey(): string {
  return String(generateKeyPairSync("ed25519").publicKey.export({ format: "pem", type: "spki" }));
}

type SignatureManifest = { layers: { digest: string; annotations: Record<string, string> }[] };

async function signaturesIn(
  registry: TestRegistry,
  repository: string,
  digest: string,
): Promise<SignatureManifest> {
  const tag = `${digest.replace(":", "-")}.sig`;
  const answer = await fetch(`http://${registry.address}/v2/${repository}/manifests/${tag}`, {
    headers: { accept: "application/vnd.oci.image.manifest.v1+json" },
  });
  assert.equal(answer.status, 200);
  return (await answer.json()) as SignatureManifest;
}

test("push --sign signs, a pinned key is required from then on, and others are refused", async (t) => {
  const registry = await startRegistry(t);
  const home = await temporaryDirectory(t);
  const repository = `${registry.address}/team/tiny`;
  await cli(home, "signing-keys", "create");
  const pem = await cli(home, "signing-keys", "show");
  const line = await cli(home, "push", "tiny", `${repository}:v1`, "--sign", "--json", "-q");
  const { push: pushed } = JSON.parse(line) as { push: { digest: string; signed_by: string } };
  const { layers } = await signaturesIn(registry, "team/tiny", pushed.digest);
  const [layer] = layers;
  assert.ok(layer && layers.length === 1);
  const payload = await readFile(blobFile(registry, layer.digest));
  const signature = Buffer.from(layer.annotations["dev.cosignproject.cosign/signature"] ?? "", "base64");
  assert.ok(verify(null, payload, createPublicKey(pem), signature));

  const warned: string[] = [];
  const unpinned = await there.forkd.hub.pull(`${repository}:v1`, {
    tag: "warned",
    onProgress: ({ step, message }) => void (step === "trust" && warned.push(message)),
  });
  assert.equal(unpinned.trust.outcome, "untrusted");
  assert.deepEqual(warned, [
    `${repository} is signed, but no key is pinned for it, so the signature is not verified`,
  ]);
  const stranger = await there.forkd.trust.pin(`${registry.address}/team/*`, strangersKey());
  const refused = await rejectsWith(
    there.forkd.hub.pull(`${repository}:v1`, { tag: "x" }),
    "signature_invalid",
  );
  assert.equal(refused.details["reason"], "wrong_key");
  const skipped = await there.forkd.hub.pull(`${repository}:v1`, { tag: "x", insecureSkipSignature: true });
  assert.equal(skipped.trust.outcome, "unchecked");
  await there.forkd.trust.remove(stranger.repository);
  await there.forkd.trust.pin(repository, pem);
  const pulled = await there.forkd.hub.pull(`${repository}:v1`);
  assert.deepEqual([pulled.trust.outcome, pulled.trust.signer], ["signed", pushed.signed_by]);
});

test("unsigned, changed and moved signatures are refused by name, and nothing is left", async (t) => {
  const registry = await startRegistry(t);
  const home = await temporaryDirectory(t);
  const repository = `${registry.address}/team/tiny`;
  await cli(home, "signing-keys", "create", "team");
  const pem = await cli(home, "signing-keys", "show", "team");
  const { digest = "" } = await here.forkd.hub.push("tiny", `${repository}:v1`);
  const there = await otherHost(t);
  await there.forkd.trust.pin(repository, pem);
  await rejectsWith(
    there.forkd.hub.pull(`${repository}:v1`),
    "signature_missing",
    /tiny@sha256:\w+ has no signature/,
  );

  // Another snapshot, with its own signature, whose signatures someone moves to the first one.
  await using child = await here.forkd.create("tiny");
  await child.branch({ tag: "grown" });
  await child.kill();
  const line = await cli(
    home,
    "push",
    "grown",
    `${repository}:v2`,
    "--sign",
    "--key",
    "team",
    "--json",
    "-q",
  );
  const { push: other } = JSON.parse(line) as { push: { digest: string } };
  const moved = await signaturesIn(registry, "team/tiny", other.digest);
  const put = (manifest: unknown) =>
    fetch(`http://${registry.address}/v2/team/tiny/manifests/${digest.replace(":", "-")}.sig`, {
      method: "PUT",
      body: JSON.stringify(manifest),
      headers: { "content-type": "application/vnd.oci.image.manifest.v1+json" },
    });
  assert.equal((await put(moved)).status, 201);
  const refusal = async () =>
    (await rejectsWith(there.forkd.hub.pull(`${repository}:v1`), "signature_invalid")).details["reason"];
  assert.equal(await refusal(), "other_digest");

  await cli(home, "push", "tiny", `${repository}:v1`, "--sign", "--key", "team");
  const { layers } = await signaturesIn(registry, "team/tiny", digest);
  const own = blobFile(registry, layers.at(-1)?.digest ?? "");
  const good = await readFile(own, "utf8");
  await writeFile(own, good.replace("team/tiny", "team/tinx"));
  await writeFile(blobFile(registry, moved.layers[0]?.digest ?? ""), "gone");
  assert.equal(await refusal(), "tampered_payload");
  assert.deepEqual(await there.forkd.snapshots.list().all(), []);
  await writeFile(own, good);
  assert.equal((await there.forkd.hub.pull(`${repository}:v1`)).trust.outcome, "signed");

  const bad = { signature: "AAAA", publicKey: pem };
  await rejectsWith(here.forkd.hub.sign(repository, digest, bad), "signature_invalid");
  const absent = `sha256:${"0".repeat(64)}`;
  await rejectsWith(here.forkd.hub.sign(repository, absent, bad), "artifact_not_found");
});

test("a key that cannot be used stops a push before it sends anything", async (t) => {
  const registry = await startRegistry(t);
  const home = await temporaryDirectory(t);
  const reference = `${registry.address}/team/unsigned:v1`;
  await assert.rejects(cli(home, "push", "tiny", reference, "--sign"), /There is no signing key "default"/);
  await rejectsWith(here.forkd.hub.pull(reference, { tag: "none" }), "artifact_not_found");
});

test("a snapshot that this host cannot fork is refused before its pages, with what helps", async (t) => {
  const registry = await startRegistry(t);
  const reference = `${registry.address}/team/tiny:v1`;
  await here.forkd.hub.push("tiny", reference);
  const there = await otherHost(t, { FORKD_QEMU_PATH: await otherQemu(t) });
  const error = await rejectsWith(
    there.forkd.hub.pull(reference),
    "snapshot_incompatible",
    /^This host cannot fork /,
  );
  assert.match(error.message, /qemu version: snapshot has \d+\.\d+, this host has 99\.1/);
  assert.equal(error.remedy?.action, "change_setting");
  assert.deepEqual(await there.forkd.snapshots.list().all(), []);
  await rejectsWith(
    there.forkd.hub.pull(reference, { rebuild: true }),
    "snapshot_incompatible",
    /carries no recipe/,
  );
});

/** A QEMU that says that it has another version. */
async function otherQemu(t: TestContext): Promise<string> {
  const dir = await temporaryDirectory(t);
  await mkdir(join(dir, "bin"));
  const path = join(dir, "bin", "qemu-system-x86_64");
  const script =
    '#!/bin/sh\nif [ "$1" = --version ]; then echo "QEMU emulator version 99.1.0"; exit; fi\nexec qemu-system-x86_64 "$@"\n';
  await writeFile(path, script, { mode: 0o755 });
  return path;
}

test("after a pull the clock, the entropy and the identity of children are their own", async (t) => {
  const registry = await startRegistry(t);
  const reference = `${registry.address}/team/tiny:v1`;
  await here.forkd.hub.push("tiny", reference);
  await there.forkd.hub.pull(reference);
  const report = await there.forkd.snapshots.verify("tiny", { only: ["clock", "entropy", "identity"] });
  const found = report.hazards.map(({ id, outcome }) => `${id}: ${outcome}`);
  assert.deepEqual(found.sort(), ["clock: pass", "entropy: pass", "identity: pass"]);
  await using child = await there.forkd.create("tiny");
  assert.equal(await sh(child, "echo ok"), "ok");
});

/** Makes the snapshot one of a host with another QEMU. */
async function pretendOtherHost({ dataDir }: TestDaemon, tag: string): Promise<void> {
  const path = join(dataDir, "snapshots", tag, "manifest.json");
  const manifest = JSON.parse(await readFile(path, "utf8")) as { engine: { version: string } };
  manifest.engine.version = "99.1.0";
  const zeros = "0".repeat(64);
  const text = `${JSON.stringify({ ...manifest, manifest_digest: zeros }, null, 2)}\n`;
  const digest = createHash("sha256").update(text).digest("hex");
  await rm(path);
  await writeFile(path, text.replace(`"manifest_digest": "${zeros}"`, `"manifest_digest": "${digest}"`));
}

test("pull --rebuild builds what this host cannot fork from the recipe that travels along", async (t) => {
  const registry = await startRegistry(t);
  const publisher = await startDaemon({ snapshots: ["small"] });
  t.after(() => publisher[Symbol.asyncDispose]());
  await pretendOtherHost(publisher, "small");
  const reference = `${registry.address}/team/small:v1`;
  await publisher.forkd.hub.push("small", reference);
  const error = await rejectsWith(there.forkd.hub.pull(reference), "snapshot_incompatible");
  assert.deepEqual(error.remedy, { action: "pull_and_rebuild", reference });
  const steps = new Set<string>();
  const pulled = await there.forkd.hub.pull(reference, {
    rebuild: true,
    onProgress: ({ step }) => steps.add(step),
  });
  assert.equal(pulled.rebuilt, true);
  assert.ok(pulled.movedBytes < 1 << 20, String(pulled.movedBytes));
  assert.ok(steps.has("boot"), [...steps].join(" "));
  assert.equal(pulled.snapshot.recipe, "small");
  await using child = await there.forkd.create("small");
  assert.equal(await sh(child, "python3 -c 'print(6 * 7)'"), "42");
});
