/**
 * Secrets of an installation in secrets.json of the data directory, which has one writer: the daemon that
 * holds the directory's lock. Values are encrypted with the key in secrets.key, or with a key from the service
 * manager, so that a copy of secrets.json alone discloses none.
 *
 * A file that is damaged, unsafe or written with another key stops the store from opening, and nothing
 * overwrites it: values that can still be recovered must not be lost.
 */
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import { isErrno, Mutex, writeFileAtomic } from "@forkd/base";
import { advice, AppError, errorMessage } from "@forkd/contract";
import { z } from "zod";
import { readPrivateFile } from "../private-file.ts";
import type { MachineSecret } from "../types.ts";
import { makeCipher, readCipher, type Cipher } from "./cipher.ts";
import {
  formatSchema,
  headerSchema,
  hostsSchema,
  issuesText,
  maxSecrets,
  newSecretSchema,
  placeholderPattern,
  secretNameSchema,
  type NewSecret,
} from "./fields.ts";

/** 1000 values of the largest size in base64, with room for the rest. */
const maxFileBytes = 128 * 1024 * 1024;

const base64 = z.base64();
const recordSchema = z.strictObject({
  name: secretNameSchema,
  placeholder: z.string().regex(placeholderPattern, "is not a placeholder"),
  hosts: hostsSchema,
  header: headerSchema,
  format: formatSchema,
  created_at_unix: z.int(),
  updated_at_unix: z.int(),
  sealed: z.strictObject({ nonce: base64, tag: base64, data: base64 }),
});
type SecretRecord = z.output<typeof recordSchema>;
const fileSchema = z.strictObject({
  version: z.literal(1),
  key_id: z.string().regex(/^[0-9a-f]{16}$/, "must be 16 hexadecimal digits"),
  secrets: z
    .array(recordSchema)
    .max(maxSecrets)
    .refine((all) => new Set(all.map(({ name }) => name)).size === all.length, "a name occurs twice"),
});

/** What is known about a secret without its value. */
export type SecretInfo = Omit<SecretRecord, "sealed">;

type SecretStoreOptions = {
  /** where the service manager puts credentials; default: `CREDENTIALS_DIRECTORY` */
  readonly credentialsDirectory?: string | undefined;
};

export class SecretStore {
  readonly #file: string;
  readonly #keyFile: string;
  readonly #writing = new Mutex();
  #cipher: Cipher | undefined;
  #records: readonly SecretRecord[];

  private constructor(
    files: { file: string; keyFile: string },
    cipher: Cipher | undefined,
    records: readonly SecretRecord[],
  ) {
    this.#file = files.file;
    this.#keyFile = files.keyFile;
    this.#cipher = cipher;
    this.#records = records;
  }

  /** Throws `host_not_ready` if a file cannot be used or a value cannot be decrypted. */
  static async open(dataDir: string, options: SecretStoreOptions = {}): Promise<SecretStore> {
    const files = { file: join(dataDir, "secrets.json"), keyFile: join(dataDir, "secrets.key") };
    const content = await readContent(files.file);
    let cipher: Cipher | undefined;
    try {
      cipher = await readCipher({
        file: files.keyFile,
        credentialsDirectory: options.credentialsDirectory ?? process.env["CREDENTIALS_DIRECTORY"],
      });
    } catch (error) {
      throw new AppError("host_not_ready", `Cannot read the key of the secrets: ${errorMessage(error)}`, {
        cause: error,
        details: { file: files.keyFile },
        remedy: advice("Restore the key from a backup, with mode 600."),
      });
    }
    if (content !== undefined) checkReadable(files.file, content, cipher);
    return new SecretStore(files, cipher, content?.secrets ?? []);
  }

  /** Sorted by name, without values. */
  list(): SecretInfo[] {
    return this.#records.map(infoOf);
  }

  info(name: string): SecretInfo | undefined {
    const record = this.#find(name);
    return record && infoOf(record);
  }

  /** The secrets with these names, with their values, for the proxy. Leaves out names without one. */
  get(names: readonly string[]): MachineSecret[] {
    return [...new Set(names)].flatMap((wanted) => {
      const record = this.#find(wanted);
      if (record === undefined) return [];
      const { name, placeholder, hosts, header, format } = record;
      const value = this.#valueOf(record);
      return [{ name, placeholder, hosts, header: header.toLowerCase(), format, value }];
    });
  }

