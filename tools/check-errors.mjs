/**
 * Compares the tables of docs/reference/errors.md and docs/reference/events.md with the code: every error
 * code has a row with its status, exit code and whether a retry can help, every event type has a row, and
 * there are no other codes. Needs the compiled contract.
 *
 * Also compares the texts below the daemon with the surfaces. There a remedy is data (`remedy` of AppError),
 * so no text names a verb or an option of the CLI, or an environment variable of the daemon.
 */
import { readdirSync, readFileSync } from "node:fs";
import { errorCodes } from "../packages/contract/dist/src/wire/errors.js";
import { eventTypes } from "../packages/contract/dist/src/wire/event-types.js";
import { verbs } from "../packages/cli/dist/src/verbs.js";

const page = (name) => readFileSync(new URL(`../docs/reference/${name}`, import.meta.url), "utf8");
const problems = [];

/** Code → the other cells of its row */
const rows = new Map(
  [...page("errors.md").matchAll(/^\| `(\w+)` +\|(.*)\|$/gm)].map(([, code, rest]) => [
    code,
    rest.split(/(?<!\\)\|/).map((cell) => cell.trim()),
  ]),
);
for (const [code, { status, exit, retryable }] of Object.entries(errorCodes)) {
  const expected = [String(status), String(exit), retryable ? "yes" : "no"];
  const cells = rows.get(code) ?? [];
  if (expected.some((cell, index) => cells[index] !== cell) || !cells[3])
    problems.push(
      `docs/reference/errors.md needs a row "| \`${code}\` | ${expected.join(" | ")} | MEANING |"`,
    );
}
for (const code of rows.keys())
  if (!Object.hasOwn(errorCodes, code)) problems.push(`docs/reference/errors.md: there is no code ${code}`);

const types = [...page("events.md").matchAll(/^\| `([a-z]+(?:\.[a-z]+)?)` +\|/gm)].map(([, type]) => type);
for (const type of eventTypes)
  if (!types.includes(type))
    problems.push(`docs/reference/events.md needs a row "| \`${type}\` | MEANING |"`);

/** text in a literal → why it is there */
const allowed = new Map([
  ["FORKD_SANDBOX_ID", "a variable that every process of a guest has"],
  ["FORKD_INDEX", "a variable that every process of a guest has"],
  ["FORKD_MEMORY_VIEW", "a variable of a VMM, which names the view of its memory to its preloaded library"],
  ["FORKD_READ_ONLY", "a variable of a VMM, which names the memory file to its preloaded library"],
  ["forkd secrets", "the label of a key (egress/secrets/cipher.ts), not the verb"],
]);
const names = verbs.flatMap(({ name, alias }) => (alias === undefined ? [name] : [name, alias])).join("|");
const ofSurfaces = new RegExp(`\\bforkd (?:${names})\\b|["'\`][^"'\`]*\\s--[a-z][a-z-]*|\\bFORKD_\\w*`, "g");
for (const name of ["base", "store", "archive", "machine", "egress", "image", "registry", "runtime"]) {
  const dir = new URL(`../packages/${name}/src/`, import.meta.url);
  for (const file of readdirSync(dir, { recursive: true }).filter((path) => path.endsWith(".ts"))) {
    const lines = readFileSync(new URL(file, dir), "utf8")
      .replaceAll(/\/\*.*?\*\//gs, (comment) => comment.replaceAll(/[^\n]/g, ""))
      .split("\n");
    for (const [index, line] of lines.entries()) {
      for (const [found] of line.replace(/(^|\s)\/\/ .*/, "").matchAll(ofSurfaces)) {
        if (allowed.has(found)) continue;
        problems.push(
          `packages/${name}/src/${file}:${index + 1}: ${found}: make it a remedy (contract/src/wire/remedies.ts)`,
        );
      }
    }
  }
}

for (const problem of problems) console.error(problem);
process.exit(problems.length > 0 ? 1 : 0);
