/**
 * Every relative link in the Markdown files leads to a file; every verb is in docs/cli.md; docs/configuration.md holds the table of
 * settings that the code gives (`--write` updates it). Needs the compiled packages.
 */
import { existsSync, readdirSync, readFileSync, statSync, writeFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";
import { verbs } from "../packages/cli/dist/src/verbs.js";
import { describeSettings, loadConfig } from "../packages/daemon/dist/src/index.js";
import { settingMeanings } from "../packages/daemon/dist/src/setting-meanings.js";

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
for (const { name, hidden } of verbs) {
  if (hidden || new RegExp(`^### .*(?<![\\w-])${name}(?![\\w-])`, "m").test(cli)) continue;
  console.error(`docs/cli.md: no section for the verb ${name}`);
  broken++;
}

const page = join(root, "docs/configuration.md");
const text = readFileSync(page, "utf8");
const expected = text.replace(/(<!-- settings -->\n)[^]*(<!-- end -->)/, `$1${await settingsTable()}$2`);
if (process.argv.includes("--write")) writeFileSync(page, expected);
else if (text !== expected) {
  console.error("docs/configuration.md differs from the settings: run node tools/check-docs.mjs --write");
  broken++;
}
process.exit(broken > 0 ? 1 : 0);

async function settingsTable() {
  const rows = describeSettings(await loadConfig({}, { FORKD_DATA_DIR: "/nonexistent" })).map((setting) => {
    if (setting.meaning === "") {
      console.error(`packages/daemon/src/setting-meanings.ts: no entry for ${setting.name}`);
      broken++;
    }
    const usual = settingMeanings[setting.name]?.usually ?? setting.default;
    const cells = [
      `\`${setting.name}\``,
      usual === null || usual === "[]" ? "" : usual,
      setting.allowed,
      setting.meaning,
    ];
    return `| ${cells.join(" | ")} |\n`;
  });
  return `| setting | default | allowed | meaning |\n|---|---|---|---|\n${rows.join("")}`;
}
