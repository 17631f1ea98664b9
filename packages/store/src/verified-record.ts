/**
 * The verified files on disk, so that the first fork after a restart of the daemon need not read its snapshot
 * again. An entry counts only if the file has the same stamp and the same ctime, which no program can set back, and
 * if the host has not been restarted: a crash may have lost writes. Then it says as much as the memory of a
 * daemon that has run all the time. A link to a file changes its ctime, so some files are read once more.
 */
import { stat } from "node:fs/promises";
import { mapPool, Mutex, readJson, writeFileAtomic, type Logger } from "@forkd/base";
import { z } from "zod";
import { stampIn, type VerifiedFiles } from "./stamp.ts";

const version = 1;
const atOnce = 16;
const saveMs = 5000;

const recordSchema = z.object({
  version: z.literal(version),
  boot_id: z.string(),
  files: z.array(z.object({ path: z.string(), stamp: z.string(), ctime_ns: z.string(), digest: z.string() })),
});
type Entry = z.output<typeof recordSchema>["files"][number];

export type VerifiedRecordPlace = {
  readonly path: string;
  /** of the host */
  readonly bootId: string;
};

export class VerifiedRecord implements AsyncDisposable {
  readonly #place: VerifiedRecordPlace;
  readonly #files: VerifiedFiles;
  readonly #log: Logger;
  readonly #turn = new Mutex();
  #timer: NodeJS.Timeout | undefined;

  constructor(place: VerifiedRecordPlace, files: VerifiedFiles, log: Logger) {
    this.#place = place;
    this.#files = files;
    this.#log = log;
    files.onAdd = () => this.#saveSoon();
  }

  /** Call it before anything unlinks files. A record that cannot be read costs only time. */
  async load(): Promise<void> {
    const parsed = recordSchema.safeParse(await readJson(this.#place.path).catch(() => undefined));
    if (!parsed.success || parsed.data.boot_id !== this.#place.bootId) return;
    await mapPool(parsed.data.files, atOnce, async ({ path, stamp, ctime_ns, digest }) => {
      const now = await look(path);
      if (now?.stamp === stamp && now.ctimeNs === ctime_ns) this.#files.add(stamp, digest, path);
    });
  }

  /** Saves run one after the other. */
  save(): Promise<void> {
    clearTimeout(this.#timer);
    this.#timer = undefined;
    return this.#turn.run(() => this.#write());
  }

  async #write(): Promise<void> {
    const { path: file, bootId: boot_id } = this.#place;
    const found = await mapPool(this.#files.entries(), atOnce, async ({ path, stamp, digest }) => {
      const now = await look(path);
      return now?.stamp === stamp ? { path, stamp, ctime_ns: now.ctimeNs, digest } : undefined;
    });
    const files = found.filter((entry): entry is Entry => entry !== undefined);
    try {
      await writeFileAtomic(file, `${JSON.stringify({ version, boot_id, files })}\n`, 0o600);
    } catch (error) {
      this.#log.warn({ event: "verified.write", path: file, error });
    }
  }

  #saveSoon(): void {
    this.#timer ??= setTimeout(() => void this.save(), saveMs).unref();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#files.onAdd = undefined;
    await this.save();
  }
}

async function look(path: string): Promise<{ stamp: string; ctimeNs: string } | undefined> {
  const facts = await stat(path, { bigint: true }).catch(() => undefined);
  return facts && { stamp: stampIn(facts), ctimeNs: String(facts.ctimeNs) };
}
