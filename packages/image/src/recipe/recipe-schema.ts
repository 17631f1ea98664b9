/** The shape of recipe.json (docs/spec/recipe.md) and the digests made from it (pure). */
import { posix } from "node:path";
import { guestMemorySchema, networkModeSchema, requireSchema, ruleTextSchema } from "@forkd/contract";
import { z } from "zod";
import { builderVersion, digestOf } from "../files/digest.ts";

/** Mounted at boot; they hide files that an image has there. */
const hiddenDirectories = ["/proc", "/sys", "/dev", "/run", "/tmp"];

const noNul = (text: string): boolean => !text.includes("\0");
const line = z.string().refine(noNul, "must not contain a NUL byte");

const argument = line.max(131_072);
const argv = z
  .array(argument)
  .min(1, "must name a program")
  .max(1000)
  .refine((list) => list[0] !== "", "must name a program");

const guestPath = line
  .max(4096)
  .refine((path) => path.startsWith("/") && path !== "/", "must be an absolute path")
  .refine(
    (path) => posix.normalize(path) === path && !path.endsWith("/"),
    'must be a plain path without "..", "." or "//"',
  )
  .refine(
    (path) => !hiddenDirectories.some((each) => path === each || path.startsWith(`${each}/`)),
    `must not be in ${hiddenDirectories.join(", ")}: other file systems are mounted there at boot`,
  );

const recipePath = line
  .min(1)
  .max(4096)
  .refine(
    (path) => !path.startsWith("/") && !path.split("/").includes(".."),
    'must be a path inside the recipe, without ".."',
  );

const packageName = z
  .string()
  .max(128)
  .regex(/^[a-z0-9][a-z0-9+.-]+$/, "is not the name of a Debian package");

const fileMode = z.string().regex(/^[0-7]{3,4}$/, 'must be three or four octal digits, e.g. "0644"');

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

const service = z.strictObject({
  name: z
    .string()
    .regex(
      /^[A-Za-z0-9][A-Za-z0-9._-]{0,47}$/,
      "must be 1 to 48 of letters, digits, dot, underscore and dash",
    )
    .optional(),
  argv,
  ready: z.strictObject({ port: z.int().min(1).max(65_535) }).optional(),
});

function isEachOnce(names: readonly string[]): boolean {
  return new Set(names).size === names.length;
}

export const recipeSchema = z.strictObject({
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
        .default("bookworm"),
      packages: z.array(packageName).max(1000).default([]),
    })
    .prefault({}),
  files: z
    .array(z.strictObject({ from: recipePath, to: guestPath, mode: fileMode.optional() }))
    .max(1000)
    .default([]),
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
  memory_mib: guestMemorySchema.default(512),
  vcpus: z.int().min(1).max(64).default(1),
  disk_mib: z.int().min(64).max(1_048_576).default(2048),
  env: z
    .record(
      z.string().regex(/^[A-Za-z_][A-Za-z0-9_]{0,255}$/, "is not the name of a variable"),
      line.max(131_072),
    )
    .refine((env) => Object.keys(env).length <= 1000, "must have at most 1000 variables")
    .default({}),
  require: requireSchema.optional(),
  /** network of the children; the runtime checks the rules, whose presets belong to the installation */
  network: z
    .strictObject({
      mode: networkModeSchema.optional(),
      rules: z.array(ruleTextSchema).max(1000).optional(),
    })
    .optional(),
});

export type ParsedRecipe = z.output<typeof recipeSchema>;

/** A recipe with the content of its warm-up files. */
export type RecipeSpec = Omit<ParsedRecipe, "languages"> & {
  languages: Partial<Record<keyof ParsedRecipe["languages"], { warmup: string; rehearse?: string }>>;
};

/** One file, directory or link that a recipe adds to the guest. */
export type RecipeFile = {
  /** path on the host */
  source: string;
  /** path in the guest */
  to: string;
  /** permission bits */
  mode: number;
} & ({ type: "file"; sha256: string } | { type: "directory" } | { type: "link"; target: string });

/** The digest of a recipe's root file system. */
export function rootfsDigest(spec: RecipeSpec, files: readonly RecipeFile[]): string {
  return digestOf({
    builderVersion,
    base: { suite: spec.base.suite, packages: sortedPackages(spec) },
    // The order matters if two entries have the same target: the later one wins.
    files: files.map(({ source: _source, ...rest }) => rest),
    disk_mib: spec.disk_mib,
  });
}

/** The digest of everything that changes the snapshot; the description does not. */
export function recipeDigest(spec: RecipeSpec, rootfs: string): string {
  const { version, run, languages, services, memory_mib, vcpus, env, network, require: hazards } = spec;
  const facts = { rootfs, version, run, languages, services, memory_mib, vcpus, env };
  // Absent keys do not count, so that a recipe without them keeps its digest.
  return digestOf({ ...facts, ...(network && { network }), ...(hazards && { require: hazards }) });
}

/** Each package once, sorted. */
export function sortedPackages(spec: RecipeSpec): string[] {
  return [...new Set(spec.base.packages)].sort();
}
