/**
 * What E2B's API knows of a sandbox beside the runtime: tokens, metadata, options as they were given. One file
 * per sandbox in `e2b/sandboxes` of the data directory, so that a restarted daemon has them; removed with the
 * sandbox.
 */
import { randomBytes } from "node:crypto";
import { mkdir, readdir, rm } from "node:fs/promises";
import { join } from "node:path";
import { readJson, writeFileAtomic, type Logger } from "@forkd/base";
import { sandboxIdPattern, sandboxIdSchema } from "@forkd/contract";
import type { Runtime } from "@forkd/runtime";
import { z } from "zod";
import type { E2bSandboxes, SandboxDefaults } from "../types.ts";

const recordSchema = z.object({
  version: z.literal(1),
  id: sandboxIdSchema,
  template_id: z.string(),
  alias: z.string().optional(),
  /** absent: commands and files need no token */
  token: z.string().optional(),
  /** for requests to ports that are not public, and to contexts of code, for which clients send no other one */
  traffic_token: z.string().optional(),
  has_public_ports: z.boolean().optional(),
  metadata: z.record(z.string(), z.string()),
  /** as given, for the answer of getInfo() */
  network: z.unknown().optional(),
  allow_internet_access: z.boolean().optional(),
  user: z.string().optional(),
  workdir: z.string().optional(),
});
export type E2bRecord = z.output<typeof recordSchema>;

export function newToken(): string {
  return randomBytes(32).toString("hex");
}

export class Records implements E2bSandboxes {
  readonly #dir: string;
  readonly #runtime: Pick<Runtime, "registry">;
  readonly #log: Logger;
  readonly #records = new Map<string, E2bRecord>();
  readonly #adding = new Map<string, Promise<E2bRecord>>();

  private constructor(dir: string, { registry, log }: Pick<Runtime, "registry" | "log">) {
    this.#dir = dir;
    this.#runtime = { registry };
    this.#log = log;
  }

  /** Reads the records, and removes those of sandboxes that no longer exist. */
  static async open(runtime: Pick<Runtime, "config" | "registry" | "log">): Promise<Records> {
    const dir = join(runtime.config.dataDir, "e2b", "sandboxes");
    await mkdir(dir, { recursive: true, mode: 0o700 });
    const records = new Records(dir, runtime);
    for (const name of await readdir(dir)) await records.#read(name);
    return records;
  }

  async #read(name: string): Promise<void> {
    const id = name.replace(/\.json$/, "");
    const path = join(this.#dir, name);
    if (!sandboxIdPattern.test(id) || !this.#runtime.registry.find(id)) {
      await rm(path, { force: true });
      return;
    }
    const parsed = recordSchema.safeParse(await readJson(path).catch(() => undefined));
    if (parsed.success && parsed.data.id === id) this.#records.set(id, parsed.data);
    // A client that connects to the sandbox makes a new one.
    else this.#log.warn({ event: "e2b.record", outcome: "unreadable", sandbox: id, path });
  }

  get(id: string): E2bRecord | undefined {
    return this.#runtime.registry.find(id) ? this.#records.get(id) : undefined;
  }

  /** The record that the sandbox has, or this one: clients that connect at the same time get the same tokens. */
  add(record: E2bRecord): Promise<E2bRecord> {
    const { id } = record;
    const known = this.get(id);
    if (known) return Promise.resolve(known);
    const others = this.#adding.get(id);
    if (others) return others;
    const adding = this.set(record)
      .then(() => record)
      .finally(() => this.#adding.delete(id));
    this.#adding.set(id, adding);
    return adding;
  }

  /** In memory once it is on disk. */
  async set(record: E2bRecord): Promise<void> {
    await writeFileAtomic(this.#path(record.id), `${JSON.stringify(record)}\n`, 0o600);
    this.#records.set(record.id, record);
    // It may have been killed meanwhile.
    if (!this.#runtime.registry.find(record.id)) await this.forget(record.id);
  }

  /** Never rejects: the next start of the daemon removes what is left. */
  async forget(id: string): Promise<void> {
    if (!this.#records.delete(id)) return;
    await rm(this.#path(id), { force: true }).catch((error: unknown) =>
      this.#log.warn({ event: "e2b.record", outcome: "not removed", sandbox: id, error }),
    );
  }

  /** Forgets all sandboxes that no longer exist. */
  async prune(): Promise<void> {
    for (const id of [...this.#records.keys()]) if (!this.#runtime.registry.find(id)) await this.forget(id);
  }

  of(id: string): string | undefined {
    return this.get(id)?.token;
  }

  trafficTokenOf(id: string): string | undefined {
    return this.get(id)?.traffic_token;
  }

  *all(): Iterable<{ id: string; token: string }> {
    for (const { id, token } of this.#records.values())
      if (token !== undefined && this.#runtime.registry.find(id)) yield { id, token };
  }

  /** Who may reach the ports of a sandbox; undefined if it was not created with E2B's API. */
  portsOf(id: string): { readonly public: boolean; readonly token: string } | undefined {
    const record = this.get(id);
    if (!record) return undefined;
    const { traffic_token: token, has_public_ports: isPublic = token === undefined } = record;
    return { public: isPublic, token: token ?? newToken() };
  }

  defaultsOf(id: string): SandboxDefaults | undefined {
    const record = this.get(id);
    return record && { templateId: record.template_id, user: record.user, workdir: record.workdir };
  }

  #path(id: string): string {
    return join(this.#dir, `${id}.json`);
  }
}
