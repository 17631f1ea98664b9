/** Every relative link in the Markdown files leads to a file. */
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative } from "node:path";

const root = new URL("..", import.meta.url).pathname;

function* pages(dir) {
  for (const name of readdirSync(dir)) {
    if (["node_modules", "dist", ".git", ".cache"].includes(name)) continue;
    const path = join(dir, name);
    if (statSync(path).isDirectory()) yield* pages(path);
    else if (name.endsWith(".md")) yield path;
  }
}

let broken = 0;
for (const page of pages(root)) {
  for (const match of readFileSync(page, "utf8").matchAll(/\]\(([^)#\s]+)(#[^)]*)?\)/g)) {
    if (/^[a-z]+:/.test(match[1])) continue;
    if (existsSync(join(dirname(page), match[1]))) continue;
    console.error(`${relative(root, page)}: link to ${match[1]} leads nowhere`);
    broken++;
  }
}
process.exit(broken > 0 ? 1 : 0);
