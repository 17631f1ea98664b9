/** The presets of this installation: the bundled ones, changed or extended by presets.json. */
import { Mutex, readJson, writeFileAtomic } from "@forkd/base";
import { AppError, ruleTextSchema, type PresetInfo } from "@forkd/contract";
import { builtInPresets, expandPresets, parseRules, type Presets } from "@forkd/egress";
import { z } from "zod";

const fileSchema = z.strictObject({
  version: z.literal(1),
  presets: z.record(z.string().regex(/^[a-z][a-z0-9-]{0,31}$/), z.array(ruleTextSchema).min(1)),
});

export class PresetFile {
  readonly #path: string | undefined;
  #own: Presets;
  readonly #writes = new Mutex();

  private constructor(path: string | undefined, own: Presets) {
    this.#path = path;
    this.#own = own;
  }

  /** Without a path only the bundled ones. */
  static bundled(): PresetFile {
    return new PresetFile(undefined, {});
  }

  /** Throws `host_not_ready` if the file cannot be used: rules that name a preset would mean something else. */
  static async open(path: string): Promise<PresetFile> {
    const content = await readJson(path);
    if (content === undefined) return new PresetFile(path, {});
    const parsed = fileSchema.safeParse(content);
    if (!parsed.success)
      throw new AppError("host_not_ready", `Cannot use ${path}: ${z.prettifyError(parsed.error)}`, {
        details: { file: path },
      });
    for (const rules of Object.values(parsed.data.presets)) parseRules(rules, builtInPresets);
    return new PresetFile(path, parsed.data.presets);
  }

  get #all(): Presets {
    return { ...builtInPresets, ...this.#own };
  }

  expand(rules: readonly string[]): string[] {
    return expandPresets(rules, this.#all);
  }

  list(): PresetInfo[] {
    return Object.entries(this.#all)
      .map(([name, rules]): PresetInfo => {
        const isBundled = Object.hasOwn(builtInPresets, name);
        const isOwn = Object.hasOwn(this.#own, name);
        return { name, rules: [...rules], origin: isOwn ? (isBundled ? "changed" : "added") : "bundled" };
      })
      .toSorted((a, b) => (a.name < b.name ? -1 : 1));
  }

  /** Throws `invalid_request` for rules that cannot be read. */
  async set(name: string, rules: readonly string[]): Promise<PresetInfo> {
    parseRules(rules, {});
    await this.#write({ ...this.#own, [name]: [...rules] });
    return this.list().find((preset) => preset.name === name) as PresetInfo;
  }

  async remove(name: string): Promise<void> {
    if (!Object.hasOwn(this.#own, name)) {
      const isBundled = Object.hasOwn(builtInPresets, name);
      const why = isBundled ? "it is bundled and was not changed" : "there is no such preset";
      throw new AppError("not_found", `Cannot remove preset "${name}": ${why}`, { details: { name } });
    }
    const { [name]: _, ...rest } = this.#own;
    await this.#write(rest);
  }

  async #write(presets: Presets): Promise<void> {
    await this.#writes.run(async () => {
      if (this.#path !== undefined)
        await writeFileAtomic(this.#path, `${JSON.stringify({ version: 1, presets }, undefined, 2)}\n`);
      this.#own = presets;
    });
  }
}
