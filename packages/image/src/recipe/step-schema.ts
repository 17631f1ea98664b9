/**
 * The steps of a recipe: how they are written (`stepSchema`), and what is left to do once their files are read
 * (`RecipeStep`). Pure.
 */
import { z } from "zod";
import { argv, fileMode, line, packageName, recipePath, variables } from "./fields.ts";
import type { RecipeFile } from "./recipe-files.ts";

const maxPackages = 500;
/** A file of the recipe instead of a name of the registry. */
const localFile = /^\.\/.*[^/]$/;

/** Whether an entry of a list of packages is a file of the recipe. */
export function isLocal(text: string): boolean {
  return localFile.test(text) && !text.split("/").includes("..");
}

/** PEP 508 without URLs: they would be fetched from anywhere. */
const requirement =
  /^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?(\s*\[[A-Za-z0-9._, -]*\])?\s*((===|==|~=|!=|<=|>=|<|>)[^;@]*)?(;[^;]*)?$/;
const npmPackage = /^(@[a-z0-9~][a-z0-9._~-]*\/)?[a-z0-9~][a-z0-9._~-]*(@[A-Za-z0-9.^~<>=|* +-]+)?$/;

const pipPackage = line
  .max(500)
  .refine(
    (text) => (isLocal(text) ? text.endsWith(".whl") : requirement.test(text)),
    'must be a requirement like "numpy==1.26.4", or a wheel of the recipe like "./wheels/x-1.0-py3-none-any.whl"',
  );

const nodePackage = line
  .max(500)
  .refine(
    (text) => (isLocal(text) ? /\.(tgz|tar\.gz)$/.test(text) : npmPackage.test(text)),
    'must be a package like "lodash@4.17.21", or an archive of the recipe like "./x-1.0.0.tgz"',
  );

/** A version is written as apt has it: "curl=7.88.1-10+deb12u8". */
const aptPackage = line
  .max(200)
  .refine(
    (text) =>
      /^[^=]+(=[A-Za-z0-9][A-Za-z0-9.+:~-]*)?$/.test(text) &&
      packageName.safeParse(text.split("=")[0]).success,
    'must be a Debian package like "curl", or with its version like "curl=7.88.1-10"',
  );

export const pipList = z.array(pipPackage).min(1, "must name a package").max(maxPackages);
export const npmList = z.array(nodePackage).min(1, "must name a package").max(maxPackages);
export const aptList = z.array(aptPackage).min(1, "must name a package").max(maxPackages);

export const userName = z
  .string()
  .regex(/^[a-z_][a-z0-9_-]{0,31}$|^[0-9]{1,9}$/, "is not the name or the number of a user");

const kinds = ["run", "copy", "env", "workdir", "user", "pip", "npm", "apt"] as const;

export const stepSchema = z
  .strictObject({
    run: z
      .union([line.min(1).max(131_072), argv], { error: "must be shell text or a list of arguments" })
      .optional(),
    copy: z
      .strictObject({ from: recipePath, to: line.min(1).max(4096), mode: fileMode.optional() })
      .optional(),
    env: variables.optional(),
    workdir: line.min(1).max(4096).optional(),
    user: userName.optional(),
    pip: pipList.optional(),
    npm: npmList.optional(),
    apt: aptList.optional(),
  })
  .refine((step) => Object.keys(step).length === 1, `must have exactly one of ${kinds.join(", ")}`);
export type WrittenStep = z.output<typeof stepSchema>;

/** A package file of the recipe that a step installs. */
export type LocalPackage = { source: string; name: string; sha256: string };

export type RecipeStep =
  | { kind: "run"; argv: readonly string[]; text: string }
  /** The paths of the files are below the target of the step; "" is the target itself. */
  | { kind: "copy"; from: string; to: string; files: readonly RecipeFile[] }
  | { kind: "env"; env: Readonly<Record<string, string>> }
  | { kind: "workdir"; path: string }
  | { kind: "user"; user: string }
  | {
      kind: "pip" | "npm" | "apt";
      /** as written, without those of the recipe */
      packages: readonly string[];
      local: readonly LocalPackage[];
    };

/** The step without paths of the host: the part of it that digests cover. */
export function stepFacts(step: RecipeStep): unknown {
  switch (step.kind) {
    case "run":
      return { kind: step.kind, argv: step.argv };
    case "copy":
      return { kind: step.kind, to: step.to, files: withoutSources(step.files) };
    case "pip":
    case "npm":
    case "apt":
      return { kind: step.kind, packages: step.packages, local: withoutSources(step.local) };
    default:
      return step;
  }
}

/** Where the files were on the host does not change the image. */
export function withoutSources<T extends { source: string }>(files: readonly T[]): Omit<T, "source">[] {
  return files.map(({ source: _source, ...rest }) => rest);
}

/** One line for a person: `RUN make`, `COPY app /opt/app`. */
export function stepLabel(step: RecipeStep): string {
  switch (step.kind) {
    case "run":
      return `RUN ${step.text}`;
    case "copy":
      return `COPY ${step.from} ${step.to}`;
    case "env":
      return `ENV ${Object.keys(step.env).join(" ")}`;
    case "workdir":
      return `WORKDIR ${step.path}`;
    case "user":
      return `USER ${step.user}`;
    default:
      return `${step.kind.toUpperCase()} ${[...step.packages, ...step.local.map(({ name }) => name)].join(" ")}`;
  }
}
