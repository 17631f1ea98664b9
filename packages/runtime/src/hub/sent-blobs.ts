/**
 * In which repositories blobs were sent, so that another repository of the same registry can take them from
 * there. Only a hint: a registry that has lost a blob says so, and it is sent again.
 */
import { readJson, writeFileAtomic, type Logger } from "@forkd/base";
import { z } from "zod";

type Place = { readonly registry: string; readonly repository: string };

const recordSchema = z.object({ version: z.literal(1), blobs: z.record(z.string(), z.string()) });
/** The oldest are forgotten. */
const maxBlobs = 20_000;

export class SentBlobs {
  readonly #path: string;
  readonly #log: Logger;
  #known: Promise<Map<string, string>> | undefined;

  constructor(path: string, log: Logger) {
    this.#path = path;
    this.#log = log;
  }

  /** Another repository of the registry that had the blob. */
  async find(
    { registry, name }: { registry: string; name: string },
    digest: string,
  ): Promise<string | undefined> {
    const found = (await this.#load()).get(`${registry} ${digest}`);
    return found === name ? undefined : found;
  }

  async add({ registry, repository }: Place, digests: readonly string[]): Promise<void> {
    const known = await this.#load();
    for (const digest of digests) {
      known.delete(`${registry} ${digest}`);
      known.set(`${registry} ${digest}`, repository);
    }
    for (const key of known.keys()) {
      if (known.size <= maxBlobs) break;
      known.delete(key);
    }
    try {
      await writeFileAtomic(this.#path, JSON.stringify({ version: 1, blobs: Object.fromEntries(known) }));
    } catch (error) {
      this.#log.warn({ event: "hub.sent_blobs", outcome: "failed", err: error });
    }
  }

  #load(): Promise<Map<string, string>> {
    this.#known ??= readJson(this.#path).then(
      (value) => new Map(Object.entries(recordSchema.safeParse(value).data?.blobs ?? {})),
      () => new Map(),
    );
    return this.#known;
  }
}
