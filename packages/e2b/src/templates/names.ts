/**
 * Names of templates. A template is a snapshot: any tag is one. Templates that E2B's clients build, and
 * snapshots that they name, have a name with several builds; `e2b/templates.json` of the data directory has them.
 */
import { createHash, randomBytes, randomUUID } from "node:crypto";
import { mkdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { Mutex, readJson, writeFileAtomic } from "@forkd/base";
import { advice, AppError, tagPattern } from "@forkd/contract";
import type { Runtime } from "@forkd/runtime";
import { z } from "zod";
import { invalid } from "../control/answer.ts";

const maxTemplates = 10_000;
const namePattern = /^[A-Za-z0-9][A-Za-z0-9_-]{0,47}$/;
const tagNamePattern = /^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/;
const defaultTag = "default";

/** Templates that E2B's clients use without asking, the recipes that make them, and other names of recipes */
const wellKnown: Readonly<Record<string, string>> = {
  base: "base",
  "code-interpreter-v1": "code-interpreter",
};
const recipes = new Set(["base", "code-interpreter"]);

const buildSchema = z.object({
  id: z.uuid(),
  /** of the snapshot */
  tag: z.string().regex(tagPattern),
  created_at_unix: z.number(),
  env: z.record(z.string(), z.string()),
  user: z.string().optional(),
  workdir: z.string().optional(),
  cpu_count: z.number(),
  memory_mib: z.number(),
});
const templateSchema = z.object({
  id: z.string(),
  name: z.string().regex(namePattern),
  created_at_unix: z.number(),
  builds: z.array(buildSchema),
  /** tag of E2B → id of the build */
  tags: z.record(z.string(), z.string()),
});
const fileSchema = z.object({ version: z.literal(1), templates: z.array(templateSchema) });
export type Build = z.output<typeof buildSchema>;
type NamedTemplate = z.output<typeof templateSchema>;

/** What a sandbox is created from. */
export type Template = {
  /** as E2B's clients see it */
  readonly id: string;
  readonly alias?: string | undefined;
  /** of the snapshot */
  readonly tag: string;
  readonly env: Readonly<Record<string, string>>;
  readonly user?: string | undefined;
  readonly workdir?: string | undefined;
};

export type Target = { readonly name: string; readonly tags: readonly string[] };
type NewBuild = {
  /** of a template that does not exist yet; default: a new one */
  readonly templateId?: string;
  readonly id?: string;
  readonly tag: string;
  readonly env: Readonly<Record<string, string>>;
  readonly user?: string | undefined;
  readonly workdir?: string | undefined;
  readonly cpuCount: number;
  readonly memoryMib: number;
};

export function newTemplateId(): string {
  return randomBytes(10).toString("hex");
}

/** A tag for the snapshot of a build: a name may have many builds. */
export function snapshotTag(name: string, unique: string): string {
  return `${name}-${unique}`;
}

export class TemplateNames {
  readonly #path: string;
  /** name → tag, of the settings and of E2B itself */
  readonly #aliases: ReadonlyMap<string, string>;
  readonly #writing = new Mutex();
  #templates: readonly NamedTemplate[];

  private constructor(path: string, aliases: ReadonlyMap<string, string>, templates: NamedTemplate[]) {
    this.#path = path;
    this.#aliases = aliases;
    this.#templates = templates;
  }

  /** `aliases`: entries "NAME=TAG" */
  static async open(
    runtime: Pick<Runtime, "config" | "log">,
    aliases: readonly string[],
  ): Promise<TemplateNames> {
    const path = join(runtime.config.dataDir, "e2b", "templates.json");
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    const content = await readJson(path);
    const parsed = content === undefined ? undefined : fileSchema.safeParse(content);
    if (parsed && !parsed.success)
      throw new AppError("host_not_ready", `Cannot read the names of templates in ${path}`, {
        remedy: advice("Move the file away: the snapshots stay, their names for E2B's clients are lost."),
        cause: parsed.error,
      });
    const own = aliases.map((text) => aliasOf(text)).filter((each) => each !== undefined);
    return new TemplateNames(
      path,
      new Map([...Object.entries(wellKnown), ...own]),
      parsed?.data.templates ?? [],
    );
  }

  get all(): readonly NamedTemplate[] {
    return this.#templates;
  }

  get aliases(): ReadonlyMap<string, string> {
    return this.#aliases;
  }

  /** "name" or "name:tag" of a template that is to be made. */
  parse(text: string, tags: readonly string[] = []): Target {
    const [name = "", tag, ...rest] = text.split(":");
    if (!namePattern.test(name) || rest.length > 0)
      throw invalid("name", `"${text}" must be 1 to 48 letters, digits, dashes and underscores`);
    const all = [...(tag === undefined ? [] : [tag]), ...tags];
    const wrong = all.find((each) => !tagNamePattern.test(each));
    if (wrong !== undefined) throw invalid("tags", `"${wrong}" is not a tag`);
    if (this.#aliases.has(name))
      throw new AppError("already_exists", `The template name "${name}" is reserved`, {
        remedy: advice("Use another name."),
      });
    return { name, tags: all.length === 0 ? [defaultTag] : [...new Set(all)] };
  }

  /** Does not look whether the snapshot exists. */
  resolve(text: string): Template {
    const { name, tag } = partsOf(text);
    const template = this.find(name);
    if (template) {
      const build = template.builds.find(({ id }) => id === buildIdOf(template, tag));
      if (!build) throw this.unknown(text);
      const { env, user, workdir } = build;
      return { id: template.id, alias: template.name, tag: build.tag, env, user, workdir };
    }
    if (tag !== undefined && tag !== defaultTag) throw this.unknown(text);
    const alias = this.#aliases.get(name);
    if (alias !== undefined) return { id: alias, alias: name, tag: alias, env: {} };
    if (!tagPattern.test(name)) throw this.unknown(text);
    const built = this.#buildOfTag(name);
    return { id: name, tag: name, env: built?.env ?? {}, user: built?.user, workdir: built?.workdir };
  }

  /** By name or id. */
  find(name: string): NamedTemplate | undefined {
    return this.#templates.find((each) => each.name === name || each.id === name);
  }

  isBuilt(text: string): boolean {
    return this.find(partsOf(text).name) !== undefined;
  }

  /** The error of a call, as `unknown` if it says that there is no snapshot. */
  explain(text: string, error: unknown): unknown {
    return error instanceof AppError && error.code === "snapshot_not_found"
      ? this.unknown(text, error)
      : error;
  }

  unknown(text: string, cause?: unknown): AppError {
    const { name } = partsOf(text);
    const recipe = this.#aliases.get(name) ?? name;
    const how = recipes.has(recipe)
      ? `Run \`forkd build ${recipe}\`.`
      : "Every snapshot is a template: run `forkd images` to list them.";
    return new AppError("snapshot_not_found", `Cannot find template "${text.slice(0, 200)}"`, {
      details: { template: text.slice(0, 200) },
      remedy: advice(how),
      ...(cause !== undefined && { cause }),
    });
  }

  /** Names under which E2B's clients find a snapshot. */
  namesOfTag(tag: string): string[] {
    return this.#templates
      .filter(({ builds }) => builds.some((each) => each.tag === tag))
      .flatMap((template) => {
        const id = template.builds.find((each) => each.tag === tag)?.id;
        return Object.entries(template.tags)
          .filter(([, build]) => build === id)
          .map(([each]) => (each === defaultTag ? template.name : `${template.name}:${each}`));
      });
  }

  /** The snapshots that belong to a name or an id; a tag of a snapshot is one. */
  tagsOf(text: string): string[] {
    const { name, tag } = partsOf(text);
    const template = this.find(name);
    if (template) {
      const only = tag === undefined ? undefined : buildIdOf(template, tag);
      return template.builds.filter(({ id }) => tag === undefined || id === only).map((build) => build.tag);
    }
    return tag === undefined && tagPattern.test(name) && !this.#aliases.has(name) ? [name] : [];
  }

  /** Adds a build, to which the tags point from now on. */
  add({ name, tags }: Target, build: NewBuild): Promise<NamedTemplate> {
    const edit = (before: NamedTemplate) => {
      const made: Build = {
        id: build.id ?? randomUUID(),
        tag: build.tag,
        created_at_unix: Date.now() / 1000,
        env: { ...build.env },
        user: build.user,
        workdir: build.workdir,
        cpu_count: build.cpuCount,
        memory_mib: build.memoryMib,
      };
      const point = Object.fromEntries(tags.map((tag) => [tag, made.id]));
      return { ...before, builds: [...before.builds, made], tags: { ...before.tags, ...point } };
    };
    return this.#change(name, edit, build.templateId);
  }

  /** Lets tags point to the build that `text` names. */
  async assign(text: string, tags: readonly string[]): Promise<{ tags: string[]; buildId: string }> {
    const { name, tag } = partsOf(text);
    const template = this.find(name);
    const buildId = template && buildIdOf(template, tag);
    if (!template || buildId === undefined) throw this.unknown(text);
    const own = tags.map((each) => each.slice(each.indexOf(":") + 1));
    const wrong = own.find((each) => !tagNamePattern.test(each));
    if (wrong !== undefined) throw invalid("tags", `"${wrong}" is not a tag`);
    await this.#change(template.name, (before) => ({
      ...before,
      tags: { ...before.tags, ...Object.fromEntries(own.map((each) => [each, buildId])) },
    }));
    return { tags: own, buildId };
  }

  async unassign(text: string, tags: readonly string[]): Promise<void> {
    const template = this.find(partsOf(text).name);
    const missing = tags.find((tag) => !template || buildIdOf(template, tag) === undefined);
    if (!template || missing !== undefined) throw this.unknown(missing ? `${text}:${missing}` : text);
    await this.#change(template.name, (before) => ({
      ...before,
      tags: Object.fromEntries(Object.entries(before.tags).filter(([tag]) => !tags.includes(tag))),
    }));
  }

  /** Forgets a name, one tag of it, or the builds of a snapshot. */
  remove(text: string): Promise<void> {
    const doomed = new Set(this.tagsOf(text));
    const { name, tag } = partsOf(text);
    const whole = tag === undefined ? this.find(name) : undefined;
    return this.#write((all) =>
      all
        .filter((each) => each !== whole)
        .map((each) => {
          const builds = each.builds.filter((build) => !doomed.has(build.tag));
          const ids = new Set(builds.map(({ id }) => id));
          const tags = Object.fromEntries(Object.entries(each.tags).filter(([, build]) => ids.has(build)));
          return builds.length === each.builds.length ? each : { ...each, builds, tags };
        })
        .filter(({ builds }) => builds.length > 0),
    );
  }

  #buildOfTag(tag: string): Build | undefined {
    return this.#templates.flatMap(({ builds }) => builds).find((build) => build.tag === tag);
  }

  async #change(
    name: string,
    edit: (before: NamedTemplate) => NamedTemplate,
    newId = newTemplateId(),
  ): Promise<NamedTemplate> {
    let changed: NamedTemplate | undefined;
    await this.#write((all) => {
      const before = all.find((each) => each.name === name);
      changed = edit(before ?? { id: newId, name, created_at_unix: Date.now() / 1000, builds: [], tags: {} });
      return [...all.filter((each) => each !== before), changed];
    });
    if (!changed) throw new AppError("internal", `The template "${name}" was not written`);
    return changed;
  }

  #write(edit: (all: readonly NamedTemplate[]) => NamedTemplate[]): Promise<void> {
    return this.#writing.run(async () => {
      const templates = edit(this.#templates);
      if (templates.length > maxTemplates && templates.length > this.#templates.length)
        throw new AppError("capacity_exhausted", `There are ${maxTemplates} names of templates already`);
      await writeFileAtomic(this.#path, `${JSON.stringify({ version: 1, templates })}\n`, 0o600);
      this.#templates = templates;
    });
  }
}

/** A tag may have the name of something that every object has. */
function buildIdOf({ tags }: NamedTemplate, tag = defaultTag): string | undefined {
  return Object.hasOwn(tags, tag) ? tags[tag] : undefined;
}

/** E2B puts the name of a team before that of a template; here there are no teams. */
function partsOf(text: string): { name: string; tag: string | undefined } {
  const own = text.slice(text.lastIndexOf("/") + 1);
  const [name = "", tag] = own.split(":");
  return { name, tag };
}

export function aliasOf(text: string): [name: string, tag: string] | undefined {
  const [, name, tag] = /^([A-Za-z0-9][A-Za-z0-9_-]{0,47})=(.+)$/.exec(text) ?? [];
  return name !== undefined && tag !== undefined && tagPattern.test(tag) ? [name, tag] : undefined;
}

/** An id in the form that clients need, for a snapshot that was not built by them. */
export function uuidOf(tag: string): string {
  const hex = createHash("sha256").update(tag).digest("hex");
  return [8, 4, 4, 4, 12]
    .map((length, at, all) => {
      const start = all.slice(0, at).reduce((sum, each) => sum + each, 0);
      return hex.slice(start, start + length);
    })
    .join("-");
}
