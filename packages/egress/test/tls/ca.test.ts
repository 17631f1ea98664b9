import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { X509Certificate } from "node:crypto";
import { chmod, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { promisify } from "node:util";
import { test } from "node:test";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { InstallationCa } from "../../src/tls/ca.ts";
import { encodeInteger, encodeOid, encodeTime } from "../../src/tls/der.ts";

const dayMs = 24 * 3_600_000;

async function openssl(...args: string[]): Promise<string> {
  const { stdout } = await promisify(execFile)("openssl", args, { timeout: 60_000 });
  return stdout;
}

test("DER: numbers, object identifiers and times have their shortest form", () => {
  assert.equal(encodeInteger(Buffer.from([0, 0, 1])).toString("hex"), "020101");
  assert.equal(encodeInteger(Buffer.from([0x80])).toString("hex"), "02020080");
  assert.equal(encodeInteger(Buffer.from([0])).toString("hex"), "020100");
  assert.equal(encodeOid("1.2.840.10045.4.3.2").toString("hex"), "06082a8648ce3d040302");
  assert.equal(encodeOid("2.5.29.17").toString("hex"), "0603551d11");
  assert.equal(encodeTime(new Date("2049-12-31T23:59:59.5Z")).subarray(2).toString(), "491231235959Z");
  assert.equal(encodeTime(new Date("2050-01-01T00:00:00Z")).subarray(2).toString(), "20500101000000Z");
});

test("a leaf passes the strict checks of OpenSSL for its own name only", async (t) => {
  const dir = await temporaryDirectory(t);
  const ca = await InstallationCa.open(join(dir, "net"));
  const caFile = join(dir, "ca.pem");
  await writeFile(caFile, ca.certificatePem());
  const long = `${"a".repeat(60)}.${"b".repeat(60)}.example.com`;
  for (const name of ["api.example.com", "localhost", "xn--bcher-kva.example", "a_b.example.com", long]) {
    const file = join(dir, "leaf.pem");
    await writeFile(file, ca.leaf(name).cert);
    const verify = ["verify", "-x509_strict", "-purpose", "sslserver", "-CAfile", caFile];
    assert.match(await openssl(...verify, "-verify_hostname", name, file), /: OK/);
    await assert.rejects(openssl(...verify, "-verify_hostname", "other.example.com", file), /hostname/i);
  }
  assert.match(await openssl("verify", "-x509_strict", "-check_ss_sig", "-CAfile", caFile, caFile), /: OK/);
});

test("the certificates have the extensions and times that clients expect", async (t) => {
  const dir = await temporaryDirectory(t);
  const ca = await InstallationCa.open(dir);
  const leafFile = join(dir, "leaf.pem");
  await writeFile(leafFile, ca.leaf("api.example.com").cert);
  const leaf = await openssl("x509", "-in", leafFile, "-noout", "-text");
  for (const part of [
    /Version: 3/,
    /Signature Algorithm: ecdsa-with-SHA256/,
    /NIST CURVE: P-256/,
    /Basic Constraints: critical\s+CA:FALSE/,
    /Key Usage: critical\s+Digital Signature\n/,
    /Extended Key Usage:\s+TLS Web Server Authentication\n/,
    /Subject Alternative Name:\s+DNS:api\.example\.com\n/,
    /Subject Key Identifier/,
    /Authority Key Identifier/,
  ])
    assert.match(leaf, part);
  const root = await openssl("x509", "-in", join(dir, "ca.crt"), "-noout", "-text");
  assert.match(root, /Basic Constraints: critical\s+CA:TRUE, pathlen:0/);
  assert.match(root, /Key Usage: critical\s+Certificate Sign, CRL Sign\n/);

  const parsed = new X509Certificate(ca.leaf("api.example.com").cert);
  assert.ok(Date.parse(parsed.validFrom) <= Date.now() - 3_500_000);
  const days = (Date.parse(parsed.validTo) - Date.now()) / dayMs;
  assert.ok(days > 6.9 && days <= 7);
  const serials = ["a.example", "b.example", "c.example"].map(
    (name) => new X509Certificate(ca.leaf(name).cert).serialNumber,
  );
  assert.equal(new Set(serials).size, 3);
});

test("the CA is made once, stays the same and belongs to its owner only", async (t) => {
  const dir = join(await temporaryDirectory(t), "net");
  const [first, second] = await Promise.all([InstallationCa.open(dir), InstallationCa.open(dir)]);
  const third = await InstallationCa.open(dir);
  for (const ca of [first, second, third]) {
    const leaf = new X509Certificate(ca.leaf("x.example").cert);
    assert.ok(leaf.verify(new X509Certificate(third.certificatePem()).publicKey));
    assert.ok(leaf.checkIssued(new X509Certificate(third.certificatePem())));
  }
  assert.equal((await InstallationCa.open(dir)).certificatePem(), third.certificatePem());
  assert.equal((await stat(join(dir, "ca.key"))).mode & 0o777, 0o600);
  assert.equal((await stat(dir)).mode & 0o777, 0o700);
  assert.deepEqual((await readdir(dir)).sort(), ["ca.crt", "ca.key"]);
});

test("two installations have different CAs", async (t) => {
  const dir = await temporaryDirectory(t);
  const one = await InstallationCa.open(join(dir, "1"));
  const other = await InstallationCa.open(join(dir, "2"));
  const leaf = new X509Certificate(one.leaf("x.example").cert);
  assert.ok(!leaf.checkIssued(new X509Certificate(other.certificatePem())));
});

test("a leaf is cached, and made again before it expires or when the clock was set back", async (t) => {
  let now = Date.now();
  const ca = await InstallationCa.open(await temporaryDirectory(t), () => now);
  const first = ca.leaf("x.example").cert;
  assert.equal(ca.leaf("x.example").cert, first);
  assert.equal(ca.contextFor("x.example"), ca.contextFor("x.example"));
  now += 5 * dayMs;
  assert.equal(ca.leaf("x.example").cert, first);
  now += 1.5 * dayMs;
  const second = ca.leaf("x.example").cert;
  assert.notEqual(second, first);
  now -= 30 * dayMs;
  assert.notEqual(ca.leaf("x.example").cert, second);
});

test("a CA near its end gets another certificate of the same key, which verifies the same leaves", async (t) => {
  const dir = await temporaryDirectory(t);
  const old = await InstallationCa.open(dir);
  const key = await readFile(join(dir, "ca.key"), "utf8");
  const later = Date.now() + 9 * 365 * dayMs;
  const renewed = await InstallationCa.open(dir, () => later);
  assert.notEqual(renewed.certificatePem(), old.certificatePem());
  assert.equal(await readFile(join(dir, "ca.key"), "utf8"), key);
  const leaf = new X509Certificate(renewed.leaf("x.example").cert);
  for (const pem of [old.certificatePem(), renewed.certificatePem()])
    assert.ok(leaf.checkIssued(new X509Certificate(pem)));
  assert.ok(Date.parse(new X509Certificate(renewed.certificatePem()).validTo) > later + 3640 * dayMs);
});

test("damaged, foreign, missing and unsafe CA files are reported and not replaced", async (t) => {
  const dir = await temporaryDirectory(t);
  const key = join(dir, "ca.key");
  const crt = join(dir, "ca.crt");
  await InstallationCa.open(dir);
  const good = { key: await readFile(key, "utf8"), crt: await readFile(crt, "utf8") };
  const foreign = join(dir, "foreign");
  await InstallationCa.open(foreign);

  await rm(key);
  await rejectsWith(InstallationCa.open(dir), "host_not_ready", /ca\.key is missing/);
  await writeFile(key, "nonsense", { mode: 0o600 });
  const error = await rejectsWith(InstallationCa.open(dir), "host_not_ready", /does not hold a private key/);
  assert.ok(!error.message.includes("nonsense"));
  await writeFile(key, await readFile(join(foreign, "ca.key")));
  await rejectsWith(InstallationCa.open(dir), "host_not_ready", /do not belong together/);
  await writeFile(key, good.key);
  await chmod(key, 0o644);
  await rejectsWith(InstallationCa.open(dir), "host_not_ready", /other users/);
  await chmod(key, 0o600);
  await writeFile(crt, "nonsense");
  await rejectsWith(InstallationCa.open(dir), "host_not_ready", /does not hold a certificate/);
  assert.equal(await readFile(crt, "utf8"), "nonsense");
  await writeFile(crt, good.crt);
  assert.equal((await InstallationCa.open(dir)).certificatePem(), good.crt);
});
