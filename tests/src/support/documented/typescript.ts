/** Joins the TypeScript of a page to one program. Each block sees the declarations of earlier blocks. */
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { repository } from "../places.ts";
import type { Block } from "./blocks.ts";

const importLine = /^import .*;$/;

export function programOf(blocks: readonly Block[]): string {
  const imports = new Set(blocks.flatMap(({ lines }) => lines.filter((line) => importLine.test(line))));
  const bodies = blocks.map(
    ({ page, line, lines }) =>
      `{ // ${page}:${line}\n${lines.filter((each) => !importLine.test(each)).join("\n")}`,
  );
  return `${[...imports].join("\n")}\n${bodies.join("\n")}\n${"}\n".repeat(blocks.length)}`;
}

/** Checks and compiles the program; returns the path of the output. */
export function compile(program: string, dir: string): string {
  writeFileSync(join(dir, "package.json"), '{ "type": "module" }');
  // A page names the published package, whose entries are those of the SDK.
  const own = program.replaceAll('from "forkd"', 'from "@forkd/sdk/node"');
  writeFileSync(join(dir, "page.ts"), own.replaceAll('from "forkd/browser"', 'from "@forkd/sdk"'));
  const compilerOptions = {
    target: "es2022",
    module: "nodenext",
    lib: ["es2022", "esnext.disposable", "dom"],
    types: ["node"],
    strict: true,
    skipLibCheck: true,
    outDir: "out",
  };
  writeFileSync(join(dir, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["page.ts"] }));
  const { status, stdout } = spawnSync(join(repository, "node_modules/.bin/tsc"), ["-p", dir], {
    encoding: "utf8",
  });
  assert.equal(status, 0, `${stdout}\n${program}`);
  return join(dir, "out/page.js");
}
