/**
 * Files that clients upload for COPY steps: one archive per hash, in `e2b/uploads` of the data directory. The
 * address of an upload has its own token, because clients send no key to it.
 */
import { createWriteStream } from "node:fs";
import { mkdir, readdir, rename, rm, stat, utimes } from "node:fs/promises";
import { randomBytes } from "node:crypto";
import type { IncomingMessage } from "node:http";
import { join } from "node:path";
import { pipeline } from "node:stream/promises";
import { Transform } from "node:stream";
import { LruMap } from "@forkd/base";
import { AppError } from "@forkd/contract";
import type { Runtime } from "@forkd/runtime";
import { invalid } from "../control/answer.ts";
import { bodyPieces } from "../http/body.ts";

const maxBytes = 1024 * 1024 * 1024;
const maxTotalBytes = 4 * maxBytes;
/** of uploads in progress, beside what is there */
const maxArrivingBytes = 4 * maxBytes;
const maxTokens = 10_000;
const lifeMs = 3_600_000;
type Limits = { readonly arrivingBytes: number };
const hashPattern = /^[0-9a-f]{64}$/;

export class Uploads {
  readonly #dir: string;
  readonly #tokens = new LruMap<string, { readonly hash: string; readonly until: number }>(maxTokens);

  readonly #limits: Limits;
  #arriving = 0;

  private constructor(dir: string, limits: Limits) {
    this.#dir = dir;
    this.#limits = limits;
  }

  static async open(
    { config }: Pick<Runtime, "config">,
    limits: Limits = { arrivingBytes: maxArrivingBytes },
  ): Promise<Uploads> {
    const dir = join(config.dataDir, "e2b", "uploads");
    await mkdir(dir, { recursive: true, mode: 0o700 });
    // An upload that an earlier daemon did not finish.
    for (const name of await readdir(dir))
      if (!hashPattern.test(name)) await rm(join(dir, name), { force: true });
    return new Uploads(dir, limits);
  }

  /** The path of an archive, or undefined. */
  async find(hash: string): Promise<string | undefined> {
    if (!hashPattern.test(hash)) throw invalid("hash", "must be 64 hexadecimal digits");
    const path = join(this.#dir, hash);
    const isThere = await stat(path).then(
      () => true,
      () => false,
    );
    // The oldest ones are removed first.
    if (isThere) await utimes(path, new Date(), new Date());
    return isThere ? path : undefined;
  }

  permit(hash: string): string {
    if (!hashPattern.test(hash)) throw invalid("hash", "must be 64 hexadecimal digits");
    const token = randomBytes(32).toString("hex");
    this.#tokens.set(token, { hash, until: Date.now() + lifeMs });
    return token;
  }

  isPermitted(hash: string, token: string): boolean {
    const found = this.#tokens.peek(token);
    return found !== undefined && found.hash === hash && found.until > Date.now();
  }

  /** The caller has checked the token. */
  async take(hash: string, incoming: IncomingMessage): Promise<void> {
    if (Number(incoming.headers["content-length"] ?? 0) > maxBytes) throw tooLarge();
    await this.#makeRoom();
    const path = join(this.#dir, hash);
    const temporary = `${path}.${randomBytes(6).toString("hex")}.tmp`;
    let bytes = 0;
    const counted = new Transform({
      transform: (chunk: Buffer, _, next) => {
        bytes += chunk.length;
        this.#arriving += chunk.length;
        if (bytes > maxBytes) next(tooLarge());
        else if (this.#arriving > this.#limits.arrivingBytes) next(tooMany());
        else next(null, chunk);
      },
    });
    try {
      await pipeline(
        bodyPieces(incoming),
        counted,
        createWriteStream(temporary, { mode: 0o600, flags: "wx" }),
      );
      await rename(temporary, path);
    } catch (error) {
      await rm(temporary, { force: true });
      throw error;
    } finally {
      this.#arriving -= bytes;
    }
  }

  /** Removes the archives that were not used for longest. */
  async #makeRoom(): Promise<void> {
    const files: { path: string; bytes: number; usedMs: number }[] = [];
    for (const name of await readdir(this.#dir)) {
      const path = join(this.#dir, name);
      const found = await stat(path).catch(() => undefined);
      if (found && hashPattern.test(name)) files.push({ path, bytes: found.size, usedMs: found.mtimeMs });
    }
    files.sort((a, b) => a.usedMs - b.usedMs);
    let total = files.reduce((sum, { bytes }) => sum + bytes, 0);
    for (const { path, bytes } of files) {
      if (total <= maxTotalBytes - maxBytes) return;
      await rm(path, { force: true });
      total -= bytes;
    }
  }
}

function tooMany(): AppError {
  return new AppError("capacity_exhausted", "Too many files are being uploaded at the same time", {
    details: { retry_after_secs: 10 },
    remedy: { action: "retry_later" },
  });
}

function tooLarge(): AppError {
  return new AppError("body_too_large", `The archive is longer than ${maxBytes} bytes`, {
    details: { bytes: maxBytes },
  });
}
