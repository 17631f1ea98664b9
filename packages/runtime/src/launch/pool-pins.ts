/** The sizes that operators set, by tag: `pool.json` in the data directory. */
import { Mutex, readJson, writeFileAtomic, type Logger } from "@forkd/base";
import { z } from "zod";
import { tagSchema } from "@forkd/contract";
import { maxReady } from "./pool-sizes.ts";

const fileSchema = z.strictObject({
  version: z.literal(1),
  ready: z.record(tagSchema, z.int().min(0).max(maxReady)),
});

export class PoolPins {
  readonly #path: string | undefined;
  readonly #writes = new Mutex();
  #ready: ReadonlyMap<string, number>;

  private constructor(path: string | undefined, ready: ReadonlyMap<string, number>) {
    this.#path = path;
    this.#ready = ready;
  }

  /** A file that cannot be read is reported and not used; the next change replaces it. */
  static async open(path: string, log: Logger): Promise<PoolPins> {
    try {
      const content = await readJson(path);
      const { ready } = fileSchema.parse(content ?? { version: 1, ready: {} });
      return new PoolPins(path, new Map(Object.entries(ready)));
    } catch (error) {
      log.warn({ event: "pool.pins", path, error });
      return new PoolPins(path, new Map());
    }
  }

  /** Nothing is kept on disk. */
  static none(): PoolPins {
    return new PoolPins(undefined, new Map());
  }

  get all(): ReadonlyMap<string, number> {
    return this.#ready;
  }

  /** undefined removes it. Written first, so a failure changes nothing. */
  set(tag: string, ready: number | undefined): Promise<void> {
    return this.#writes.run(async () => {
      const next = new Map(this.#ready);
      if (ready === undefined) next.delete(tag);
      else next.set(tag, ready);
      if (this.#path !== undefined) {
        const content = { version: 1, ready: Object.fromEntries(next) };
        await writeFileAtomic(this.#path, `${JSON.stringify(content, null, 2)}\n`, 0o600);
      }
      this.#ready = next;
    });
  }
}
