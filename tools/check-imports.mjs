/**
 * Import directions: which package may import which. Also refuses deep imports, Node in the browser-safe
 * packages, a schema library in the part of the contract that clients load without one, and operations that
 * import each other.
 */
import { readdirSync, readFileSync, statSync } from "node:fs";
import { join, relative } from "node:path";

const root = new URL("..", import.meta.url).pathname;
const allowed = {
  contract: [],
  base: [],
  store: ["contract", "base"],
  archive: ["contract", "base", "store"],
  machine: ["contract", "base"],
  egress: ["contract", "base"],
  image: ["contract", "base", "registry"],
  registry: ["contract", "base"],
  runtime: ["contract", "base", "store", "archive", "machine", "egress", "image", "registry"],
  e2b: ["contract", "base", "runtime"],
  daemon: ["contract", "base", "runtime", "e2b"],
  sdk: ["contract"],
  mcp: ["contract", "sdk"],
  cli: ["contract", "sdk"],
};
/** file → packages it may import in addition */
const exceptions = {
  "packages/cli/src/commands/serve.ts": ["daemon"],
  "packages/cli/src/daemon/local.ts": ["daemon"],
  "packages/cli/src/commands/mcp.ts": ["mcp"],
  "packages/cli/src/hub/registry-access.ts": ["registry"],
};
const operations = "packages/runtime/src/operations/";
const browserSafe = (file) =>
  file.startsWith("packages/contract/src/") ||
  (file.startsWith("packages/sdk/src/") && !/\/node(\/.*|[^/]*)\.ts$/.test(file));

function* sources(dir) {
  for (const name of readdirSync(dir)) {
    const path = join(dir, name);
    if (name === "dist" || name === "node_modules") continue;
    if (statSync(path).isDirectory()) yield* sources(path);
    else if (name.endsWith(".ts")) yield path;
  }
}

const problems = [];
for (const [name, may] of Object.entries(allowed)) {
  for (const path of sources(join(root, "packages", name, "src"))) {
    const file = relative(root, path);
    for (const match of readFileSync(path, "utf8").matchAll(/(?:from|import)\s*\(?\s*"([^"]+)"/g)) {
      const target = match[1];
      if (file.startsWith("packages/contract/src/wire/") && !/^\.\/[^/]+$/.test(target))
        problems.push(`${file}: wire/ needs no schema library and must not import ${target}`);
      const own = /^@forkd\/([a-z0-9]+)(\/.*)?$/.exec(target);
      if (own) {
        if (![...may, ...(exceptions[file] ?? [])].includes(own[1]))
          problems.push(`${file}: ${name} must not import ${target}`);
        if (own[2] && !["@forkd/sdk/node", "@forkd/contract/wire"].includes(target))
          problems.push(`${file}: deep import ${target}`);
      } else if (target.startsWith("node:") && browserSafe(file)) {
        problems.push(`${file}: runs in browsers and must not import ${target}`);
      } else if (file.startsWith(operations) && target.startsWith("./")) {
        problems.push(
          `${file}: operations must not import each other (${target}); put what they share below`,
        );
      }
    }
  }
}
for (const problem of problems) console.error(problem);
process.exit(problems.length > 0 ? 1 : 0);
