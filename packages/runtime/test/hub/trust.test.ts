import assert from "node:assert/strict";
import { createHash, generateKeyPairSync, sign, type KeyObject } from "node:crypto";
import { readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { AppError } from "@forkd/contract";
import { signaturePayload } from "@forkd/contract/wire";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { attachSignature, type SignatureWriter } from "../../src/hub/trust/attach-signature.ts";
import { checkTrust } from "../../src/hub/trust/check-trust.ts";
import { readPublicKey } from "../../src/hub/trust/public-key.ts";
import { signatureTag, withSignature } from "../../src/hub/trust/signature-manifest.ts";
import { TrustList } from "../../src/hub/trust/trust-list.ts";

const repository = "registry.example.com/team/python";
const digest = `sha256:${"a1".repeat(32)}`;
const otherDigest = `sha256:${"b2".repeat(32)}`;

type Pair = { pem: string; privateKey: KeyObject; algorithm: "ed25519" | "p256" };

function makeKey(algorithm: Pair["algorithm"] = "ed25519"): Pair {
  const { publicKey, privateKey } =
    algorithm === "ed25519"
      ? generateKeyPairSync("ed25519")
      : generateKeyPairSync("ec", { namedCurve: "prime256v1" });
  return { pem: String(publicKey.export({ format: "pem", type: "spki" })), privateKey, algorithm };
}

function signText({ privateKey, algorithm }: Pair, text: string): string {
  return sign(algorithm === "ed25519" ? null : "sha256", Buffer.from(text), privateKey).toString("base64");
}

/** What a registry keeps of one repository. */
function repositoryContent(): SignatureWriter & {
  tags: Map<string, Uint8Array>;
  blobs: Map<string, Uint8Array>;
} {
  const tags = new Map<string, Uint8Array>();
  const blobs = new Map<string, Uint8Array>();
  return {
    tags,
    blobs,
    readManifest: async (tag) => tags.get(tag),
    readBlob: async ({ digest: name }) => blobs.get(name) ?? assert.fail(`no blob ${name}`),
    writeBlob: async ({ digest: name, bytes }) => void blobs.set(name, bytes),
    writeManifest: async (tag, { bytes }) => void tags.set(tag, bytes),
  };
}

async function signedBy(pair: Pair, content = repositoryContent(), subject = digest) {
  const signature = signText(pair, signaturePayload(repository, subject));
  await attachSignature(content, { repository, digest: subject, signature, publicKey: pair.pem });
  return content;
}

function trustIn(...pairs: Pair[]) {
  return { policy: "require" as const, keys: pairs.map(({ pem }) => readPublicKey(pem)) };
}

for (const algorithm of ["ed25519", "p256"] as const) {
  test(`a signature by a pinned key (${algorithm}) is accepted`, async () => {
    const pair = makeKey(algorithm);
    const content = await signedBy(pair);
    const report = await checkTrust(trustIn(makeKey(), pair), { repository, digest }, content);
    assert.deepEqual([report.outcome, report.signer], ["signed", readPublicKey(pair.pem).fingerprint]);
  });
}

test("what has no signature is refused as signature_missing", async () => {
  const error = await rejectsWith(
    checkTrust(trustIn(makeKey()), { repository, digest }, repositoryContent()),
    "signature_missing",
    /^registry\.example\.com\/team\/python@sha256:a1.* has no signature$/,
  );
  assert.deepEqual(error.remedy, { action: "pin_key", repository });
});

/** The error of a check that requires a signature by `pair`. */
async function refusal(content: SignatureWriter, pair: Pair): Promise<AppError> {
  return rejectsWith(checkTrust(trustIn(pair), { repository, digest }, content), "signature_invalid");
}

test("a signature by another key is refused as wrong_key", async () => {
  const error = await refusal(await signedBy(makeKey()), makeKey());
  assert.equal(error.details["reason"], "wrong_key");
});

test("a signature of another digest under this tag is refused as other_digest", async () => {
  const pair = makeKey();
  const content = await signedBy(pair, repositoryContent(), otherDigest);
  content.tags.set(signatureTag(digest), content.tags.get(signatureTag(otherDigest)) ?? assert.fail());
  const error = await refusal(content, pair);
  assert.equal(error.details["reason"], "other_digest");
  assert.match(error.message, /the signature is for sha256:b2/);
});

test("a payload that the registry changed is refused as tampered_payload", async () => {
  const pair = makeKey();
  const content = await signedBy(pair);
  const payload = signaturePayload(repository, digest);
  const name = `sha256:${createHash("sha256").update(payload).digest("hex")}`;
  content.blobs.set(name, Buffer.from(payload.replace("python", "pythom")));
  assert.equal((await refusal(content, pair)).details["reason"], "tampered_payload");
});

test("a payload that was changed with its digest is refused as wrong_key", async () => {
  const pair = makeKey();
  const payload = signaturePayload(repository, digest);
  const signature = signText(pair, signaturePayload(repository, otherDigest));
  const content = repositoryContent();
  const made = withSignature(undefined, { payload, signature }) ?? assert.fail();
  for (const blob of made.blobs) content.blobs.set(blob.digest, blob.bytes);
  content.tags.set(signatureTag(digest), made.manifest);
  assert.equal((await refusal(content, pair)).details["reason"], "wrong_key");
});

test("a signed text that is not about a manifest is refused as malformed_payload", async () => {
  const pair = makeKey();
  for (const payload of ["not JSON", "{}", signaturePayload(repository, digest).replace("cosign ", "")]) {
    const content = repositoryContent();
    const made = withSignature(undefined, { payload, signature: signText(pair, payload) }) ?? assert.fail();
    for (const blob of made.blobs) content.blobs.set(blob.digest, blob.bytes);
    content.tags.set(signatureTag(digest), made.manifest);
    assert.equal((await refusal(content, pair)).details["reason"], "malformed_payload", payload);
  }
});

test("a manifest of signatures that cannot be read is refused", async () => {
  const pair = makeKey();
  for (const bytes of ["", "[]", '{"schemaVersion":2}', '{"schemaVersion":2,"config":{},"layers":"x"}']) {
    const content = repositoryContent();
    content.tags.set(signatureTag(digest), Buffer.from(bytes));
    assert.equal((await refusal(content, pair)).details["reason"], "malformed_signature", bytes);
  }
});

test("one good signature among others is enough, and each is kept once", async () => {
  const [first, second] = [makeKey(), makeKey("p256")];
  const content = await signedBy(first);
  await signedBy(second, content);
  const before = content.tags.get(signatureTag(digest));
  await signedBy(first, content);
  assert.deepEqual(content.tags.get(signatureTag(digest)), before);
  for (const pair of [first, second])
    assert.equal((await checkTrust(trustIn(pair), { repository, digest }, content)).outcome, "signed");
});

test("attachSignature() refuses a signature that its own key does not verify", async () => {
  const content = repositoryContent();
  const { pem: publicKey } = makeKey();
  const signature = signText(makeKey(), signaturePayload(repository, digest));
  const made = { repository, digest, publicKey };
  await rejectsWith(attachSignature(content, { ...made, signature }), "signature_invalid");
  await rejectsWith(
    attachSignature(content, { ...made, signature: "%%" }),
    "signature_invalid",
    /not base64/,
  );
  assert.equal(content.tags.size, 0);
});

test("warn reports what require refuses, and off reads nothing", async () => {
  const keys = [readPublicKey(makeKey().pem)];
  const subject = { repository, digest };
  const unsigned = await checkTrust({ policy: "warn", keys: [] }, subject, repositoryContent());
  assert.deepEqual(
    [unsigned.outcome, unsigned.text],
    ["unsigned", `${repository}@${digest} has no signature`],
  );
  const signed = await signedBy(makeKey());
  const unpinned = await checkTrust({ policy: "warn", keys: [] }, subject, signed);
  assert.match(unpinned.text, /is signed, but no key is pinned for it/);
  assert.equal((await checkTrust({ policy: "warn", keys }, subject, signed)).outcome, "untrusted");
  const broken = {
    readManifest: () => Promise.reject(new Error("connection refused")),
    readBlob: () => assert.fail(),
  };
  const unread = await checkTrust({ policy: "warn", keys }, subject, broken);
  assert.deepEqual([unread.outcome, unread.text], ["unchecked", "connection refused"]);
  await assert.rejects(checkTrust({ policy: "require", keys }, subject, broken), /connection refused/);
  assert.equal((await checkTrust({ policy: "off", keys }, subject, broken)).outcome, "unchecked");
});

function keyFault(text: string): unknown {
  try {
    readPublicKey(text);
  } catch (error) {
    assert.ok(error instanceof AppError && error.code === "invalid_signing_key", String(error));
    return error.details["reason"];
  }
  return assert.fail(`accepted ${text}`);
}

test("readPublicKey() refuses what is not one public key of a supported algorithm", () => {
  const { pem, privateKey } = makeKey();
  assert.equal(keyFault(""), "malformed");
  assert.equal(keyFault("ssh-ed25519 AAAA"), "malformed");
  assert.equal(keyFault(pem + pem), "malformed");
  assert.equal(keyFault(pem.replace(/\n.*\n/, "\nAAAA\n")), "malformed");
  assert.equal(keyFault(pem.replaceAll("PUBLIC KEY", "CERTIFICATE")), "malformed");
  assert.equal(keyFault(" ".repeat(9000)), "malformed");
  assert.equal(keyFault(String(privateKey.export({ format: "pem", type: "pkcs8" }))), "private_key");
  const p384 = generateKeyPairSync("ec", { namedCurve: "secp384r1" }).publicKey;
  assert.equal(keyFault(String(p384.export({ format: "pem", type: "spki" }))), "unknown_algorithm");
  const rsa = generateKeyPairSync("rsa", { modulusLength: 2048 }).publicKey;
  assert.equal(keyFault(String(rsa.export({ format: "pem", type: "spki" }))), "unknown_algorithm");
});

test("a pinned key makes the policy require, and the most specific entry decides", async (t) => {
  const path = join(await temporaryDirectory(t), "trust.json");
  const list = await TrustList.open(path);
  const [team, one] = [makeKey(), makeKey("p256")];
  assert.deepEqual(list.for(repository), { policy: "warn", keys: [] });
  await list.set({ repository: "*", policy: "off" });
  await list.set({ repository: "registry.example.com/team/*", public_key: team.pem });
  await list.set({ repository, public_key: one.pem, policy: "warn" });
  for (const each of [list, await TrustList.open(path)]) {
    assert.deepEqual(
      each.list().map((entry) => [entry.repository, entry.policy, entry.is_set, entry.keys.length]),
      [
        [repository, "warn", true, 1],
        ["registry.example.com/team/*", "require", false, 1],
        ["*", "off", true, 0],
      ],
    );
    assert.equal(each.for(repository).keys[0]?.algorithm, "ecdsa-p256");
    assert.equal(each.for("registry.example.com/team/node").policy, "require");
    assert.equal(each.for("registry.example.com/teams/node").policy, "off");
  }
  assert.equal((await stat(path)).mode & 0o777, 0o600);
  assert.equal((await list.set({ repository, policy: null })).policy, "require");
});

test("a key is asked for whatever spelling of the repository it was pinned for", async (t) => {
  const path = join(await temporaryDirectory(t), "trust.json");
  const list = await TrustList.open(path);
  const cases: [string, string][] = [
    ["index.docker.io/team/tool", "docker.io/team/tool"],
    ["docker.io/python", "docker.io/library/python"],
    ["ghcr.io:443/team/*", "ghcr.io/team/node"],
    ["registry.example.com", "registry.example.com/any/thing"],
  ];
  const { pem } = makeKey();
  for (const [pinned, pulled] of cases) {
    await list.set({ repository: pinned, public_key: pem });
    assert.equal(list.for(pulled).policy, "require", pinned);
  }
  const written = await readFile(path, "utf8");
  assert.ok(!written.includes("index.docker.io"));
  for (const [pinned] of cases) await list.remove({ repository: pinned });
  assert.deepEqual(list.list(), []);
});

test("spellings of one repository in a file are one entry", async (t) => {
  const path = join(await temporaryDirectory(t), "trust.json");
  const list = await TrustList.open(path);
  await list.set({ repository: "ghcr.io/a", public_key: makeKey().pem });
  await list.set({ repository: "ghcr.io/b", public_key: makeKey().pem });
  const text = await readFile(path, "utf8");
  await writeFile(path, text.replace("ghcr.io/b", "ghcr.io:443/a"));
  const read = await TrustList.open(path);
  assert.deepEqual(
    read.list().map((entry) => [entry.repository, entry.keys.length]),
    [["ghcr.io/a", 2]],
  );
});

test("keys are pinned once and removed by fingerprint; an empty entry goes", async (t) => {
  const path = join(await temporaryDirectory(t), "trust.json");
  const list = await TrustList.open(path);
  const [first, second] = [makeKey(), makeKey()];
  await list.set({ repository, public_key: first.pem });
  await list.set({ repository, public_key: first.pem.replace("\n", "\r\n") });
  const { keys } = await list.set({ repository, public_key: second.pem });
  assert.equal(keys.length, 2);
  const unknown = `sha256:${"0".repeat(64)}`;
  await rejectsWith(list.remove({ repository, fingerprint: unknown }), "not_found", /is not pinned/);
  await rejectsWith(list.remove({ repository: "other.example/x" }), "not_found");
  for (const { fingerprint } of keys) await list.remove({ repository, fingerprint });
  assert.deepEqual((await TrustList.open(path)).list(), []);
  await rejectsWith(list.set({ repository, public_key: "no key" }), "invalid_signing_key");
  assert.deepEqual(list.list(), []);
});

test("a trust list that cannot be used stops the daemon instead of trusting everybody", async (t) => {
  const path = join(await temporaryDirectory(t), "trust.json");
  const list = await TrustList.open(path);
  await list.set({ repository, public_key: makeKey().pem });
  const good = await readFile(path, "utf8");
  for (const text of [
    "",
    "{}",
    good.replace("BEGIN PUBLIC", "BEGIN PRIVATE"),
    good.replace('"version": 1', '"version": 2'),
  ]) {
    await writeFile(path, text);
    await rejectsWith(TrustList.open(path), "host_not_ready", /^Cannot use .*trust\.json: /);
  }
});
