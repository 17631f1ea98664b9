/** docs/openapi.json must be what the route table gives. `--write` updates it. Needs the compiled contract. */
import { readFile, writeFile } from "node:fs/promises";
import { openapi } from "../packages/contract/dist/src/index.js";

const file = new URL("../docs/openapi.json", import.meta.url);
const { version } = JSON.parse(
  await readFile(new URL("../packages/daemon/package.json", import.meta.url), "utf8"),
);
const expected = `${JSON.stringify(openapi(version), undefined, 2)}\n`;

if (process.argv.includes("--write")) {
  await writeFile(file, expected);
} else {
  const found = await readFile(file, "utf8").catch((error) => {
    if (error.code === "ENOENT") return "";
    throw error;
  });
  if (found !== expected) {
    process.stderr.write(
      "docs/openapi.json differs from the route table: run node tools/check-openapi.mjs --write\n",
    );
    process.exitCode = 1;
  }
}
