/**
 * Every relative link in the Markdown files leads to a file; every verb with all its options is in docs/cli.md; docs/configuration.md
 * holds the table of settings and docs/http-api.md that of routes as the code gives them (`--write` updates both). Needs the compiled
 * packages.
 */
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { Command } from "commander";
import { verbs } from "../packages/cli/dist/src/verbs.js";
import { routes } from "../packages/contract/dist/src/index.js";
import { settingsTable } from "./settings-table.mjs";

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

const cli = readFileSync(join(root, "docs/cli.md"), "utf8");
for (const verb of verbs) if (!verb.hidden) await checkVerb(verb);

generated("docs/configuration.md", "settings", await settingsTable());
generated("docs/http-api.md", "routes", routesTable());
process.exit(broken > 0 ? 1 : 0);

/** The part of a page between `<!-- name -->` and `<!-- end -->` is what the code gives. */
function generated(page, name, table) {
  const path = join(root, page);
  const text = readFileSync(path, "utf8");
  const expected = text.replace(new RegExp(`(<!-- ${name} -->\\n)[^]*?(<!-- end -->)`), `$1${table}$2`);
  if (process.argv.includes("--write")) writeFileSync(path, expected);
  else if (text !== expected) {
    console.error(
      `${page}: the table of ${name} is not what the code gives: run node tools/check-docs.mjs --write`,
    );
    broken++;
  }
}

/** A verb has a section, which names its options, or links to a section that does. */
async function checkVerb(verb) {
  const section = sectionOf(verb.name);
  if (section === undefined) {
    console.error(`docs/cli.md: no section for the verb ${verb.name}`);
    broken++;
    return;
  }
  const linked = [...section.matchAll(/\]\(#([a-z]+)[a-z-]*\)/g)].map(([, name]) => sectionOf(name) ?? "");
  const words = [section, ...linked].join("\n");
  const command = new Command(verb.name);
  (await verb.load()).define(command, () => async () => {});
  for (const part of [command, ...command.commands]) {
    for (const { long, short, hidden } of part.options) {
      const told = [long, short].some((name) => name && new RegExp(`${name}(?![\\w-])`).test(words));
      if (told || hidden || long === "--json" || long === "--quiet") continue;
      const name = part === command ? verb.name : `${verb.name} ${part.name()}`;
      console.error(`docs/cli.md: the section of ${verb.name} does not tell about ${name} ${long}`);
      broken++;
    }
  }
}

function sectionOf(verb) {
  const sections = cli.split(/^(?=##+ )/m);
  return sections.find((section) => new RegExp(`^### .*(?<![\\w-])${verb}(?![\\w-])`).test(section));
}

function routesTable() {
  const groups = [
    [/\/(execs?|execs\/.*)$/, "commands"],
    [/\/(eval|interrupt|contexts.*)$/, "evals"],
    [/\/files/, "files"],
    [/\/(branch|pause|resume|rewind)$/, "branch, pause, rewind", /^\/v1\/sandboxes/],
    [/^\/v1\/sandboxes/, "sandboxes"],
    [/^\/v1\/(snapshots|tree|gc)/, "snapshots"],
    [/^\/v1\/workspaces/, "workspaces"],
    [/^\/v1\/keys/, "keys"],
    [/^\/v1\/(events|stats)|^\/metrics/, "watching"],
    [/./, "daemon"],
  ];
  const groupOf = (path) =>
    groups.find(([pattern, , within]) => pattern.test(path) && (within?.test(path) ?? true))[1];
  const order = ["daemon", "sandboxes", "commands", "evals", "files", "branch, pause, rewind", "snapshots"];
  const place = (name) => (order.indexOf(name) + 1 || 100) - 1;
  const rows = Object.values(routes)
    .map((route) => ({ ...route, group: groupOf(route.path) }))
    .sort((a, b) => place(a.group) - place(b.group) || (a.group < b.group ? 1 : a.group > b.group ? -1 : 0));
  const anchor = (group) => group.replaceAll(", ", "-");
  return [
    "| request | scope | does | examples |\n|---|---|---|---|\n",
    ...rows.map(
      ({ method, path, scope, summary, group }) =>
        `| \`${method.toUpperCase()} ${path}\` | ${scope === "open" ? "" : scope} | ${summary} | [${group}](#${anchor(group)}) |\n`,
    ),
  ].join("");
}
