/** The examples for E2B in its guide and in the README work as printed, in both languages. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { blocksOf, stepFrom, stepsOf, type Block, type Step } from "../support/documented/blocks.ts";
import { Reader } from "../support/documented/reader.ts";
import { compile, programOf } from "../support/documented/typescript.ts";
import { pythonPackages } from "../support/python-packages.ts";

/** What the programs of a page print, by language. */
const pages = {
  "docs/guide/e2b.md": { ts: "45\nhello\nhello", python: "45\nhello" },
  "README.md": { ts: "45", python: "45" },
};
const isShell = ({ language }: Block) => language === "sh" || language === "console";

for (const [page, printed] of Object.entries(pages))
  test(`the E2B programs of ${page} work as printed`, async () => {
    const packages = await pythonPackages(["e2b==2.45.1", "e2b-code-interpreter==2.9.1"]);
    await using reader = await Reader.open({ "python-numpy": "python" });
    const shown = blocksOf(page).filter(({ notRun }) => notRun === undefined);
    const programs = shown.filter(
      (block) => !isShell(block) && /@e2b\/|e2b_code_interpreter/.test(block.lines.join("\n")),
    );
    for (const language of ["ts", "python"])
      assert.equal(programs.filter((block) => block.language === language).length, 1, language);
    const program = (block: Block): Step => {
      const at = `${page}:${block.line}`;
      if (block.language === "ts") {
        const command = `node ${compile(programOf([block]), reader.workDir)}`;
        return { ...stepFrom(at, command), printed: printed.ts };
      }
      const path = join(reader.workDir, "page.py");
      writeFileSync(path, block.lines.join("\n"));
      return { ...stepFrom(at, `PYTHONPATH=${packages} python3 ${path}`), printed: printed.python };
    };
    if (page === "README.md") {
      // documented.test.ts runs the other commands of the README.
      const variables = shown.find(({ lines }) => lines.join().includes("forkd e2b env"));
      assert.ok(variables);
      for (const step of [stepFrom(page, "forkd up -q"), ...stepsOf(variables), ...programs.map(program)])
        await reader.follow(step);
      return;
    }
    for (const block of shown)
      for (const step of isShell(block) ? stepsOf(block) : programs.includes(block) ? [program(block)] : [])
        await reader.follow(step);
  });
