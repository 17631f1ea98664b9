/** The examples of docs/guide/e2b.md work as printed, in both languages. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { blocksOf, stepFrom, stepsOf, type Block, type Step } from "../support/documented/blocks.ts";
import { Reader } from "../support/documented/reader.ts";
import { compile, programOf } from "../support/documented/typescript.ts";
import { pythonPackages } from "../support/python-packages.ts";

const page = "docs/guide/e2b.md";

test("the guide to E2B's SDKs works as printed", async () => {
  const packages = await pythonPackages(["e2b==2.45.1", "e2b-code-interpreter==2.9.1"]);
  await using reader = await Reader.open({ "python-numpy": "python" });
  const blocks = blocksOf(page).filter(({ notRun }) => notRun === undefined);
  for (const language of ["ts", "python"])
    assert.equal(blocks.filter((block) => block.language === language).length, 1, language);
  const program = (block: Block): Step[] => {
    const at = `${page}:${block.line}`;
    if (block.language === "ts") {
      const command = `node ${compile(programOf([block]), reader.workDir)}`;
      return [{ ...stepFrom(at, command), printed: "45\nhello\nhello" }];
    }
    const path = join(reader.workDir, "page.py");
    writeFileSync(path, block.lines.join("\n"));
    return [{ ...stepFrom(at, `PYTHONPATH=${packages} python3 ${path}`), printed: "45\nhello" }];
  };
  for (const block of blocks)
    for (const step of ["sh", "console"].includes(block.language) ? stepsOf(block) : program(block))
      await reader.follow(step);
});
