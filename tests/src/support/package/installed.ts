/** The published package: packed from this tree, and installed in an empty project as a user does. */
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdir, readFile, symlink, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { repository } from "../places.ts";

/** Much longer than npm and a fork take on a slow host. A program that exceeds it hangs. */
const deadlineMs = 300_000;

export type Finished = { code: number | null; stdout: string; stderr: string };

/** Runs a program to its end. */
export function run(
  program: string,
  args: readonly string[],
  { input = "", ...options }: { cwd: string; env?: NodeJS.ProcessEnv; input?: string },
): Promise<Finished> {
  const child = spawn(program, args, { ...options, stdio: "pipe", timeout: deadlineMs });
  child.stdin.on("error", () => undefined);
  child.stdin.end(input);
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (chunk: Buffer) => (stdout += chunk.toString()));
  child.stderr.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => resolve({ code, stdout, stderr }));
  });
}

/** The same, for a program that must succeed. */
export async function mustRun(...call: Parameters<typeof run>): Promise<string> {
  const { code, stdout, stderr } = await run(...call);
  assert.equal(code, 0, `${call[0]} ${call[1].join(" ")}\n${stderr}\n${stdout}`);
  return stdout;
}

export type PackedFile = { path: string; size: number; mode: number };
export type Packed = {
  tarball: string;
  sha256: string;
  files: PackedFile[];
  size: number;
  unpackedSize: number;
};

/** `npm pack` with its `prepack`. */
export async function pack(into: string): Promise<Packed> {
  await mkdir(into, { recursive: true });
  const args = ["pack", "--json", "--pack-destination", into];
  const [listed] = JSON.parse(await mustRun("npm", args, { cwd: join(repository, "packages/forkd") })) as [
    { filename: string; files: PackedFile[]; size: number; unpackedSize: number },
  ];
  const tarball = join(into, listed.filename);
  const sha256 = createHash("sha256")
    .update(await readFile(tarball))
    .digest("hex");
  return { ...listed, tarball, sha256 };
}

/** Installs the tarball in an empty project; returns the directory of the project. */
export async function install({ tarball }: Packed, into: string): Promise<string> {
  const app = join(into, "app");
  await mkdir(app, { recursive: true });
  await writeFile(join(app, "package.json"), '{ "private": true, "type": "module" }\n');
  // Setting up the tree has left the same dependencies in npm's cache.
  const args = ["install", "--prefer-offline", "--no-audit", "--no-fund", tarball];
  await mustRun("npm", args, { cwd: app });
  return app;
}

/** Checks a program with the compiler; returns the path of what it compiled to. */
export async function compile(
  app: string,
  source: string,
  options: {
    name: string;
    module: "nodenext" | "esnext";
    resolution: "nodenext" | "bundler";
    node?: boolean;
  },
): Promise<string> {
  const { name, module, resolution, node = true } = options;
  const dir = join(app, name);
  await mkdir(dir);
  await writeFile(join(dir, "program.ts"), source);
  if (node) {
    await mkdir(join(dir, "node_modules/@types"), { recursive: true });
    for (const each of ["@types/node", "undici-types"])
      await symlink(join(repository, "node_modules", each), join(dir, "node_modules", each));
  }
  const compilerOptions = {
    target: "es2022",
    lib: ["es2022", "esnext.disposable", ...(node ? [] : ["dom", "dom.asynciterable"])],
    types: node ? ["node"] : [],
    module,
    moduleResolution: resolution,
    strict: true,
    exactOptionalPropertyTypes: true,
    // The declarations of the package are checked too.
    skipLibCheck: false,
    outDir: "out",
  };
  await writeFile(
    join(dir, "tsconfig.json"),
    JSON.stringify({ compilerOptions, files: ["program.ts"] }, undefined, 2),
  );
  await mustRun(join(repository, "node_modules/.bin/tsc"), ["-p", dir], { cwd: app });
  return join(dir, "out/program.js");
}

/** `from "x"`, `import "x"` and `import("x")`, as the compiler prints them. */
const statement = /(?:^(?:import|export|\}) ?(?:[^"\n;]*? from )?|\bimport\()"([^"\n]+)"/gm;

/** Everything that a module imports, directly or not: files of the package, and names of other modules. */
export async function importsOf(entry: string): Promise<{ files: Set<string>; others: Set<string> }> {
  const files = new Set<string>();
  const others = new Set<string>();
  const open = [entry];
  for (let file = open.pop(); file !== undefined; file = open.pop()) {
    if (files.has(file)) continue;
    files.add(file);
    const text = await readFile(file, "utf8");
    for (const [, specifier = ""] of text.matchAll(statement)) {
      if (specifier.startsWith(".")) open.push(join(dirname(file), specifier));
      else others.add(specifier);
    }
  }
  return { files, others };
}
