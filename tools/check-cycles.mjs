/** Refuses import cycles inside a package, `import type` included, except for groups with a reason. */
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative } from "node:path";

const root = new URL("..", import.meta.url).pathname;
/** a file of the group → how many files the group may have, and why they belong together */
const allowed = {
  "packages/cli/src/cli.ts": {
    files: 3,
    why: "the CLI opens the client, which may start a daemon; both are loaded on demand and take the type Cli",
  },
  "packages/cli/src/verbs.ts": {
    files: 2,
    why: "completion is one of the verbs, and completes the list of them; it is loaded on demand",
  },
};

function* sources(dir) {
  // packages/forkd has no sources: it is made from the others.
  if (!existsSync(dir)) return;
  for (const name of readdirSync(dir)) {
    const path = join(dir, name);
    if (statSync(path).isDirectory()) yield* sources(path);
    else if (name.endsWith(".ts")) yield path;
  }
}

function importsOf(path) {
  const imports = readFileSync(path, "utf8").matchAll(/(?:from|import)\s*\(?\s*"(\.[^"]+)"/g);
  return [...imports].map(([, target]) => join(dirname(path), target));
}

/** Tarjan: groups of files that reach each other. */
function groups(graph) {
  const found = [];
  const stack = [];
  const seen = new Map();
  const visit = (file) => {
    const entry = { index: seen.size, low: seen.size, isOpen: true };
    seen.set(file, entry);
    stack.push(file);
    for (const next of graph.get(file) ?? []) {
      if (!seen.has(next)) visit(next);
      const other = seen.get(next);
      if (other.isOpen) entry.low = Math.min(entry.low, other.low);
    }
    if (entry.low !== entry.index) return;
    const group = stack.splice(stack.indexOf(file));
    for (const each of group) seen.get(each).isOpen = false;
    if (group.length > 1) found.push(group);
  };
  for (const file of graph.keys()) if (!seen.has(file)) visit(file);
  return found;
}

let failed = false;
for (const name of readdirSync(join(root, "packages"))) {
  const files = [...sources(join(root, "packages", name, "src"))];
  for (const group of groups(new Map(files.map((file) => [file, importsOf(file)])))) {
    const members = group.map((file) => relative(root, file)).sort();
    const entry = Object.entries(allowed).find(([file]) => members.includes(file));
    if (entry && members.length <= entry[1].files) continue;
    failed = true;
    if (entry) console.error(`${entry[0]}: ${entry[1].files} files are allowed (${entry[1].why})`);
    console.error(`Import cycle of ${members.length} files:\n  ${members.join("\n  ")}`);
  }
}
process.exit(failed ? 1 : 0);
