/**
 * The key of the secrets, and the encryption of one value: AES-256-GCM with a random nonce for every write.
 * Everything that is stored beside a value is bound to it as associated data. A user who can change the file
 * but does not know the key can therefore not send a value to another host.
 */
import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  randomBytes,
  type KeyObject,
} from "node:crypto";
import { join } from "node:path";
import { isErrno, openOwnFile, UnsafeFile, writeFileAtomic } from "@forkd/base";
import { readPrivateFile } from "../private-file.ts";

const keyBytes = 32;
const nonceBytes = 12;
const tagBytes = 16;
const credentialName = "forkd-secrets-key";

type Sealed = { readonly nonce: string; readonly tag: string; readonly data: string };

/** Does not show the key when it is logged or inspected. */
export class Cipher {
  readonly #key: KeyObject;
  /** Tells a file that was written with another key from a damaged one. */
  readonly keyId: string;

  constructor(key: Buffer) {
    this.#key = createSecretKey(key);
    this.keyId = createHmac("sha256", this.#key).update("forkd secrets key").digest("hex").slice(0, 16);
  }

  seal(value: string, bound: readonly unknown[]): Sealed {
    const nonce = randomBytes(nonceBytes);
    const cipher = createCipheriv("aes-256-gcm", this.#key, nonce, { authTagLength: tagBytes });
    cipher.setAAD(Buffer.from(JSON.stringify(bound)));
    const data = Buffer.concat([cipher.update(value, "utf8"), cipher.final()]);
    return {
      nonce: nonce.toString("base64"),
      tag: cipher.getAuthTag().toString("base64"),
      data: data.toString("base64"),
    };
  }

  /** undefined if anything was changed */
  open({ nonce, tag, data }: Sealed, bound: readonly unknown[]): string | undefined {
    try {
      const iv = Buffer.from(nonce, "base64");
      const decipher = createDecipheriv("aes-256-gcm", this.#key, iv, { authTagLength: tagBytes });
      decipher.setAAD(Buffer.from(JSON.stringify(bound)));
      decipher.setAuthTag(Buffer.from(tag, "base64"));
      return Buffer.concat([decipher.update(Buffer.from(data, "base64")), decipher.final()]).toString("utf8");
    } catch {
      // The cause says nothing about where the damage is.
      return undefined;
    }
  }
}

type KeyPlace = {
  readonly file: string;
  /** the directory with the service's credentials, from the service manager */
  readonly credentialsDirectory?: string | undefined;
};

/** From the service's credential if there is one, otherwise from the file; undefined if there is neither. */
export async function readCipher({ file, credentialsDirectory }: KeyPlace): Promise<Cipher | undefined> {
  if (credentialsDirectory !== undefined && credentialsDirectory !== "") {
    const path = join(credentialsDirectory, credentialName);
    const key = await orAbsent(readCredential(path));
    if (key !== undefined) return new Cipher(decodeKey(path, key));
  }
  const key = await orAbsent(readPrivateFile(file, 1024));
  return key === undefined ? undefined : new Cipher(decodeKey(file, key));
}

/** Replaces nothing that readCipher() finds. */
export async function makeCipher(file: string): Promise<Cipher> {
  const key = randomBytes(keyBytes);
  await writeFileAtomic(file, `${key.toString("hex")}\n`, 0o600);
  return new Cipher(key);
}

/** The service manager decides about owner and mode of its files. */
async function readCredential(path: string): Promise<Buffer> {
  await using file = await openOwnFile(path, { for: "read", followLinks: true });
  const { size } = await file.stat();
  if (size > 1024) throw new UnsafeFile(path, `it has ${size} bytes`);
  return await file.readFile();
}

/** 64 hexadecimal digits, or the 32 bytes themselves. */
function decodeKey(path: string, content: Buffer): Buffer {
  if (content.length === keyBytes) return content;
  const text = content.toString("latin1").trim();
  if (/^[0-9a-f]{64}$/i.test(text)) return Buffer.from(text, "hex");
  throw new UnsafeFile(path, "it must hold 64 hexadecimal digits");
}

async function orAbsent<T>(reading: Promise<T>): Promise<T | undefined> {
  try {
    return await reading;
  } catch (error) {
    if (isErrno(error, "ENOENT")) return undefined;
    throw error;
  }
}
