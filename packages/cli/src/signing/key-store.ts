/**
 * The user's keys for signatures: `NAME.key` (only for its owner) and `NAME.pub` in one directory. The daemon
 * never sees a private key.
 */
import { createHash, createPrivateKey, createPublicKey, generateKeyPairSync, sign } from "node:crypto";
import type { KeyObject } from "node:crypto";
import { constants } from "node:fs";
import { mkdir, open, readdir, readFile, rm } from "node:fs/promises";
import { homedir } from "node:os";
import { join } from "node:path";
import { advice, AppError, signaturePayload } from "@forkd/contract/wire";
import type { Environment } from "../options/arguments.ts";
import { unreadable } from "../terminal/unreadable.ts";

export type SigningKey = {
  readonly name: string;
  readonly fingerprint: string;
  /** PEM */
  readonly publicKey: string;
  /** path of the private key */
  readonly file: string;
  readonly isEncrypted: boolean;
};

const namePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const maxKeyBytes = 16_384;

export function keyDirectory({ variables }: Pick<Environment, "variables">): string {
  const config = variables["XDG_CONFIG_HOME"] || join(variables["HOME"] || homedir(), ".config");
  return join(config, "forkd", "signing-keys");
}

/** Throws `already_exists`. With a passphrase the private key is encrypted. */
export async function createKey(
  directory: string,
  name: string,
  passphrase: string | undefined,
): Promise<SigningKey> {
  checkName(name);
  const { publicKey, privateKey } = generateKeyPairSync("ed25519");
  const encryption = passphrase === undefined ? {} : { cipher: "aes-256-cbc", passphrase };
  const pem = String(privateKey.export({ format: "pem", type: "pkcs8", ...encryption }));
  const [file, publicFile] = [join(directory, `${name}.key`), join(directory, `${name}.pub`)];
  await mkdir(directory, { recursive: true, mode: 0o700 });
  await writeNew(file, pem, 0o600);
  try {
    await writeNew(publicFile, publicPem(publicKey), 0o644);
  } catch (error) {
    await rm(file, { force: true });
    throw error;
  }
  return describe(name, file, publicPem(publicKey), pem);
}

async function writeNew(path: string, text: string, mode: number): Promise<void> {
  try {
    await using file = await open(path, "wx", mode);
    await file.writeFile(text);
    await file.sync();
  } catch (cause) {
    if (!isErrno(cause, "EEXIST")) throw cause;
    throw new AppError("already_exists", `Cannot create a key: the file "${path}" exists`, {
      remedy: advice("Choose another name."),
      cause,
    });
  }
}

/** Ordered by name; a private key without its public key is left out. */
export async function listKeys(directory: string): Promise<SigningKey[]> {
  const names = await readdir(directory).catch((error: unknown): string[] => {
    if (isErrno(error, "ENOENT")) return [];
    throw unreadable(directory, error);
  });
  const keys = names.filter((name) => name.endsWith(".key")).map((name) => name.slice(0, -".key".length));
  const found = await Promise.all(
    keys
      .filter((name) => namePattern.test(name) && names.includes(`${name}.pub`))
      .sort()
      .map((name) => readKey(directory, name)),
  );
  return found;
}

/** Throws `file_not_found` if there is none of that name. */
export async function readKey(directory: string, name: string): Promise<SigningKey> {
  checkName(name);
  const file = join(directory, `${name}.key`);
  const [pem, publicText] = await Promise.all([readPem(file), readPem(join(directory, `${name}.pub`))]);
  return describe(name, file, publicText, pem);
}

/** A key to sign with: the name of a key of the user, or a file. */
export async function openSigner(options: {
  directory: string;
  key: string;
  askPassphrase: () => Promise<string>;
}): Promise<Signer> {
  const { directory, key, askPassphrase } = options;
  const own = join(directory, `${key}.key`);
  const isName = namePattern.test(key) && (await exists(own));
  const file = isName ? own : key;
  if (!isName && !key.includes("/") && !(await exists(file)))
    throw new AppError("file_not_found", `There is no signing key "${key}"`, {
      remedy: { action: "make_signing_key" },
    });
  const pem = await readPem(file, { isPrivate: true });
  const passphrase = isEncrypted(pem) ? await askPassphrase() : undefined;
  return new Signer(privateKeyIn(file, pem, passphrase));
}