  /** Makes a secret or replaces it. A replaced secret keeps its placeholder, which running guests hold. */
  async set(secret: NewSecret): Promise<SecretInfo> {
    const parsed = newSecretSchema.safeParse(secret);
    if (!parsed.success) throw new AppError("invalid_request", `Invalid secret: ${issuesText(parsed.error)}`);
    const { value, ...fields } = parsed.data;
    return this.#writing.run(async () => {
      const before = this.#find(fields.name);
      if (before === undefined && this.#records.length >= maxSecrets)
        throw new AppError("capacity_exhausted", `There are ${maxSecrets} secrets already`, {
          remedy: advice("Remove secrets that are no longer needed."),
        });
      const now = Math.floor(Date.now() / 1000);
      const plain = {
        ...fields,
        placeholder: before?.placeholder ?? `forkd-secret-${randomBytes(16).toString("hex")}`,
        created_at_unix: before?.created_at_unix ?? now,
        updated_at_unix: now,
      };
      this.#cipher ??= await makeCipher(this.#keyFile);
      const record = { ...plain, sealed: this.#cipher.seal(value, boundFields(plain)) };
      const others = this.#records.filter(({ name }) => name !== fields.name);
      await this.#write([...others, record].sort((a, b) => (a.name < b.name ? -1 : 1)));
      return infoOf(record);
    });
  }

  /** Throws `secret_not_found`. */
  remove(name: string): Promise<void> {
    return this.#writing.run(async () => {
      if (this.#find(name) === undefined)
        throw new AppError("secret_not_found", `No secret has the name "${name.slice(0, 64)}"`, {
          remedy: { action: "list_secrets" },
        });
      await this.#write(this.#records.filter((record) => record.name !== name));
    });
  }

  #find(name: string): SecretRecord | undefined {
    return this.#records.find((record) => record.name === name);
  }

  #valueOf(record: SecretRecord): string {
    const value = this.#cipher?.open(record.sealed, boundFields(record));
    // Every record was decrypted when the store was opened or was sealed since.
    if (value === undefined) throw new AppError("internal", `Cannot decrypt the secret "${record.name}"`);
    return value;
  }

  /** A change takes effect once it is on disk. */
  async #write(records: readonly SecretRecord[]): Promise<void> {
    const content = { version: 1, key_id: this.#cipher?.keyId, secrets: records };
    await writeFileAtomic(this.#file, `${JSON.stringify(content, undefined, 2)}\n`, 0o600);
    this.#records = records;
  }
}

/** In a fixed order, because the associated data is compared byte by byte. */
function boundFields(secret: Omit<SecretRecord, "sealed">): unknown[] {
  const { name, placeholder, hosts, header, format } = secret;
  return ["forkd secret", 1, name, placeholder, hosts, header, format];
}

function infoOf(record: SecretRecord): SecretInfo {
  const { name, placeholder, hosts, header, format, created_at_unix, updated_at_unix } = record;
  return { name, placeholder, hosts: [...hosts], header, format, created_at_unix, updated_at_unix };
}

/** undefined if there is no file */
async function readContent(file: string): Promise<z.output<typeof fileSchema> | undefined> {
  let json: unknown;
  try {
    json = JSON.parse((await readPrivateFile(file, maxFileBytes)).toString("utf8"));
  } catch (error) {
    if (isErrno(error, "ENOENT")) return undefined;
    // The text of a JSON error quotes the file.
    const why = error instanceof SyntaxError ? "it is not valid JSON" : errorMessage(error);
    throw damaged(file, why, error instanceof SyntaxError ? undefined : error);
  }
  const parsed = fileSchema.safeParse(json);
  if (!parsed.success) throw damaged(file, issuesText(parsed.error));
  return parsed.data;
}

function checkReadable(file: string, content: z.output<typeof fileSchema>, cipher: Cipher | undefined): void {
  if (cipher === undefined && content.secrets.length > 0) throw damaged(file, "its key is missing");
  if (cipher !== undefined && cipher.keyId !== content.key_id && content.secrets.length > 0)
    throw damaged(file, "it was written with another key");
  for (const record of content.secrets)
    if (cipher?.open(record.sealed, boundFields(record)) === undefined)
      throw damaged(file, `the secret "${record.name}" was changed or damaged`);
}

function damaged(file: string, why: string, cause?: unknown): AppError {
  return new AppError("host_not_ready", `Cannot read the secrets in ${file}: ${why}`, {
    cause,
    details: { file },
    remedy: advice("Restore the file and its key from a backup, or remove both and set all secrets again."),
  });
}
