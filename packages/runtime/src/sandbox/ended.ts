/**
 * The sandboxes that ended unasked, in `ended.json` of the data directory, so that a restarted daemon still
 * lists them with the reason, and can rewind them. Nothing else of them is on the host. Format:
 * docs/spec/sandbox-record.md.
 */
import { z } from "zod";
import { readJson, writeFileAtomic, type Logger } from "@forkd/base";
import { recordSchema } from "./record.ts";

const version = 1;
const maxEntries = 200;
const maxConsole = 4096;

const entrySchema = z.object({
  /** its record, without a machine */
  record: recordSchema,
  reason: z.string(),
  reason_code: z.enum(["out_of_memory", "host_out_of_memory", "disk_limit"]).optional(),
  console: z.string(),
  ended_at_unix: z.number(),
  shape: z.object({
    vcpus: z.number(),
    memory_mib: z.number(),
    accelerator: z.enum(["kvm", "tcg"]),
    languages: z.array(z.enum(["python", "node"])),
  }),
});
export type EndedSandbox = z.output<typeof entrySchema>;

const fileSchema = z.object({ version: z.literal(version), sandboxes: z.array(z.unknown()) });

export class EndedSandboxes {
  readonly #path: string;
  readonly #log: Logger;
  /** oldest first */
  #entries = new Map<string, EndedSandbox>();
  #isDirty = false;
  #writing: Promise<void> | undefined;

  constructor(path: string, log: Logger) {
    this.#path = path;
    this.#log = log;
  }

  /** Reads the file. One that cannot be read costs only what it says about the past; the next write replaces it. */
  async load(): Promise<EndedSandbox[]> {
    try {
      const content = await readJson(this.#path);
      const found = content === undefined ? [] : fileSchema.parse(content).sandboxes;
      const entries = found.flatMap((entry) => entrySchema.safeParse(entry).data ?? []);
      this.#entries = new Map(entries.slice(-maxEntries).map((entry) => [entry.record.id, entry]));
    } catch (error) {
      this.#log.warn({ event: "ended.read", path: this.#path, error });
    }
    return [...this.#entries.values()];
  }

  /** Resolves when it is on disk, or when that failed, which is logged. */
  add(entry: EndedSandbox): Promise<void> {
    const { id } = entry.record;
    this.#entries.delete(id);
    this.#entries.set(id, { ...entry, console: entry.console.slice(-maxConsole) });
    for (const oldest of this.#entries.keys()) {
      if (this.#entries.size <= maxEntries) break;
      this.#entries.delete(oldest);
    }
    return this.#save();
  }

  async remove(id: string): Promise<void> {
    if (this.#entries.delete(id)) await this.#save();
  }

  #save(): Promise<void> {
    this.#isDirty = true;
    this.#writing ??= this.#write().finally(() => (this.#writing = undefined));
    return this.#writing;
  }

  /** Many sandboxes may end at once: what comes during a write goes into the next one. */
  async #write(): Promise<void> {
    while (this.#isDirty) {
      this.#isDirty = false;
      const content = { version, sandboxes: [...this.#entries.values()] };
      try {
        await writeFileAtomic(this.#path, `${JSON.stringify(content)}\n`, 0o600);
      } catch (error) {
        this.#log.warn({ event: "ended.write", path: this.#path, error });
      }
    }
  }
}