export class Signer {
  readonly #key: KeyObject;
  /** PEM */
  readonly publicKey: string;
  readonly fingerprint: string;

  constructor(key: KeyObject) {
    this.#key = key;
    const publicKey = createPublicKey(key);
    this.publicKey = publicPem(publicKey);
    this.fingerprint = fingerprintOf(publicKey);
  }

  /** Base64 of the signature of what was pushed. */
  sign(repository: string, digest: string): string {
    const text = Buffer.from(signaturePayload(repository, digest));
    return sign(this.#key.asymmetricKeyType === "ed25519" ? null : "sha256", text, this.#key).toString(
      "base64",
    );
  }
}

function privateKeyIn(file: string, pem: string, passphrase: string | undefined): KeyObject {
  if (/-----BEGIN ENCRYPTED (COSIGN|SIGSTORE) PRIVATE KEY-----/.test(pem))
    throw invalid(file, "it is in the encrypted form of cosign; sign with cosign itself");
  let key: KeyObject;
  try {
    key = createPrivateKey({ key: pem, format: "pem", ...(passphrase !== undefined && { passphrase }) });
  } catch (cause) {
    throw invalid(
      file,
      passphrase === undefined ? "it is not a private key in PEM form" : "the passphrase is wrong",
      cause,
    );
  }
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = key;
  if (type === "ed25519" || (type === "ec" && details?.namedCurve === "prime256v1")) return key;
  throw invalid(file, `it is of the type ${type ?? "?"}; only Ed25519 and ECDSA P-256 are supported`);
}

async function readPem(path: string, { isPrivate = false } = {}): Promise<string> {
  try {
    await using file = await open(path, constants.O_RDONLY | constants.O_NONBLOCK);
    const facts = await file.stat();
    if (!facts.isFile()) throw invalid(path, "it is not a regular file");
    if (facts.size > maxKeyBytes) throw invalid(path, `it is longer than ${maxKeyBytes} bytes`);
    if (isPrivate && (facts.mode & 0o077) !== 0)
      throw invalid(path, `other users can read it (mode ${(facts.mode & 0o777).toString(8)}, not 600)`);
    return await file.readFile("utf8");
  } catch (cause) {
    throw cause instanceof AppError ? cause : unreadable(path, cause);
  }
}

/** The text of a public key to pin; the daemon checks it. */
export async function readPublicText(path: string): Promise<string> {
  return await readPem(path);
}

function describe(name: string, file: string, publicText: string, pem: string): SigningKey {
  let key: KeyObject;
  try {
    key = createPublicKey(publicText);
  } catch (cause) {
    throw invalid(file.replace(/key$/, "pub"), "it is not a public key in PEM form", cause);
  }
  const facts = { fingerprint: fingerprintOf(key), publicKey: publicPem(key) };
  return { name, ...facts, file, isEncrypted: isEncrypted(pem) };
}

function isEncrypted(pem: string): boolean {
  return pem.includes("-----BEGIN ENCRYPTED PRIVATE KEY-----");
}

function publicPem(key: KeyObject): string {
  return String(key.export({ format: "pem", type: "spki" }));
}

function fingerprintOf(key: KeyObject): string {
  const der = key.export({ format: "der", type: "spki" });
  return `sha256:${createHash("sha256").update(der).digest("hex")}`;
}

function checkName(name: string): void {
  if (namePattern.test(name)) return;
  throw new AppError(
    "invalid_request",
    `"${name}" cannot be the name of a key: it must be 1 to 64 of letters, digits, dot, underscore and dash`,
  );
}

async function exists(path: string): Promise<boolean> {
  try {
    await readFile(path);
    return true;
  } catch (error) {
    return !isErrno(error, "ENOENT", "ENOTDIR");
  }
}

function isErrno(error: unknown, ...codes: readonly string[]): boolean {
  return error instanceof Error && "code" in error && codes.includes(String(error.code));
}

function invalid(path: string, why: string, cause?: unknown): AppError {
  return new AppError("invalid_signing_key", `Cannot use the key "${path}": ${why}`, { cause });
}
