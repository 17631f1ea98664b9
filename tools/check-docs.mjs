/**
 * Checks the documentation. Every relative link leads to a file and a heading; docs/README.md lists every
 * page; the vocabulary is that of CONTRIBUTING.md; docs/reference/cli.md has every verb with all its options.
 * The table of settings in docs/reference/configuration.md and that of routes in docs/reference/http-api.md
 * match the code (`--write` updates both). Needs the compiled packages.
 */
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { Command } from "commander";
import { verbs } from "../packages/cli/dist/src/verbs.js";
import { routes } from "../packages/contract/dist/src/index.js";
import { settingsTable } from "./settings-table.mjs";
import { avoidedWords } from "./vocabulary.mjs";

/**
 * Directories whose files must use the vocabulary, by the endings of file names. Of code, only comments and
 * strings are checked.
 */
const code = [".ts", ".mjs", ".cjs", ".c", ".h", ".py"];
const vocabularyRoots = [
  { dir: ".", endings: [".md"] },
  ...["packages", "guest", "native", "tests", "bench", "tools", "sdks"].map((dir) => ({
    dir,
    endings: code,
  })),
];
/** Files that contain the avoided words for a reason. */
const vocabularySkips = ["docs/glossary.md", "tools/vocabulary.mjs", "bench/RESULTS.md"];

const root = new URL("..", import.meta.url).pathname;

let broken = 0;
function report(problem) {
  console.error(problem);
  broken++;
}

function* filesIn(dir, endings) {
  for (const name of readdirSync(dir)) {
    if (["node_modules", "dist", "build", ".git", ".cache"].includes(name)) continue;
    const path = join(dir, name);
    if (statSync(path).isDirectory()) yield* filesIn(path, endings);
    else if (endings.some((ending) => name.endsWith(ending))) yield path;
  }
}

for (const page of filesIn(root, [".md"])) {
  for (const [, target, anchor] of readFileSync(page, "utf8").matchAll(/\]\(([^)#\s]*)(#[^)]*)?\)/g)) {
    if (/^[a-z]+:/.test(target)) continue;
    const path = target === "" ? page : join(dirname(page), target);
    if (!existsSync(path)) report(`${relative(root, page)}: link to ${target} leads nowhere`);
    else if (anchor !== undefined && !anchorsOf(path).includes(anchor))
      report(`${relative(root, page)}: ${target} has no heading ${anchor}`);
  }
}

const index = readFileSync(join(root, "docs/README.md"), "utf8");
for (const path of filesIn(join(root, "docs"), [".md", ".json"])) {
  const name = relative(join(root, "docs"), path);
  if (name !== "README.md" && !index.includes(`](${name})`)) report(`docs/README.md does not list ${name}`);
}

for (const { dir, endings } of vocabularyRoots) {
  for (const path of filesIn(join(root, dir), endings)) {
    const name = relative(root, path);
    if (vocabularySkips.includes(name)) continue;
    for (const problem of avoidedWords(name, readFileSync(path, "utf8"))) report(`${name}:${problem}`);
  }
}

const cli = readFileSync(join(root, "docs/reference/cli.md"), "utf8");
for (const verb of verbs) if (!verb.hidden) await checkVerb(verb);

generated("docs/reference/configuration.md", "settings", await settingsTable());
generated("docs/reference/http-api.md", "routes", routesTable());
process.exit(broken > 0 ? 1 : 0);

/** Anchors that Markdown viewers give to the headings of a page. */
function anchorsOf(page) {
  return [...readFileSync(page, "utf8").matchAll(/^#+ (.*)$/gm)].map(
    ([, heading]) =>
      `#${heading
        .toLowerCase()
        .replaceAll(/[^\p{L}\p{N} _-]/gu, "")
        .replaceAll(" ", "-")}`,
  );
}

/** Checks that the part of a page between `<!-- name -->` and `<!-- end -->` is the generated table. */
function generated(page, name, table) {
  const path = join(root, page);
  const text = readFileSync(path, "utf8");
  const expected = text.replace(new RegExp(`(<!-- ${name} -->\\n)[^]*?(<!-- end -->)`), `$1${table}$2`);
  if (process.argv.includes("--write")) writeFileSync(path, expected);
  else if (text !== expected) {
    report(`${page}: the table of ${name} does not match the code. Run node tools/check-docs.mjs --write`);
  }
}

/** A verb has a section, which names its options, or links to a section that does. */
async function checkVerb(verb) {
  const section = sectionOf(verb.name);
  if (section === undefined) {
    report(`docs/reference/cli.md: no section for the verb ${verb.name}`);
    return;
  }
  const linked = [...section.matchAll(/\]\(#([a-z]+)[a-z-]*\)/g)].map(([, name]) => sectionOf(name) ?? "");
  const words = [section, ...linked].join("\n");
  const command = new Command(verb.name);
  (await verb.load()).define(command, () => async () => {});
  for (const part of [command, ...command.commands]) {
    for (const { long, short, hidden } of part.options) {
      const mentioned = [long, short].some((name) => name && new RegExp(`${name}(?![\\w-])`).test(words));
      if (mentioned || hidden || ["--json", "--quiet", "--no-trunc"].includes(long)) continue;
      const name = part === command ? verb.name : `${verb.name} ${part.name()}`;
      report(`docs/reference/cli.md: the section of ${verb.name} does not mention ${name} ${long}`);
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
    [/\/(eval|evals.*|interrupt|contexts.*)$/, "evals"],
    [/\/files/, "files"],
    [/\/(network|secrets)(\/|$)/, "network"],
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
  const order = [
    "daemon",
    "sandboxes",
    "commands",
    "evals",
    "files",
    "branch, pause, rewind",
    "network",
    "snapshots",
  ];
  const place = (name) => (order.indexOf(name) + 1 || 100) - 1;
  const rows = Object.values(routes)
    .map((route) => ({ ...route, group: groupOf(route.path) }))
    .sort((a, b) => place(a.group) - place(b.group) || (a.group < b.group ? 1 : a.group > b.group ? -1 : 0));
  const anchor = (group) => group.replaceAll(", ", "-");
  return [
    "| request | scope | guest | does | examples |\n|---|---|---|---|---|\n",
    ...rows.map(
      ({ method, path, scope, intoGuest, summary, group }) =>
        `| \`${method.toUpperCase()} ${path}\` | ${scope === "open" ? "" : scope} | ${intoGuest ? "yes" : ""} | ${summary} | [${group}](#${anchor(group)}) |\n`,
    ),
  ].join("");
}
