import assert from "node:assert/strict";
import { createPublicKey, generateKeyPairSync, verify } from "node:crypto";
import { chmod, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { signaturePayload } from "@forkd/contract/wire";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { openSigner } from "../../src/signing/key-store.ts";
import { openFakeDaemon } from "../fake-daemon.ts";
import { runCli } from "../run-cli.ts";

const repository = "registry.example.com/team/python";
const digest = `sha256:${"a1".repeat(32)}`;
const key = {
  fingerprint: `sha256:${"3f".repeat(32)}`,
  algorithm: "ed25519",
  public_key: "",
  pinned_at_unix: 1,
};
const entry = { repository, policy: "require", is_set: false, keys: [key] };
const noPassphrase = () => assert.fail("asked for a passphrase");

test("signing-keys create makes a key that only its owner can read, and show prints its public key", async (t) => {
  const home = await temporaryDirectory(t);
  const env = { XDG_CONFIG_HOME: home };
  const directory = join(home, "forkd", "signing-keys");
  const made = await runCli(["signing-keys", "create"], { env });
  assert.equal(made.code, 0, made.stderr);
  assert.match(made.stdout, /^sha256:[0-9a-f]{64}\n$/);
  assert.equal((await stat(join(directory, "default.key"))).mode & 0o777, 0o600);
  const { stdout: pem } = await runCli(["signing-keys", "show"], { env });
  assert.equal(createPublicKey(pem).asymmetricKeyType, "ed25519");
  const again = await runCli(["signing-keys", "create"], { env });
  assert.equal(again.code, 4);
  assert.match(again.stderr, /the file ".*default\.key" exists/);
  const listed = await runCli(["signing-keys", "ls", "--json"], { env });
  assert.deepEqual(
    (JSON.parse(listed.stdout) as { name: string; fingerprint: string; encrypted: boolean }[]).map(
      ({ name, fingerprint, encrypted }) => [name, `${fingerprint}\n`, encrypted],
    ),
    [["default", made.stdout, false]],
  );
  const signer = await openSigner({ directory, key: "default", askPassphrase: noPassphrase });
  const signature = Buffer.from(signer.sign(repository, digest), "base64");
  assert.ok(verify(null, Buffer.from(signaturePayload(repository, digest)), createPublicKey(pem), signature));
});

test("an encrypted key needs its passphrase", async (t) => {
  const home = await temporaryDirectory(t);
  const directory = join(home, "forkd", "signing-keys");
  await writeFile(join(home, "passphrase"), "open sesame\n");
  const args = ["signing-keys", "create", "ci", "--passphrase-file", join(home, "passphrase")];
  assert.equal((await runCli(args, { env: { XDG_CONFIG_HOME: home } })).code, 0);
  assert.match(await readFile(join(directory, "ci.key"), "utf8"), /BEGIN ENCRYPTED PRIVATE KEY/);
  const open = (text: string) => openSigner({ directory, key: "ci", askPassphrase: async () => text });
  assert.match((await open("open sesame")).fingerprint, /^sha256:/);
  await rejectsWith(open("wrong"), "invalid_signing_key", /the passphrase is wrong/);
});

test("openSigner() refuses files that are not private keys of their owner, and names the reason", async (t) => {
  const directory = await temporaryDirectory(t);
  const file = join(directory, "given.pem");
  const open = (name: string) => openSigner({ directory, key: name, askPassphrase: noPassphrase });
  const write = async (text: string, mode = 0o600) => {
    await writeFile(file, text);
    await chmod(file, mode);
  };
  const missing = await rejectsWith(open("absent"), "file_not_found", /no signing key "absent"/);
  assert.deepEqual(missing.remedy, { action: "make_signing_key" });
  await rejectsWith(open(join(directory, "absent")), "file_not_found", /no such file/);
  await write("not a key");
  await rejectsWith(open(file), "invalid_signing_key", /not a private key in PEM form/);
  await write(
    "-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED SIGSTORE PRIVATE KEY-----\n",
  );
  await rejectsWith(open(file), "invalid_signing_key", /encrypted form of cosign/);
  const pem = (pair: ReturnType<typeof generateKeyPairSync>) =>
    String(pair.privateKey.export({ format: "pem", type: "pkcs8" }));
  await write(pem(generateKeyPairSync("rsa", { modulusLength: 2048 })));
  await rejectsWith(open(file), "invalid_signing_key", /of the type rsa/);
  const good = pem(generateKeyPairSync("ec", { namedCurve: "prime256v1" }));
  await write(good, 0o644);
  await rejectsWith(open(file), "invalid_signing_key", /other users can read it \(mode 644, not 600\)/);
  await write(good);
  assert.match((await open(file)).publicKey, /BEGIN PUBLIC KEY/);
});

test("trust pin sends the public key, and unpin the whole fingerprint", async (t) => {
  const directory = await temporaryDirectory(t);
  await using daemon = await openFakeDaemon({
    "POST /v1/hub/trust": { json: entry },
    "GET /v1/hub/trust": { json: [entry] },
    "DELETE /v1/hub/trust": { json: null },
  });
  const file = join(directory, "team.pub");
  await writeFile(file, "the key");
  const pinned = await runCli(["trust", "pin", repository, "--key", file], daemon);
  assert.deepEqual(pinned, {
    code: 0,
    stdout: `${repository}\n`,
    stderr: `The policy of ${repository} is require, with 1 key.\n`,
  });
  assert.deepEqual(JSON.parse(daemon.asked.at(-1)?.body ?? ""), { repository, public_key: "the key" });
  assert.equal((await runCli(["trust", "policy", repository, "default", "-q"], daemon)).code, 0);
  assert.deepEqual(JSON.parse(daemon.asked.at(-1)?.body ?? ""), { repository, policy: null });
  assert.equal((await runCli(["trust", "policy", repository, "maybe"], daemon)).code, 2);
  const unpinned = await runCli(["trust", "unpin", repository, "3f3f"], daemon);
  assert.equal(unpinned.stdout, `${key.fingerprint}\n`);
  assert.match(daemon.asked.at(-1)?.path ?? "", /fingerprint=sha256%3A3f3f/);
  const table = await runCli(["trust", "ls"], daemon);
  assert.match(table.stdout, /registry\.example\.com\/team\/python +require +sha256:3f/);
  assert.deepEqual(JSON.parse((await runCli(["trust", "ls", "--json"], daemon)).stdout), [entry]);
  const absent = await runCli(["trust", "pin", repository, "--key", join(directory, "absent")], daemon);
  assert.equal(absent.code, 3);
});
