/** The shape of recipe.json (docs/spec/recipe.md) and the digests made from it (pure). */
import {
  guestMemorySchema,
  networkModeSchema,
  requireSchema,
  ruleTextSchema,
  tagPattern,
} from "@forkd/contract";
import { z } from "zod";
import { builderVersion, digestOf } from "../files/digest.ts";
import { argv, fileMode, guestPath, line, packageName, recipePath, variables } from "./fields.ts";
import type { RecipeFile } from "./recipe-files.ts";
import {
  aptList,
  npmList,
  pipList,
  stepFacts,
  stepSchema,
  withoutSources,
  type RecipeStep,
} from "./step-schema.ts";

export const maxWarmupBytes = 1 << 20;
const maxRehearsalBytes = 1 << 16;

const kernel = z
  .strictObject({
    warmup: line.max(maxWarmupBytes).optional(),
    warmup_file: recipePath.optional(),
    rehearse: line.max(maxRehearsalBytes).optional(),
  })
  .refine(
    ({ warmup, warmup_file }) => warmup === undefined || warmup_file === undefined,
    "has both warmup and warmup_file; give one of them",
  );

const service = z
  .strictObject({
    name: z
      .string()
      .regex(
        /^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$/,
        "must be 1 to 48 of letters, digits, dot, underscore and dash",
      )
      .optional(),
    argv: argv.optional(),
    /** ENTRYPOINT and CMD of the base image instead of argv */
    entrypoint: z.literal(true).optional(),
    ready: z.strictObject({ port: z.int().min(1).max(65_535) }).optional(),
  })
  .refine(
    ({ argv, entrypoint }) => (argv === undefined) !== (entrypoint === undefined),
    'needs either argv or "entrypoint": true',
  );

function isEachOnce(names: readonly string[]): boolean {
  return new Set(names).size === names.length;
}

/** A manifest has at most 64 disk layers, one of which the parent writes. */
export const maxSteps = 60;
const maxFilesOf = 8;

const fromSchema = line
  .max(4096)
  .refine(
    (text) => isRecipePath(text) || tagPattern.test(text),
    'must be a bundled recipe, the tag of a snapshot, or a recipe beside this one, e.g. "./other"',
  );

/** Whether `from` names a directory and not a tag. */
export function isRecipePath(from: string): boolean {
  return from.startsWith("./") || from.startsWith("../");
}

export const recipeSchema = z
  .strictObject({
    version: z.literal(1),
    description: z
      .string()
      .max(500)
      .regex(/^[^\r\n]*$/, "must be one line")
      .default(""),
    base: z
      .strictObject({
        suite: z
          .string()
          .regex(/^[a-z][a-z0-9-]{0,31}$/, "is not the name of a Debian suite")
          .optional(),
        packages: z.array(packageName).max(1000).optional(),
        /** a container image instead of Debian packages */
        image: line.min(1).max(4096).optional(),
      })
      .refine(
        ({ image, suite, packages }) =>
          image === undefined || (suite === undefined && packages === undefined),
        "has both an image and Debian packages; give one of them",
      )
      .transform(({ suite = "bookworm", packages = [], image }) => ({
        suite,
        packages,
        ...(image !== undefined && { image }),
      }))
      .prefault({}),
    /** the recipe or snapshot that this one extends, instead of `base` */
    from: fromSchema.optional(),
    apt: aptList.optional(),
    pip: pipList.optional(),
    npm: npmList.optional(),
    files: z
      .array(z.strictObject({ from: recipePath, to: guestPath, mode: fileMode.optional() }))
      .max(1000)
      .default([]),
    /** recipes whose `files` this one has, too */
    files_of: z
      .array(
        line
          .max(4096)
          .refine(
            isRecipePath,
            'must be the path of a recipe that begins with "./" or "../", e.g. "../other"',
          ),
      )
      .max(maxFilesOf)
      .default([]),
    steps: z.array(stepSchema).max(maxSteps).optional(),
    dockerfile: recipePath.optional(),
    run: z.array(argv).max(100).default([]),
    languages: z.strictObject({ python: kernel.optional(), node: kernel.optional() }).default({}),
    services: z
      .array(service)
      .max(32)
      .refine(
        (services) => isEachOnce(services.flatMap(({ name }) => name ?? [])),
        "two services have the same name",
      )
      .default([]),
    memory_mib: guestMemorySchema.optional(),
    vcpus: z.int().min(1).max(64).optional(),
    disk_mib: z.int().min(64).max(1_048_576).default(2048),
    env: variables.default({}),
    require: requireSchema.optional(),
    /** network of the children; the runtime checks the rules, whose presets belong to the installation */
    network: z
      .strictObject({
        mode: networkModeSchema.optional(),
        rules: z.array(ruleTextSchema).max(1000).optional(),
      })
      .optional(),
  })
  .refine(
    ({ base, services }) => base.image !== undefined || !services.some(({ entrypoint }) => entrypoint),
    { path: ["services"], message: '"entrypoint" needs a base.image' },
  );

export type ParsedRecipe = z.output<typeof recipeSchema>;

/** A recipe with the content of its warm-up files. Its shape is that of the recipe that it extends, if absent. */
export type RecipeSpec = Omit<
  ParsedRecipe,
  "apt" | "dockerfile" | "languages" | "memory_mib" | "npm" | "pip" | "steps" | "vcpus"
> & {
  languages: Partial<Record<keyof ParsedRecipe["languages"], { warmup: string; rehearse?: string }>>;
  memory_mib: number | undefined;
  vcpus: number | undefined;
};

/** The digest of a recipe's root file system; of a base image it covers the name only. */
export function rootfsDigest(spec: RecipeSpec, files: readonly RecipeFile[]): string {
  const debian = { suite: spec.base.suite, packages: sortedPackages(spec) };
  return digestOf({
    builderVersion,
    base: spec.base.image === undefined ? debian : { image: spec.base.image },
    // The order matters if two entries have the same target: the later one wins.
    files: withoutSources(files),
    disk_mib: spec.disk_mib,
  });
}

/** The digest of everything that changes the snapshot; the description does not. */
export function recipeDigest(
  spec: RecipeSpec,
  { rootfs, steps, parent }: { rootfs: string; steps: readonly RecipeStep[]; parent: string | undefined },
): string {
  const { version, run, languages, services, memory_mib, vcpus, env, network, require: hazards, from } = spec;
  const base = from === undefined ? { rootfs } : { from, ...(parent !== undefined && { parent }) };
  const facts = { ...base, version, run, languages, services, memory_mib, vcpus, env };
  // Absent keys do not count, so that a recipe without them keeps its digest.
  return digestOf({
    ...facts,
    ...(network && { network }),
    ...(hazards && { require: hazards }),
    ...(steps.length > 0 && { steps: steps.map(stepFacts) }),
  });
}

/** Each package once, sorted. */
export function sortedPackages(spec: RecipeSpec): string[] {
  return [...new Set(spec.base.packages)].sort();
}
