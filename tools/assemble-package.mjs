/**
 * Assembles the published package: packages/forkd/dist becomes a copy of this tree without sources. The
 * entries are those of packages/forkd/package.json; everything that they import follows, with specifiers of
 * workspace packages rewritten to relative paths, and the programs, kernels and recipes that the code finds
 * relative to its own files. Run by `prepack`. Builds the tree first, so that the package fits its commit.
 *
 *   node tools/assemble-package.mjs [--check | --write | --remove]
 *
 * --check only reports problems of a tree that is built. --write only corrects the dependencies in the manifest.
 * --remove removes what an assembly has made; `postpack` runs it.
 */
import { spawnSync } from "node:child_process";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { basename, dirname, join, relative, resolve } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url)).replace(/\/$/, "");
const home = join(root, "packages/forkd");
const [mode] = process.argv.slice(2);
if (mode !== undefined && !["--check", "--write", "--remove"].includes(mode)) {
  console.error(`assemble-package: unknown option "${mode}"`);
  process.exit(2);
}
const out = join(home, "dist");

/** Files that the code finds at run time: a directory, and which paths below it. */
const assets = [
  { dir: "native/build", keep: /^(forkd-[a-z]+|libforkd-[a-z]+\.so)$/, built: "make -C native" },
  { dir: "guest/build", keep: /^(forkd-agent|.*\.node)$/, built: "make -C guest && make -C guest/kernels" },
  { dir: "guest/kernels/python", keep: /\.py$/ },
  { dir: "guest/kernels/node", keep: /\.(cjs|js)$/ },
  { dir: "recipes", keep: /\/|^results\.json$/ },
  { dir: "sdks/python/src", keep: /\.(py|typed)$/ },
  { dir: "deploy/systemd", keep: /\.service$/ },
];
/** Without these the package installs and then fails on a user's host. */
const required = [
  "native/build/forkd-pages",
  "native/build/forkd-launch",
  "native/build/forkd-gate",
  "native/build/libforkd-preload.so",
  "guest/build/forkd-agent",
  "guest/build/reseed.node",
];

