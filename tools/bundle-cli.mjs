/**
 * Makes packages/cli/dist/bundle/forkd.cjs from the compiled modules: the CLI, the SDK and commander in one file
 * (docs/decisions/0020-the-cli-is-one-file.md). Run after `tsc -b`. Takes 0.1 s.
 *
 *   node tools/bundle-cli.mjs
 */
import { chmodSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "esbuild";

const root = fileURLToPath(new URL("..", import.meta.url)).replace(/\/$/, "");
const modules = join(root, "packages/cli/dist/src");
const outfile = join(root, "packages/cli/dist/bundle/forkd.cjs");
const outsidePackages = /^@forkd\/(daemon|mcp|registry)$/;

/** Modules find files relative to themselves; in the bundle they still do. */
const ownPlaces = {
  name: "own-places",
  setup(builder) {
    builder.onLoad({ filter: /\/dist\/src\/.*\.js$/ }, ({ path }) => {
      const text = readFileSync(path, "utf8");
      if (!text.includes("import.meta.url")) return undefined;
      const place = JSON.stringify(relative(dirname(outfile), path));
      return { contents: text.replaceAll("import.meta.url", `new URL(${place}, bundleUrl)`), loader: "js" };
    });
  },
};

/** The entry runs the modules themselves for a verb that needs one of these packages. */
const outside = {
  name: "outside",
  setup(builder) {
    builder.onResolve({ filter: /\/main\.js$/ }, () => ({
      path: relative(dirname(outfile), join(modules, "main.js")),
      external: true,
    }));
    builder.onResolve({ filter: outsidePackages }, ({ path }) => ({ path, namespace: "outside" }));
    builder.onLoad({ filter: /.*/, namespace: "outside" }, ({ path }) => ({
      contents: `throw new Error(${JSON.stringify(`${path} is not in the bundle`)}); module.exports = {};`,
    }));
  },
};

/** Commander loads a module of 5 ms for verbs that are other programs; forkd has none. */
const lazyChildProcess = {
  name: "lazy-child-process",
  setup(builder) {
    builder.onResolve({ filter: /^node:child_process$/ }, ({ path, importer }) =>
      importer.includes("/node_modules/commander/") ? { path, namespace: "lazy" } : undefined,
    );
    builder.onLoad({ filter: /.*/, namespace: "lazy" }, ({ path }) => ({
      contents: `exports.spawn = (...args) => require(${JSON.stringify(path)}).spawn(...args);`,
    }));
  },
};

/** The bundle has a copy of commander, whose license asks for its text. */
const license = readFileSync(join(root, "node_modules/commander/LICENSE"), "utf8");

const { metafile } = await build({
  absWorkingDir: root,
  entryPoints: [join(modules, "bundle/entry.js")],
  outfile,
  bundle: true,
  format: "cjs",
  platform: "node",
  target: "node20",
  sourcemap: true,
  sourcesContent: false,
  logLevel: "warning",
  // A stub has no exports, so names of its imports are reported as missing.
  logOverride: { "import-is-undefined": "silent" },
  metafile: true,
  plugins: [ownPlaces, outside, lazyChildProcess],
  banner: { js: 'const bundleUrl = require("node:url").pathToFileURL(__filename);' },
  footer: { js: `/*\ncommander\n\n${license.trim()}\n*/` },
});
chmodSync(outfile, 0o755);
await checkOutside(metafile.inputs);

/** Fails if a verb that the bundle runs can reach a package that is not in it. */
async function checkOutside(inputs) {
  const { outsideVerbs } = await import(pathToFileURL(join(modules, "bundle/outside.js")).href);
  const { verbs } = await import(pathToFileURL(join(modules, "verbs.js")).href);
  const problems = verbs.flatMap(({ name, load }) => {
    const [, file] = /import\("\.\/(.*?)"\)/.exec(load.toString()) ?? [];
    const input = `packages/cli/dist/src/${file}`;
    if (inputs[input] === undefined) return [`cannot find the module of "${name}"`];
    const reaches = reachable(input, inputs).some((each) => each.startsWith("outside:"));
    if (reaches === Object.hasOwn(outsideVerbs, name)) return [];
    const what = reaches
      ? "needs a package that is not in the bundle"
      : "needs nothing that is not in the bundle";
    return [`"${name}" ${what}: correct packages/cli/src/bundle/outside.ts`];
  });
  for (const problem of problems) console.error(`bundle-cli: ${problem}`);
  if (problems.length > 0) process.exit(1);
}

/** The table of verbs imports every verb; a verb that uses the table does not need them all. */
function reachable(from, inputs) {
  const found = new Set([from]);
  for (const path of found) {
    if (path.endsWith("/src/verbs.js")) continue;
    for (const each of inputs[path]?.imports ?? []) if (!each.external) found.add(each.path);
  }
  return [...found];
}
