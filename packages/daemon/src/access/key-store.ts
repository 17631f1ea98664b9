/**
 * Named keys in keys.json of the data directory, which has one writer: the daemon that holds the directory's
 * lock.
 *
 * Only the SHA-256 of a key is kept. A key is 256 random bits: it cannot be guessed, and a slow hash, which
 * passwords need, would only make every request slower.
 */
import { createHash, randomBytes, timingSafeEqual } from "node:crypto";
import { join } from "node:path";
import {
  isErrno,
  longTimer,
  Mutex,
  nullLogger,
  openOwnFile,
  writeFileAtomic,
  type Logger,
} from "@forkd/base";
import {
  advice,
  AppError,
  errorMessage,
  keyNameSchema,
  keyScopeSchema,
  networkModeSchema,
  ruleTextSchema,
  secretNameSchema,
  type CreatedKey,
  type KeyInfo,
} from "@forkd/contract";
import type { ParsedOf, Scope } from "@forkd/contract";
import { z } from "zod";
import { issuesOf } from "../http/body/invalid-request.ts";
import { makePrivate } from "./private-file.ts";
import { OpenCalls, type Cut } from "./open-calls.ts";

const maxKeys = 1000;
/** Names of callers without a key */
const reservedNames = ["local", "token", "anonymous"] as const;
const newKey = advice("Ask for a new key.");

const keyNetworkSchema = z.strictObject({ mode: networkModeSchema, rules: z.array(ruleTextSchema) });
const recordSchema = z.strictObject({
  name: keyNameSchema,
  scope: keyScopeSchema,
  sha256: z.string().regex(/^[0-9a-f]{64}$/, "must be 64 hexadecimal digits"),
  created_at_unix: z.number(),
  expires_at_unix: z.number().optional(),
  max_sandboxes: z.int().min(1).optional(),
  max_memory_mib: z.int().min(1).optional(),
  network: keyNetworkSchema.optional(),
  secrets: z.array(secretNameSchema).optional(),
});
type KeyRecord = z.output<typeof recordSchema>;
const fileSchema = z.strictObject({
  version: z.literal(1),
  keys: z
    .array(recordSchema)
    .max(maxKeys)
    .refine((keys) => new Set(keys.map(({ name }) => name)).size === keys.length, "a name occurs twice"),
});

export function digestOf(text: string): Buffer {
  return createHash("sha256").update(text).digest();
}

/** Tells a key from an earlier one with the same name. */
export type KeyIdentity = { readonly id: string; readonly createdAtUnix: number };

export class Key {
  readonly record: KeyRecord;
  readonly digest: Buffer;
  lastUsedUnix: number | undefined;
  readonly #holders = new OpenCalls();

  constructor(record: KeyRecord) {
    this.record = record;
    this.digest = Buffer.from(record.sha256, "hex");
  }

  get name(): string {
    return this.record.name;
  }

  get identity(): KeyIdentity {
    return { id: this.record.sha256.slice(0, 16), createdAtUnix: this.record.created_at_unix };
  }

  get scope(): Scope {
    return this.record.scope;
  }

  isExpired(now = Date.now()): boolean {
    return this.record.expires_at_unix !== undefined && now >= this.record.expires_at_unix * 1000;
  }

  /** `cut` is called when the key is removed or expires, until the returned function is called. */
  hold(cut: Cut): () => void {
    const release = this.#holders.hold(cut);
    let timer: Disposable | undefined;
    const wait = () => {
      const left = (this.record.expires_at_unix ?? Infinity) * 1000 - Date.now();
      if (left <= 0) cut(this.expired());
      else if (left < Infinity) timer = longTimer(left, wait);
    };
    wait();
    return () => {
      timer?.[Symbol.dispose]();
      release();
    };
  }

  cut(why: AppError): void {
    this.#holders.cut(why);
  }

  expired(): AppError {
    const at = new Date((this.record.expires_at_unix ?? 0) * 1000).toISOString();
    return new AppError("unauthenticated", `The key "${this.name}" expired at ${at}`, {
      details: { key: this.name, expired_at: at },
      remedy: newKey,
    });
  }

  info(): KeyInfo {
    const { sha256: _, ...facts } = this.record;
    return {
      ...facts,
      expired: this.isExpired(),
      ...(this.lastUsedUnix !== undefined && { last_used_unix: this.lastUsedUnix }),
    };
  }
}

export class KeyStore {
  readonly #file: string;
  readonly #writing = new Mutex();
  #keys: readonly Key[];

