/** Every benchmark completes at its smallest size and writes rows of the documented shape. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { readdirSync, readFileSync } from "node:fs";
import { mkdir } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { promisify } from "node:util";
import { benchNames, checkRowsFile, type BenchName } from "@forkd/bench/row-shapes";
import { repository } from "../support/places.ts";
import { testDir } from "../support/test-dir.ts";

/** Much longer than a run takes on a slow host. A run that exceeds it hangs. */
const deadlineMs = 600_000;

type TinyRun = { out: string; stdout: string };

/** Runs one benchmark. All files that it writes are below `dir`. */
async function runTiny(name: BenchName, dir: string): Promise<TinyRun> {
  const out = join(dir, "out");
  const temporary = join(dir, "tmp");
  await mkdir(temporary);
  const program = join(repository, "bench/dist", `${name}.js`);
  const { stdout } = await promisify(execFile)(process.execPath, [program, "--tiny", "--out", out], {
    cwd: repository,
    env: { ...process.env, TMPDIR: temporary },
    timeout: deadlineMs,
  });
  assert.deepEqual(readdirSync(temporary), [], "the run leaves no temporary files");
  return { out, stdout };
}

/** The content of the only file of raw rows in the directory. */
function rowsIn(out: string): string {
  const files = readdirSync(out).filter((name) => name.endsWith(".jsonl"));
  assert.equal(files.length, 1);
  return readFileSync(join(out, files[0] ?? ""), "utf8");
}

const charts = ["spawn-dark.svg", "spawn-light.svg", "spawn-trace-dark.svg", "spawn-trace-light.svg"];

for (const name of benchNames) {
  test(`${name} --tiny completes and writes every documented kind of row`, async () => {
    await using dir = await testDir();
    const { out, stdout } = await runTiny(name, dir.path);
    assert.deepEqual(checkRowsFile(name, rowsIn(out)), [], "missing kinds of rows");
    const report = readFileSync(join(out, `${name}-report.md`), "utf8");
    assert.ok(stdout.includes(report.trimEnd()), "the printed report equals the written one");
    const others = readdirSync(out).filter((file) => !file.endsWith(".jsonl"));
    assert.deepEqual(others.sort(), [...(name === "spawn" ? charts : []), `${name}-report.md`].sort());
    for (const chart of others.filter((file) => file.endsWith(".svg"))) {
      assert.match(
        readFileSync(join(out, chart), "utf8"),
        chart.includes("trace")
          ? /^<svg [^]*<title [^]*first eval[^]*<\/svg>\n$/
          : /^<svg [^]*<title [^]*\(logarithmic\)[^]*<\/svg>\n$/,
      );
    }
  });
}

for (const name of benchNames) {
  test(`the checked-in rows of ${name} match the documented shape`, () => {
    const text = readFileSync(join(repository, "bench", `${name}-rows.jsonl`), "utf8");
    assert.doesNotThrow(() => checkRowsFile(name, text));
  });
}
