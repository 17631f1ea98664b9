/**
 * Checks that docs/reference/openapi.json, and the routes and names of fields without schemas for clients, match
 * the route table. `--write` updates them. Needs the compiled contract.
 */
import { readFile, writeFile } from "node:fs/promises";
import { format } from "prettier";
import { openapi } from "../packages/contract/dist/src/openapi.js";
import { routes } from "../packages/contract/dist/src/routes.js";
import { opaqueFields, requestFields } from "./wire-fields.mjs";

const { version } = JSON.parse(
  await readFile(new URL("../packages/daemon/package.json", import.meta.url), "utf8"),
);
const plain = Object.fromEntries(
  Object.entries(routes).map(([name, { method, path, kind, paged, streamed }]) => [
    name,
    { method, path, kind, ...(paged && { paged }), ...(streamed && { streamed: true }) },
  ]),
);
const wire = `/** Generated from routes.ts by tools/check-openapi.mjs --write. */
export const wireRoutes = ${JSON.stringify(plain)} as const;
`;
const fields = `/** Generated from routes.ts by tools/check-openapi.mjs --write. */

/** Names of fields whose value has keys of the user: a client does not rename what is in them. */
export const opaqueFields = ${JSON.stringify(opaqueFields(routes))} as const;

/** The fields of each request and their kind; those that are accepted only for compatibility are left out. */
export const requestFields = ${JSON.stringify(requestFields(routes))} as const;
`;
const python = `"""Generated from the route table by tools/check-openapi.mjs --write."""

from __future__ import annotations

from typing import Dict, Tuple

#: Method and path of every route, by its name.
routes: Dict[str, Tuple[str, str]] = {
${Object.entries(routes)
  .map(([name, { method, path }]) => `    "${name}": ("${method.toUpperCase()}", "${path}"),\n`)
  .join("")}}
`;
const pretty = (text) => format(text, { parser: "typescript", printWidth: 110 });
const generated = {
  "docs/reference/openapi.json": `${JSON.stringify(openapi(version), undefined, 2)}\n`,
  "packages/contract/src/wire/routes.gen.ts": await pretty(wire),
  "packages/contract/src/wire/fields.gen.ts": await pretty(fields),
  "sdks/python/src/forkd/_routes.py": python,
};

for (const [name, expected] of Object.entries(generated)) {
  const file = new URL(`../${name}`, import.meta.url);
  if (process.argv.includes("--write")) {
    await writeFile(file, expected);
    continue;
  }
  const found = await readFile(file, "utf8").catch((error) => {
    if (error.code === "ENOENT") return "";
    throw error;
  });
  if (found === expected) continue;
  process.stderr.write(`${name} differs from the route table: run node tools/check-openapi.mjs --write\n`);
  process.exitCode = 1;
}