  private constructor(file: string, keys: readonly Key[]) {
    this.#file = file;
    this.#keys = keys;
  }

  /**
   * Throws `host_not_ready` if the file is damaged: without its keys the daemon can neither accept nor revoke
   * any.
   */
  static async open(dataDir: string, log: Logger = nullLogger()): Promise<KeyStore> {
    const file = join(dataDir, "keys.json");
    let content: unknown;
    try {
      content = await readKeys(file, log);
    } catch (error) {
      throw damaged(file, errorMessage(error), error);
    }
    if (content === undefined) return new KeyStore(file, []);
    const parsed = fileSchema.safeParse(content);
    if (!parsed.success) {
      const issues = issuesOf(parsed.error).map(({ path, message }) => `${path}: ${message}`);
      throw damaged(file, issues.slice(0, 3).join("; "));
    }
    return new KeyStore(
      file,
      parsed.data.keys.map((record) => new Key(record)),
    );
  }

  list(): KeyInfo[] {
    return this.#keys.map((key) => key.info());
  }

  /**
   * Compares with every key, each in constant time, so that the time taken says nothing about any of them.
   */
  find(digest: Buffer): Key | undefined {
    let found: Key | undefined;
    for (const key of this.#keys) if (timingSafeEqual(key.digest, digest)) found = key;
    return found;
  }

  create(request: ParsedOf<"createKey">): Promise<CreatedKey> {
    return this.#writing.run(async () => {
      const { name } = request;
      this.#checkNew(request);
      const text = `fk_${randomBytes(32).toString("base64url")}`;
      const key = new Key({
        ...request,
        sha256: digestOf(text).toString("hex"),
        created_at_unix: Math.floor(Date.now() / 1000),
      });
      await this.#write([...this.#keys, key].sort((a, b) => (a.name < b.name ? -1 : 1)));
      return { ...key.info(), name, key: text };
    });
  }

  /** Ends the open requests of callers with this key. */
  remove(name: string): Promise<void> {
    return this.#writing.run(async () => {
      const key = this.#keys.find((candidate) => candidate.name === name);
      if (key === undefined)
        throw new AppError("key_not_found", `No key has the name "${name}"`, {
          remedy: { action: "list_keys" },
        });
      await this.#write(this.#keys.filter((candidate) => candidate !== key));
      // Only after the answer is sent: the caller may use this very key.
      setImmediate(() =>
        key.cut(
          new AppError("unauthenticated", `The key "${name}" was removed`, {
            details: { key: name },
            remedy: newKey,
          }),
        ),
      );
    });
  }

  #checkNew({ name, expires_at_unix: expiresAt }: ParsedOf<"createKey">): void {
    if ((reservedNames as readonly string[]).includes(name.toLowerCase())) {
      throw new AppError("invalid_request", `Invalid request: name: "${name}" is reserved`, {
        remedy: advice("Use another name."),
      });
    }
    if (expiresAt !== undefined && expiresAt * 1000 <= Date.now()) {
      throw new AppError("invalid_request", "Invalid request: expires_at_unix: must be in the future");
    }
    if (this.#keys.some((key) => key.name === name)) {
      throw new AppError("already_exists", `A key has the name "${name}" already`, {
        remedy: { action: "remove_key", name },
      });
    }
    if (this.#keys.length >= maxKeys) {
      throw new AppError("capacity_exhausted", `There are ${maxKeys} keys already`, {
        remedy: advice("Remove keys that are no longer needed."),
      });
    }
  }

  /** A change takes effect once it is on disk. */
  async #write(keys: readonly Key[]): Promise<void> {
    const content = { version: 1, keys: keys.map(({ record }) => record) };
    await writeFileAtomic(this.#file, `${JSON.stringify(content, undefined, 2)}\n`, 0o600);
    this.#keys = keys;
  }
}

/** undefined if there is no file */
async function readKeys(path: string, log: Logger): Promise<unknown> {
  try {
    await using file = await openOwnFile(path, { for: "read" });
    await makePrivate(file, path, log);
    return JSON.parse(await file.readFile("utf8"));
  } catch (error) {
    if (isErrno(error, "ENOENT")) return undefined;
    throw error;
  }
}

function damaged(file: string, why: string, cause?: unknown): AppError {
  return new AppError("host_not_ready", `Cannot read the keys in ${file}: ${why}`, {
    cause,
    details: { file },
    remedy: advice("Restore the file from a backup, or remove it and make all keys again."),
  });
}
