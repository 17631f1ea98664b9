/**
 * The CA of an installation. Guests trust it, and nothing outside them does. Its certificate is part of every
 * image, because a warm interpreter has loaded its trust store before the fork and does not look again. So the
 * CA is made once and stays.
 *
 * The names in the certificate follow from the key. A renewed certificate of the same key therefore verifies
 * the same leaves, and images with the old one keep working until it expires.
 */
import {
  createPrivateKey,
  createPublicKey,
  generateKeyPair,
  randomBytes,
  X509Certificate,
  type KeyObject,
} from "node:crypto";
import { link, mkdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { createSecureContext, type SecureContext } from "node:tls";
import { promisify } from "node:util";
import { fsyncPath, isErrno, LruMap, readOwnFile, writeFileAtomic, writeFileBeside } from "@forkd/base";
import { advice, AppError, errorMessage } from "@forkd/contract";
import { readPrivateFile } from "../private-file.ts";
import { keyIdentifier, writeCertificate, type Name } from "./der.ts";

const hourMs = 3_600_000;
const dayMs = 24 * hourMs;
const caDays = 3650;
/** Images live long: a certificate with less time left is renewed when the CA is opened. */
const caRenewDays = 730;
const leafDays = 7;
const leafRenewDays = 1;
const maxLeaves = 1024;

const organization = "forkd";

type Leaf = { readonly key: string; readonly cert: string };

type CachedLeaf = Leaf & {
  readonly context: SecureContext;
  readonly notBefore: number;
  readonly renewAt: number;
};

export class InstallationCa {
  readonly #key: KeyObject;
  readonly #certificate: string;
  /** One for all leaves, and only in memory. */
  readonly #leafKey: KeyObject;
  readonly #leafKeyPem: string;
  readonly #leaves = new LruMap<string, CachedLeaf>(maxLeaves);
  readonly #now: () => number;

  private constructor(key: KeyObject, certificate: string, leafKey: KeyObject, now: () => number) {
    this.#key = key;
    this.#certificate = certificate;
    this.#leafKey = leafKey;
    this.#leafKeyPem = exportKey(leafKey);
    this.#now = now;
  }

  /**
   * Reads the CA from `directory`, or makes it there. Throws `host_not_ready` if its files are damaged, unsafe
   * or incomplete: a new CA would lock existing snapshots out of every host with a secret.
   */
  static async open(directory: string, now: () => number = Date.now): Promise<InstallationCa> {
    const files = { key: join(directory, "ca.key"), certificate: join(directory, "ca.crt") };
    await mkdir(directory, { recursive: true, mode: 0o700 });
    try {
      const certificate = await readCertificate(files.certificate);
      const key = (await readKey(files.key)) ?? (await makeKey(files.key, certificate));
      if (certificate !== undefined) checkPair(certificate, key);
      const isFresh =
        certificate !== undefined && Date.parse(certificate.validTo) - now() > caRenewDays * dayMs;
      const pem = isFresh ? certificate.toString() : await renew(files.certificate, key, now());
      return new InstallationCa(key, pem, await newKey(), now);
    } catch (error) {
      throw new AppError("host_not_ready", `Cannot use the CA in ${directory}: ${errorMessage(error)}`, {
        cause: error,
        details: { directory },
        remedy: advice(
          "Restore ca.key and ca.crt from a backup, or remove both and build all snapshots again.",
        ),
      });
    }
  }

  /** For the trust store of images. */
  certificatePem(): string {
    return this.#certificate;
  }

  leaf(name: string): Leaf {
    const { key, cert } = this.#cached(name);
    return { key, cert };
  }

  /** For a TLS server with this name. */
  contextFor(name: string): SecureContext {
    return this.#cached(name).context;
  }

  #cached(name: string): CachedLeaf {
    const now = this.#now();
    const found = this.#leaves.get(name);
    // The clock may have been set back since.
    if (found !== undefined && now < found.renewAt && now >= found.notBefore) return found;
    const made = this.#makeLeaf(name, now);
    this.#leaves.set(name, made);
    return made;
  }

  #makeLeaf(name: string, now: number): CachedLeaf {
    const notBefore = now - hourMs;
    const notAfter = now + leafDays * dayMs;
    const cert = writeCertificate({
      serial: newSerial(),
      // A common name has at most 64 characters. Clients read the alternative name.
      subject: { organization, commonName: name.length <= 64 ? name : "server" },
      issuer: nameOf(this.#key),
      notBefore: new Date(notBefore),
      notAfter: new Date(notAfter),
      publicKey: createPublicKey(this.#leafKey),
      issuerKey: this.#key,
      dnsName: name,
    });
    const key = this.#leafKeyPem;
    const context = createSecureContext({ key, cert, minVersion: "TLSv1.2" });
    return { key, cert, context, notBefore, renewAt: notAfter - leafRenewDays * dayMs };
  }
}

function nameOf(key: KeyObject): Name {
  const id = keyIdentifier(createPublicKey(key)).toString("hex").slice(0, 16);
  return { organization, commonName: `forkd installation ${id}` };
}

/** 127 random bits, so that the number is positive; never 0. */
function newSerial(): Buffer {
  const serial = randomBytes(16);
  serial[0] = (serial[0] ?? 0) & 0x7f;
  serial[15] = (serial[15] ?? 0) | 1;
  return serial;
}

async function newKey(): Promise<KeyObject> {
  const { privateKey } = await promisify(generateKeyPair)("ec", { namedCurve: "P-256" });
  return privateKey;
}

function exportKey(key: KeyObject): string {
  return key.export({ type: "pkcs8", format: "pem" }).toString();
}

async function readKey(path: string): Promise<KeyObject | undefined> {
  let pem: Buffer;
  try {
    pem = await readPrivateFile(path, 64 * 1024);
  } catch (error) {
    if (isErrno(error, "ENOENT")) return undefined;
    throw error;
  }
  let key: KeyObject;
  try {
    key = createPrivateKey(pem);
  } catch {
    throw new Error(`${path} does not hold a private key`);
  }
  if (key.asymmetricKeyDetails?.namedCurve !== "prime256v1")
    throw new Error(`the key in ${path} is not on the curve P-256`);
  return key;
}

/** Two processes may do this at the same time: the first file stays, and both use it. */
async function makeKey(path: string, certificate: X509Certificate | undefined): Promise<KeyObject> {
  if (certificate !== undefined) throw new Error(`${path} is missing`);
  const temporary = await writeFileBeside(path, exportKey(await newKey()), 0o600);
  try {
    await link(temporary, path);
    await fsyncPath(join(path, ".."));
  } catch (error) {
    if (!isErrno(error, "EEXIST")) throw error;
  } finally {
    await rm(temporary, { force: true });
  }
  const key = await readKey(path);
  if (key === undefined) throw new Error(`${path} was removed`);
  return key;
}

async function readCertificate(path: string): Promise<X509Certificate | undefined> {
  try {
    return new X509Certificate(await readOwnFile(path));
  } catch (error) {
    if (isErrno(error, "ENOENT")) return undefined;
    if (error instanceof Error && "code" in error && String(error.code).startsWith("ERR_OSSL"))
      throw new Error(`${path} does not hold a certificate`, { cause: error });
    throw error;
  }
}

function checkPair(certificate: X509Certificate, key: KeyObject): void {
  const { organization: o, commonName } = nameOf(key);
  if (!certificate.checkPrivateKey(key)) throw new Error("ca.key and ca.crt do not belong together");
  if (!certificate.ca || certificate.subject !== `O=${o}\nCN=${commonName}`)
    throw new Error("ca.crt is not a CA certificate of forkd");
}

async function renew(path: string, key: KeyObject, now: number): Promise<string> {
  const name = nameOf(key);
  const pem = writeCertificate({
    serial: newSerial(),
    subject: name,
    issuer: name,
    notBefore: new Date(now - hourMs),
    notAfter: new Date(now + caDays * dayMs),
    publicKey: createPublicKey(key),
    issuerKey: key,
  });
  await writeFileAtomic(path, pem, 0o644);
  return pem;
}
