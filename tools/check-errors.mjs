/**
 * Compares the tables of docs/reference/errors.md and docs/reference/events.md with the code: every error
 * code has a row with its status, exit code and whether a retry can help, every event type has a row, and
 * there are no other codes. Needs the compiled contract.
 */
import { readFileSync } from "node:fs";
import { errorCodes } from "../packages/contract/dist/src/wire/errors.js";
import { eventTypes } from "../packages/contract/dist/src/wire/event-types.js";

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

for (const problem of problems) console.error(problem);
process.exit(problems.length > 0 ? 1 : 0);