/** `from "x"`, `import "x"` and `import("x")`, as the compiler prints them. */
const specifiers = /((?:^(?:import|export|\}) ?(?:[^"\n;]*? from )?|\bimport\())"([^"\n]+)"/gm;

if (mode === "--remove") {
  remove();
  process.exit(0);
}

if (mode !== "--check") build();
const problems = [];
const manifests = readManifests();
const own = readJson(join(home, "package.json"));
const dependencies = new Map();
/** path in the tree → text, of modules and declarations */
const texts = new Map();

for (const entry of entriesOf(own)) collect(entry, "packages/forkd/package.json");
const files = collectAssets();
checkOwnPlaces();
checkManifest();
checkBundle();

if (problems.length > 0) {
  for (const problem of problems) console.error(`assemble-package: ${problem}`);
  process.exit(1);
}
if (mode === undefined) assemble();

function build() {
  // The output of npm may be JSON.
  const run = (program, ...args) => {
    const { status } = spawnSync(program, args, { cwd: root, stdio: ["ignore", 2, 2] });
    if (status !== 0) process.exit(1);
  };
  // With everything that the CLI needs, the SDK among it.
  run("node_modules/.bin/tsc", "-b", "packages/cli");
  run("node", "tools/bundle-cli.mjs");
  for (const dir of ["native", "guest", "guest/kernels"]) run("make", "-s", "-C", dir);
}

function readJson(path) {
  return JSON.parse(readFileSync(path, "utf8"));
}

function directoriesIn(dir) {
  return readdirSync(join(root, dir))
    .map((name) => `${dir}/${name}`)
    .filter((path) => statSync(join(root, path)).isDirectory())
    .toSorted();
}

/** name → manifest and directory, of the workspace packages that can be part of the package */
function readManifests() {
  const found = directoriesIn("packages")
    .filter((dir) => existsSync(join(root, dir, "package.json")))
    .map((dir) => ({ dir, manifest: readJson(join(root, dir, "package.json")) }));
  return new Map(found.map((each) => [each.manifest.name, each]));
}

/** What the manifest names in `bin` and `exports`, as paths in the tree. */
function entriesOf(manifest) {
  const named = [
    Object.values(manifest.bin),
    Object.values(manifest.exports).map((each) => Object.values(each)),
  ];
  return named
    .flat(2)
    .filter((path) => /^(\.\/)?dist\//.test(path))
    .map((path) => path.replace(/^(\.\/)?dist\//, ""));
}

/** Adds a file and everything that it names. */
function collect(file, from) {
  if (texts.has(file)) return;
  if (!existsSync(join(root, file))) {
    problems.push(`${from} needs ${file}, which does not exist. Run \`npm run build\`.`);
    return;
  }
  const before = readFileSync(join(root, file), "utf8");
  const isTypes = file.endsWith(".d.ts");
  // The maps name sources that the package does not have.
  const text = before
    .replace(/^\/\/# sourceMappingURL=.*\n?/gm, "")
    .replace(specifiers, (whole, lead, specifier) => {
      const target = resolveSpecifier(specifier, { file, isTypes });
      return target === undefined ? whole : `${lead}"${target}"`;
    })
    // Comments and messages name what a user imports.
    .replaceAll("@forkd/sdk/node", own.name)
    .replaceAll("@forkd/sdk", `${own.name}/browser`);
  texts.set(file, text);
  for (const [, , specifier] of text.matchAll(specifiers)) {
    if (!specifier.startsWith(".")) continue;
    const target = join(dirname(file), specifier);
    collect(isTypes ? target.replace(/\.js$/, ".d.ts") : target, file);
  }
  if (isTypes) return;
  if (/\bimport\((?!")/.test(text)) problems.push(`${file}: an import() whose module is not a literal`);
  for (const { path } of ownPlaces(file, text)) if (/\.c?js$/.test(path)) collect(path, file);
}

/** The specifier to write; undefined if it stays. */
function resolveSpecifier(specifier, { file, isTypes }) {
  if (specifier.startsWith("node:")) return undefined;
  if (specifier.startsWith(".")) return isTypes ? specifier.replace(/\.ts$/, ".js") : undefined;
  const [, name, rest] = /^((?:@[^/]+\/)?[^/]+)(\/.*)?$/.exec(specifier);
  const target = manifests.get(name);
  if (target === undefined) {
    addDependency(name, file);
    return undefined;
  }
  const entry = target.manifest.exports?.[`.${rest ?? ""}`];
  if (entry === undefined) {
    problems.push(`${file}: ${name} does not export ".${rest ?? ""}"`);
    return undefined;
  }
  const path = relative(dirname(file), join(target.dir, entry.default));
  return path.startsWith(".") ? path : `./${path}`;
}

function addDependency(name, file) {
  const { manifest, dir } = [...manifests.values()].find((each) => file.startsWith(`${each.dir}/`));
  const version = manifest.dependencies?.[name];
  const known = dependencies.get(name);
  if (version === undefined)
    problems.push(`${file} imports ${name}, which ${dir}/package.json does not name`);
  else if (known !== undefined && known !== version)
    problems.push(`${dir} wants ${name} ${version}, another package ${known}`);
  else dependencies.set(name, version);
}

/** Paths relative to `import.meta.url`: modules that become processes, programs, data. */
function ownPlaces(file, text) {
  return [...text.matchAll(/new URL\(["'`]([^"'`]+)["'`], import\.meta\.url\)/g)].map(([, given]) => ({
    path: join(dirname(file), given.replace(/\$\{.*$/, "")).replace(/\/$/, ""),
    isPrefix: given.includes("${"),
  }));
}

function collectAssets() {
  const found = assets.flatMap(({ dir, keep, built }) => {
    if (!existsSync(join(root, dir))) {
      problems.push(`${dir} does not exist. Run \`${built}\`.`);
      return [];
    }
    return readdirSync(join(root, dir), { recursive: true })
      .filter((name) => keep.test(name) && !/(^|\/)(__pycache__|\.)/.test(name))
      .map((name) => `${dir}/${name}`)
      .filter((path) => statSync(join(root, path)).isFile());
  });
  for (const path of required)
    if (!found.includes(path)) problems.push(`${path} is missing. Run \`npm run setup\`.`);
  return found;
}

/** Every file and directory that a module names relative to itself must be in the package. */
function checkOwnPlaces() {
  const all = [...texts.keys(), ...files];
  for (const [file, text] of texts) {
    if (file.endsWith(".d.ts")) continue;
    for (const { path, isPrefix } of ownPlaces(file, text)) {
      if (basename(path) === "package.json") files.push(path);
      else if (
        path !== "." &&
        !all.some((each) => each === path || each.startsWith(isPrefix ? path : `${path}/`))
      )
        problems.push(
          `${file} finds ${path} relative to itself; tools/assemble-package.mjs does not copy it`,
        );
    }
  }
}

function checkManifest() {
  for (const { dir, manifest } of manifests.values()) {
    if (manifest.version !== own.version)
      problems.push(`${dir} has version ${manifest.version}, packages/forkd ${own.version}`);
  }
  const wanted = Object.fromEntries([...dependencies].toSorted(([a], [b]) => (a < b ? -1 : 1)));
  const locked = readJson(join(root, "package-lock.json")).packages;
  for (const [name, version] of Object.entries(wanted)) {
    const { version: found } = locked[`node_modules/${name}`] ?? {};
    if (found !== version) problems.push(`${name} is ${version} in manifests, ${found} in package-lock.json`);
  }
  if (JSON.stringify(wanted) === JSON.stringify(own.dependencies)) return;
  if (mode === "--write") {
    writeFileSync(
      join(home, "package.json"),
      `${JSON.stringify({ ...own, dependencies: wanted }, undefined, 2)}\n`,
    );
  } else {
    problems.push(
      `the dependencies of packages/forkd are ${JSON.stringify(own.dependencies)}, but its modules import ` +
        `${JSON.stringify(wanted)}. Run \`node tools/assemble-package.mjs --write\`.`,
    );
  }
}

/** The bundle of the CLI has copies of modules. */
function checkBundle() {
  const [bundle] = entriesOf({ bin: own.bin, exports: {} });
  if (!texts.has(bundle)) return; // reported
  const made = statSync(join(root, bundle)).mtimeMs;
  const isOld = ["cli", "sdk", "contract"].some(
    (name) => statSync(join(root, `packages/${name}/dist/tsconfig.tsbuildinfo`)).mtimeMs > made,
  );
  if (isOld) problems.push(`${bundle} is older than the modules. Run \`npm run build\`.`);
}

/** Modes do not depend on the umask of this checkout, so that the same commit gives the same bytes. */
function assemble() {
  remove();
  for (const [file, text] of texts) {
    put(file, (path) => writeFileSync(path, text));
    if (Object.values(own.bin).some((path) => path.endsWith(`dist/${file}`)))
      chmodSync(join(out, file), 0o755);
  }
  for (const file of files) {
    if (basename(file) === "package.json") put(file, (path) => writeFileSync(path, shortManifest(file)));
    else put(file, (path) => cpSync(join(root, file), path));
    if (statSync(join(root, file)).mode & 0o100) chmodSync(join(out, file), 0o755);
  }
  cpSync(join(root, "LICENSE"), join(home, "LICENSE"));
}

function remove() {
  for (const path of [out, join(home, "LICENSE")]) rmSync(path, { recursive: true, force: true });
}

function put(file, write) {
  const path = resolve(out, file);
  mkdirSync(dirname(path), { recursive: true });
  write(path);
  chmodSync(path, 0o644);
}

/** Modules read their version from the manifest of their package. */
function shortManifest(file) {
  const { name, version, license, type } = readJson(join(root, file));
  return `${JSON.stringify({ name, version, license, type }, undefined, 2)}\n`;
}
