/** Copies the modules that a guest needs from a directory of modules (`/lib/modules/<release>`). */
import { copyFile, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { isErrno } from "@forkd/base";
import { advice, AppError } from "@forkd/contract";
import {
  formatModulesDep,
  loadOrder,
  moduleName,
  readModuleDepends,
  requiredModules,
  wantedModules,
} from "./modules.ts";
import { runTool } from "../tool.ts";

const unpackers: Readonly<Record<string, readonly [string, ...string[]]>> = {
  ".xz": ["xz", "-d"],
  ".zst": ["zstd", "-q", "-d", "--rm"],
  ".gz": ["gzip", "-d"],
};

/** Copies the wanted modules and their dependencies, uncompressed, with their own modules.dep. */
export async function copyModules(from: string, to: string, signal?: AbortSignal): Promise<void> {
  const builtin = await readFile(join(from, "modules.builtin"), "utf8").catch((error: unknown) => {
    if (!isErrno(error, "ENOENT", "ENOTDIR")) throw error;
    throw new AppError("invalid_image", `Cannot use the modules in "${from}": there is no modules.builtin`, {
      cause: error,
    });
  });
  const files = (await readdir(from, { recursive: true })).filter((file) =>
    /\.ko(\.(xz|zst|gz))?$/.test(file),
  );
  const byName = new Map(files.map((file) => [moduleName(file), file]));
  const dependencies = new Map<string, string[]>();
  const take = async (name: string): Promise<string | undefined> => {
    const file = byName.get(moduleName(name));
    if (file === undefined) return undefined;
    const path = file.replace(/\.(xz|zst|gz)$/, "");
    if (dependencies.has(path)) return path;
    const needs: string[] = [];
    dependencies.set(path, needs);
    const content = await copyModule(join(from, file), join(to, path), signal);
    for (const each of readModuleDepends(content)) {
      const need = await take(each);
      if (need !== undefined) needs.push(need);
    }
    return path;
  };
  await mkdir(to);
  for (const name of wantedModules) await take(name);
  requireModules(loadOrder(wantedModules, dependencies, builtin).missing);
  await writeFile(join(to, "modules.dep"), formatModulesDep(dependencies));
  await writeFile(join(to, "modules.builtin"), builtin);
}

/** Throws `invalid_image` when a required module is missing. */
export function requireModules(missing: readonly string[]): void {
  const lacking = missing.filter((name) => requiredModules.has(name));
  if (lacking.length === 0) return;
  throw new AppError("invalid_image", `Cannot boot with this kernel: it lacks ${lacking.join(", ")}`, {
    remedy: advice("Use another kernel."),
  });
}

async function copyModule(
  source: string,
  target: string,
  signal: AbortSignal | undefined,
): Promise<Uint8Array> {
  await mkdir(dirname(target), { recursive: true });
  const suffix = /\.ko(\.\w+)$/.exec(source)?.[1] ?? "";
  await copyFile(source, target + suffix);
  const unpacker = unpackers[suffix];
  if (unpacker !== undefined) {
    const [program, ...args] = unpacker;
    await runTool(program, [...args, target + suffix], { signal });
  }
  return await readFile(target);
}
