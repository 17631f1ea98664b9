/** The modules of our packages that a compiled module needs, so that it can run where they are not installed. */
import { readdir, readFile } from "node:fs/promises";
import { dirname, join, normalize } from "node:path";
import { repository } from "./places.ts";

const fromPackage = /^import \{([^}]*)\} from "@forkd\/([\w-]+)";/gm;
const fromFile = /^(?:import|export) [^"]* from "(\.{1,2}\/[^"]+)";/gm;

/** `file` is relative to the compiled sources of the package; `names` are what importers of the package use. */
type Module = { readonly file: string; readonly text: string; readonly names: Set<string> };
type Closure = ReadonlyMap<string, ReadonlyMap<string, Module>>;

/**
 * Follows the imports of `text`. Returns the modules by package and file: those that define an imported name,
 * and what these import in turn. The index of a package is not followed, because it needs all of the package.
 */
export async function closureOf(text: string): Promise<Closure> {
  const found = new Map<string, Map<string, Module>>();
  const add = async (name: string, file: string): Promise<Module> => {
    const modules = found.get(name) ?? new Map<string, Module>();
    found.set(name, modules);
    const known = modules.get(file);
    if (known) return known;
    const module = {
      file,
      text: await readFile(join(sourcesOf(name), file), "utf8"),
      names: new Set<string>(),
    };
    modules.set(file, module);
    await follow(module.text);
    for (const [, path = ""] of module.text.matchAll(fromFile))
      await add(name, normalize(join(dirname(file), path)));
    return module;
  };
  const follow = async (source: string): Promise<void> => {
    for (const [, names = "", from = ""] of source.matchAll(fromPackage))
      for (const each of names
        .split(",")
        .map((name) => name.trim().split(" ")[0] ?? "")
        .filter(Boolean))
        (await add(from, await definer(from, each))).names.add(each);
  };
  await follow(text);
  return found;
}

function sourcesOf(name: string): string {
  return join(repository, "packages", name, "dist/src");
}

async function definer(name: string, symbol: string): Promise<string> {
  const definition = new RegExp(`^export (?:async )?(?:function\\*?|class|const|let) ${symbol}\\b`, "m");
  const files = (await readdir(sourcesOf(name), { recursive: true })).filter((file) => file.endsWith(".js"));
  for (const file of files.sort())
    if (definition.test(await readFile(join(sourcesOf(name), file), "utf8"))) return file;
  throw new Error(`No module of ${name} defines ${symbol}`);
}
