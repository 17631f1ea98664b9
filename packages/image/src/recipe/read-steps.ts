/** Reads the steps of a recipe in the order in which they run, with the content of their files. */
import { basename, posix } from "node:path";
import { sha256File } from "../files/digest.ts";
import { parseDockerfile } from "./dockerfile.ts";
import { Invalid } from "./invalid.ts";
import { describeIssues, wordIssue } from "./recipe-issues.ts";
import { addEntry, fileInRecipe, readText, type FileEntry, type RecipeFile } from "./recipe-files.ts";
import { maxSteps, type ParsedRecipe } from "./recipe-schema.ts";
import { isLocal, stepSchema, type LocalPackage, type RecipeStep, type WrittenStep } from "./step-schema.ts";

const maxDockerfileBytes = 1 << 20;

/** Whether the recipe has steps; its `files` are one of them then. */
export function hasSteps({ from, apt, pip, npm, steps, dockerfile }: ParsedRecipe): boolean {
  return [from, apt, pip, npm, steps, dockerfile].some((each) => each !== undefined);
}

/** apt, pip, npm, files, then `steps` or those of the Dockerfile. */
export async function readSteps(
  root: string,
  parsed: ParsedRecipe,
  files: readonly FileEntry[],
): Promise<RecipeStep[]> {
  if (!hasSteps(parsed)) return [];
  const { apt, pip, npm } = parsed;
  if (parsed.steps && parsed.dockerfile !== undefined)
    throw new Invalid("dockerfile: the recipe has steps, too; give one of them");
  const steps: RecipeStep[] = [];
  if (apt) steps.push(await readStep(root, "", { apt }));
  if (pip) steps.push(await readStep(root, "", { pip }));
  if (npm) steps.push(await readStep(root, "", { npm }));
  if (files.length > 0) {
    const read: RecipeFile[] = [];
    for (const entry of files) await addEntry(read, entry);
    const below = read.map((file) => ({ ...file, to: file.to.slice(1) }));
    steps.push({ kind: "copy", from: `${files.length} files`, to: "/", files: below });
  }
  for (const [index, step] of (parsed.steps ?? []).entries())
    steps.push(await readStep(root, `steps[${index}].`, step));
  if (parsed.dockerfile !== undefined) steps.push(...(await readDockerfile(root, parsed.dockerfile)));
  if (steps.length > maxSteps) throw new Invalid(`steps: there are ${steps.length}, more than ${maxSteps}`);
  return steps;
}

/** The paths in the recipe's directory that its steps name. */
export async function stepPaths(root: string, parsed: ParsedRecipe): Promise<string[]> {
  const { dockerfile, apt, pip, npm } = parsed;
  const text =
    dockerfile === undefined
      ? ""
      : await readText(root, "dockerfile", { path: dockerfile, maxBytes: maxDockerfileBytes });
  const steps: WrittenStep[] = [
    { apt, pip, npm },
    ...(parsed.steps ?? []),
    ...parseDockerfile(text).map(({ step }) => step),
  ];
  const named = steps.flatMap((step) => [
    ...(step.copy ? [step.copy.from] : []),
    ...[...(step.pip ?? []), ...(step.npm ?? [])].filter(isLocal),
  ]);
  return [...(dockerfile === undefined ? [] : [dockerfile]), ...named];
}

async function readDockerfile(root: string, path: string): Promise<RecipeStep[]> {
  const text = await readText(root, "dockerfile", { path, maxBytes: maxDockerfileBytes });
  const steps: RecipeStep[] = [];
  for (const { line, step } of parseDockerfile(text)) {
    const parsed = stepSchema.safeParse(step, { error: wordIssue });
    if (!parsed.success) throw new Invalid(`dockerfile: line ${line}: ${describeIssues(parsed.error)}`);
    steps.push(await readStep(root, `dockerfile: line ${line}: `, parsed.data));
  }
  return steps;
}

/** `field` is the place of the step for messages. */
async function readStep(root: string, field: string, step: WrittenStep): Promise<RecipeStep> {
  if (step.run !== undefined)
    return typeof step.run === "string"
      ? { kind: "run", argv: ["/bin/sh", "-c", step.run], text: step.run }
      : { kind: "run", argv: step.run, text: step.run.join(" ") };
  if (step.copy) {
    const files: RecipeFile[] = [];
    const { from, to, mode } = step.copy;
    // A target like "dir/" or "." is the directory in which a file keeps its name.
    await addEntry(files, { root, field: `${field}copy`, entry: { from, to: "", mode } });
    const isInto = /(^|\/)\.{0,2}$/.test(to) && files[0]?.type === "file";
    return { kind: "copy", from, to: isInto ? posix.join(to, basename(from)) : to, files };
  }
  if (step.env) return { kind: "env", env: step.env };
  if (step.workdir !== undefined) return { kind: "workdir", path: step.workdir };
  if (step.user !== undefined) return { kind: "user", user: step.user };
  for (const kind of ["pip", "npm", "apt"] as const) {
    const given = step[kind];
    if (given === undefined) continue;
    const local: LocalPackage[] = [];
    for (const [index, path] of given.entries()) {
      if (!isLocal(path)) continue;
      const source = await fileInRecipe(root, `${field}${kind}[${index}]`, path);
      local.push({ source, name: basename(path), sha256: await sha256File(source) });
    }
    return { kind, packages: given.filter((each) => !isLocal(each)), local };
  }
  throw new Invalid(`${field} has no content`);
}
