/**
 * Finds dead code: exports that no other file names, and entries of a package's index that no other package
 * names. The index of `sdk` and `contract` is public API and may offer more than this tree uses.
 */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join, relative } from "node:path";

const root = new URL("..", import.meta.url).pathname;
const publicPackages = ["sdk", "contract"];
/** Types that only inferred types of another package mention. */
const inferred = [
  "RuntimeSetting",
  "ChunkRef",
  "OciManifest",
  "UnpackArchiveOptions",
  "UnpackBlobsOptions",
  "UnpackProgress",
];

function* files(dir) {
  for (const name of readdirSync(dir)) {
    if (name === "dist" || name === "node_modules" || name === "build") continue;
    const path = join(dir, name);
    if (statSync(path).isDirectory()) yield* files(path);
    else if (/\.(ts|mjs)$/.test(name)) yield path;
  }
}

const texts = new Map();
for (const dir of ["packages", "tests", "bench", "tools"]) {
  for (const path of files(join(root, dir))) texts.set(relative(root, path), readFileSync(path, "utf8"));
}

const isIndex = (file) => /^packages\/[^/]+\/src\/index\.ts$/.test(file);
const packageOf = (file) => file.split("/").slice(0, 2).join("/");
/** name → files that mention it; a re-export in an index is not a use */
const users = new Map();
for (const [file, text] of texts) {
  if (isIndex(file)) continue;
  for (const word of new Set(text.match(/[A-Za-z_$][\w$]*/g))) {
    if (!users.has(word)) users.set(word, new Set());
    users.get(word).add(file);
  }
}
const isUsedOutside = (name, isOutside) => [...(users.get(name) ?? [])].some(isOutside);

const problems = [];
for (const [file, text] of texts) {
  if (!/^packages\/[^/]+\/src\//.test(file)) continue;
  const own = packageOf(file);
  if (isIndex(file)) {
    if (publicPackages.includes(own.split("/")[1])) continue;
    for (const [, list] of text.matchAll(/export (?:type )?\{([^}]*)\} from/g)) {
      for (const entry of list.split(",")) {
        const name = entry.trim().split(/\s+/).at(-1);
        if (name && !inferred.includes(name) && !isUsedOutside(name, (user) => packageOf(user) !== own))
          problems.push(`${file}: no other package uses ${name}`);
      }
    }
    continue;
  }
  const declared = text.matchAll(
    /^export (?:async )?(?:abstract )?(?:function\*?|class|const|let|type|interface) ([A-Za-z_$][\w$]*)/gm,
  );
  for (const [, name] of declared) {
    const inIndex = new RegExp(`\\b${name}\\b`).test(texts.get(`${own}/src/index.ts`) ?? "");
    if (!inIndex && !isUsedOutside(name, (user) => user !== file))
      problems.push(`${file}: no other file uses ${name}; do not export it, or delete it`);
  }
}
for (const problem of problems) console.error(problem);
process.exit(problems.length > 0 ? 1 : 0);
