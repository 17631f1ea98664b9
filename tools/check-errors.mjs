/**
 * The tables of docs/errors.md and docs/events.md against the code: every error code has a row with its status, exit code and
 * whether it may be retried, every type of event has a row, and there are no others. Needs the compiled contract.
 */
import { readFileSync } from "node:fs";
import { errorCodes } from "../packages/contract/dist/src/wire/errors.js";
import { eventTypes } from "../packages/contract/dist/src/wire/event-types.js";

const page = (name) => readFileSync(new URL(`../docs/${name}`, import.meta.url), "utf8");
const problems = [];

const rows = new Map(
  [...page("errors.md").matchAll(/^\| `(\w+)` \|.*$/gm)].map(([row, code]) => [code, row]),
);
for (const [code, { status, exit, retryable }] of Object.entries(errorCodes)) {
  const expected = `| \`${code}\` | ${status} | ${exit} | ${retryable ? "yes" : "no"} |`;
  const row = rows.get(code);
  if (!row?.startsWith(`${expected} `) || row === `${expected} |`)
    problems.push(`docs/errors.md needs a row "${expected} MEANING |"`);
}
for (const code of rows.keys())
  if (!Object.hasOwn(errorCodes, code)) problems.push(`docs/errors.md: there is no code ${code}`);

const types = [...page("events.md").matchAll(/^\| `([a-z]+(?:\.[a-z]+)?)` \|/gm)].map(([, type]) => type);
for (const type of eventTypes)
  if (!types.includes(type)) problems.push(`docs/events.md needs a row "| \`${type}\` | MEANING |"`);

for (const problem of problems) console.error(problem);
process.exit(problems.length > 0 ? 1 : 0);
