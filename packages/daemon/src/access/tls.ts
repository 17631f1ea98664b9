/**
 * Certificate and key from two files, read again on SIGHUP and when their directories change. If a new pair
 * does not work, the old one stays in use. Open connections keep the pair they started with.
 */
import { X509Certificate } from "node:crypto";
import { watch } from "node:fs";
import { readFile } from "node:fs/promises";
import type https from "node:https";
import { dirname } from "node:path";
import { createSecureContext, type SecureContextOptions } from "node:tls";
import type { Logger } from "@forkd/base";
import { advice, AppError, errorMessage } from "@forkd/contract";

type TlsFiles = { readonly cert: string; readonly key: string };
type Pair = SecureContextOptions & { readonly cert: Buffer; readonly key: Buffer };

export class Tls implements Disposable {
  readonly #files: TlsFiles;
  readonly #log: Logger;
  readonly #servers = new Set<https.Server>();
  readonly #watchers: { close(): void }[] = [];
  #pair: Pair;
  #loading: Promise<void> | undefined;
  #again = false;

  private constructor(files: TlsFiles, log: Logger, pair: Pair) {
    this.#files = files;
    this.#log = log;
    this.#pair = pair;
  }

  /** Throws `host_not_ready` if the pair does not work. */
  static async open(files: TlsFiles, log: Logger): Promise<Tls> {
    let pair: Pair;
    try {
      pair = await readPair(files);
    } catch (error) {
      const why = errorMessage(error);
      throw new AppError("host_not_ready", `Cannot use TLS with ${files.cert} and ${files.key}: ${why}`, {
        remedy: advice("Give a certificate and its key as PEM."),
        cause: error,
      });
    }
    const tls = new Tls(files, log, pair);
    tls.#warnIfExpired();
    for (const dir of new Set([dirname(files.cert), dirname(files.key)])) tls.#watch(dir);
    return tls;
  }

  get options(): SecureContextOptions {
    return this.#pair;
  }

  /** The server gets every later pair. */
  attach(server: https.Server): void {
    this.#servers.add(server);
  }

  /** Never rejects. Reads the files once more if they change while they are being read. */
  reload(): Promise<void> {
    this.#again = true;
    this.#loading ??= this.#load().finally(() => {
      this.#loading = undefined;
      if (this.#again) void this.reload();
    });
    return this.#loading;
  }

  [Symbol.dispose](): void {
    for (const watcher of this.#watchers) watcher.close();
  }

  async #load(): Promise<void> {
    while (this.#again) {
      this.#again = false;
      try {
        const pair = await readPair(this.#files);
        if (pair.cert.equals(this.#pair.cert) && pair.key.equals(this.#pair.key)) continue;
        for (const server of this.#servers) server.setSecureContext(pair);
        this.#pair = pair;
        this.#log.info({ event: "tls.reload", outcome: "ok", ...factsOf(pair) });
        this.#warnIfExpired();
      } catch (error) {
        const why = errorMessage(error);
        this.#log.error({
          event: "tls.reload",
          outcome: "failed",
          error: `${why}; the old pair stays in use`,
        });
      }
    }
  }

  #watch(dir: string): void {
    const lost = (error: unknown) =>
      this.#log.warn({ event: "tls.watch", outcome: "failed", dir, error: `${String(error)}; use SIGHUP` });
    try {
      const watcher = watch(dir, { persistent: false }, () => void this.reload());
      watcher.on("error", lost);
      this.#watchers.push(watcher);
    } catch (error) {
      lost(error);
    }
  }

  #warnIfExpired(): void {
    const { validTo } = new X509Certificate(this.#pair.cert);
    if (Date.parse(validTo) < Date.now()) this.#log.warn({ event: "tls.expired", validTo });
  }
}

async function readPair({ cert: certFile, key: keyFile }: TlsFiles): Promise<Pair> {
  const [cert, key] = await Promise.all([readFile(certFile), readFile(keyFile)]);
  const pair: Pair = { cert, key, minVersion: "TLSv1.2" };
  // Throws if one is broken or they do not belong together.
  createSecureContext(pair);
  return pair;
}

function factsOf({ cert }: Pair): { subject: string; validTo: string; fingerprint256: string } {
  const { subject, validTo, fingerprint256 } = new X509Certificate(cert);
  return { subject, validTo, fingerprint256 };
}
