#!/usr/bin/env node
/**
 * Entry of the bundle that `tools/bundle-cli.mjs` makes: the verbs that need only the SDK, in one file, because
 * loading a hundred modules takes longer than most verbs. The modules run everything else.
 */
import { statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { isOutside } from "./outside.ts";

/** The packages in the bundle. Their build information is as new as their modules; the npm package has none. */
const packages = ["cli", "sdk", "contract"];

void start(process.argv.slice(2));

async function start(argv: readonly string[]): Promise<void> {
  if (isOutside(argv) || isOld()) {
    await import("../main.ts");
  } else {
    const { run } = await import("../run.ts");
    await run(argv);
  }
}

/** The modules were compiled after the bundle was made. */
function isOld(): boolean {
  const { mtimeMs } = statSync(__filename);
  return packages.some((name) => {
    const path = fileURLToPath(new URL(`../../../../${name}/dist/tsconfig.tsbuildinfo`, import.meta.url));
    return (statSync(path, { throwIfNoEntry: false })?.mtimeMs ?? 0) > mtimeMs;
  });
}
