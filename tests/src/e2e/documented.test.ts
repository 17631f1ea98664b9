/**
 * Examples in the documentation work as shown. The commands of a page run in order, in one shell, as a reader
 * would run them; every TypeScript program is compiled and run. support/documented/blocks.ts describes how a
 * page marks commands that are not run or that have an expected exit code.
 */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { routes } from "@forkd/contract";
import { readRecipe } from "@forkd/image";
import { blocksOf, stepFrom, stepsOf, type Block, type Step } from "../support/documented/blocks.ts";
import { helpExamples } from "../support/documented/help.ts";
import { startRegistry } from "@forkd/test-support";
import { Reader } from "../support/documented/reader.ts";
import { difference } from "../support/documented/shape.ts";
import { compile, programOf } from "../support/documented/typescript.ts";

/** The shared snapshot that is used as `python-numpy` on each page; `tiny` if the page needs no Python. */
const pages: Readonly<Record<string, "python" | "tiny">> = {
  "README.md": "python",
  "docs/operate/auth.md": "tiny",
  "docs/guide/branching.md": "tiny",
  "docs/reference/cli.md": "python",
  "docs/reference/configuration.md": "tiny",
  "docs/reference/events.md": "tiny",
  "docs/guide/fork-safety.md": "python",
  "docs/guide/forking.md": "python",
  "docs/guide/ready-pool.md": "python",
  "docs/guide/code-interpreter.md": "python",
  "docs/guide/tree-search.md": "python",
  "docs/guide/own-image.md": "python",
  "docs/guide/mcp.md": "tiny",
  "docs/guide/network.md": "python",
  "docs/guide/secrets.md": "python",
  "docs/operate/isolation.md": "tiny",
  "docs/guide/ports.md": "python",
  "docs/reference/http-api.md": "python",
  "docs/reference/limits.md": "tiny",
  "docs/reference/metrics.md": "tiny",
  "docs/operate/operating.md": "tiny",
  "docs/operate/restarts.md": "tiny",
};
/** Pages whose TypeScript runs among the commands, in the order of the page. */
const tutorials: readonly string[] = [
  "docs/guide/code-interpreter.md",
  "docs/guide/tree-search.md",
  "docs/guide/own-image.md",
  "docs/guide/ports.md",
];
/** About 200 commands, which take longer than all other pages together. `npm run test:cli-docs` runs them. */
const longest = "docs/reference/cli.md";
const skipLong = process.env["FORKD_TEST_CLI_DOCS"] === "1" ? false : "takes long; run npm run test:cli-docs";
/** How many blocks of all pages may be marked as not run. */
const maxNotRun = 16;

const isShell = ({ language }: Block) => language === "sh" || language === "console";
const shellBlocks = (page: string) => blocksOf(page).filter(isShell);

function stepsOfPage(page: string): Step[] {
  return shellBlocks(page)
    .filter(({ notRun }) => notRun === undefined)
    .flatMap(stepsOf);
}

/** The same with its TypeScript, which becomes a program that runs at its place. */
function stepsOfTutorial(page: string, { workDir }: Reader): Step[] {
  const blocks = blocksOf(page);
  assert.equal(
    blocks.filter(({ language }) => language === "ts").length,
    1,
    `${page} has no program, or several`,
  );
  return blocks
    .filter(({ notRun }) => notRun === undefined)
    .flatMap((block) => {
      if (isShell(block)) return stepsOf(block);
      if (block.language !== "ts") return [];
      return [stepFrom(`${page}:${block.line}`, `node ${compile(programOf([block]), workDir)}`)];
    });
}

/** Runs every step, so that a failing step does not hide later ones. */
async function followAll(reader: Reader, steps: readonly Step[]): Promise<void> {
  const failures: unknown[] = [];
  for (const step of steps) await reader.follow(step).catch((error: unknown) => failures.push(error));
  if (failures.length === 0) return;
  throw new Error(failures.map((each) => (each instanceof Error ? each.message : String(each))).join("\n\n"));
}

test("difference() compares printed output with shown output", () => {
  const shown = '{"id":"sb-…","n":1,"state":"running","more":{…},"list":[1,…]}';
  const printed = { id: "sb-1", n: 2, state: "running", more: { a: 1 }, list: [3, 4] };
  const problem = (change: object) => difference(JSON.stringify({ ...printed, ...change }), shown);
  assert.equal(problem({}), undefined);
  assert.match(problem({ id: "x" }) ?? "", /\.id is "x"/);
  assert.match(problem({ n: "2" }) ?? "", /\.n is not a number/);
  assert.match(problem({ state: "dead" }) ?? "", /\.state is "dead"/);
  assert.match(problem({ more: undefined }) ?? "", /\.more is not an object/);
  assert.match(problem({ list: [] }) ?? "", /\.list has 0 elements/);
  assert.match(problem({ extra: 1 }) ?? "", /also has extra/);
  assert.equal(difference("a\nb   12 MiB\nc\n", "…\nb 3 MiB\n…"), undefined);
  for (const wrong of ["a", "a\nb 3 GiB", ""]) assert.ok(difference(wrong, "…\nb 3 MiB\n…"), wrong);
  assert.ok(difference("a\nb", "a"));
});

describe("the documentation", { concurrency: 2 }, () => {
  for (const [page, baked] of Object.entries(pages)) {
    test(`commands of ${page} work as shown`, { skip: page === longest && skipLong }, async (t) => {
      await using reader = await Reader.open({ "python-numpy": baked });
      const steps = tutorials.includes(page) ? stepsOfTutorial(page, reader) : stepsOfPage(page);
      assert.ok(steps.length > 0, `${page} shows no command`);
      if (steps.some(({ text }) => text.includes("$REGISTRY"))) {
        const { address } = await startRegistry(t);
        steps.unshift(stepFrom("setup", `REGISTRY=${address}/team`));
      }
      await followAll(reader, steps);
      if (page === "docs/guide/own-image.md") await readRecipe(join(reader.workDir, "counter"));
      if (page !== "docs/reference/http-api.md") return;
      await reader.finish();
      assertEveryRoute(reader, steps);
    });
  }

  for (const page of ["README.md", "docs/guide/sdk-typescript.md"]) {
    test(`TypeScript of ${page} compiles and runs`, async () => {
      // e2b-guide.test.ts runs the programs for E2B.
      const isOwn = ({ language, lines }: Block) => language === "ts" && !lines.join().includes("@e2b/");
      const blocks = blocksOf(page).filter(isOwn);
      assert.ok(blocks.length > 0);
      await using reader = await Reader.open({ "python-numpy": "python" });
      const program = compile(programOf(blocks), reader.workDir);
      await followAll(reader, [stepFrom(page, "forkd up -q"), stepFrom(page, `node ${program}`)]);
    });
  }

  test("examples in every help text run", { skip: skipLong }, async () => {
    const snapshots = { base: "tiny", "old-tag": "tiny", "step-9": "tiny", a: "tiny", b: "tiny" };
    await using reader = await Reader.open({ "python-numpy": "python", ...snapshots });
    mkdirSync(join(reader.workDir, "src"));
    mkdirSync(join(reader.env["HOME"] ?? "", ".config/fish/completions"), { recursive: true });
    writeFileSync(join(reader.workDir, "script.py"), "40 + 2\n");
    writeFileSync(join(reader.workDir, "token.txt"), "s3cret\n");
    await followAll(reader, [
      // The help has the beginning of an id; the name of a workspace is accepted there too.
      stepFrom(
        "setup",
        "for name in 3f2a 9c1d; do forkd workspace create $name --snapshot python-numpy; done",
      ),
      ...(await helpExamples(stepsOfPage(longest))),
    ]);
  });

  test("few blocks are marked as not run", () => {
    const left = Object.keys(pages).flatMap((page) =>
      shellBlocks(page).filter(({ notRun }) => notRun !== undefined),
    );
    assert.ok(left.length <= maxNotRun, `${left.length} blocks are not run`);
  });
});

/** Asserts that curl has called every route with success, so that the page has an example of each. */
function assertEveryRoute(reader: Reader, steps: readonly Step[]): void {
  const called = new Set<string>();
  for (const { route, status, user_agent } of reader.requests()) {
    // 499: the client disconnected, which is how a stream of events ends.
    // 404: a service needs a recipe, whose bootstrap takes minutes, so the example has none.
    const answered =
      status < 400 ||
      (status === 499 && (route === "events" || route === "watchFiles")) ||
      (status === 404 && route === "serviceLogs");
    if (answered && user_agent?.startsWith("curl/")) called.add(route);
  }
  // These two are not in the audit log.
  for (const name of ["health", "metrics"] as const)
    if (steps.some(({ text }) => text.startsWith(`api ${routes[name].path}`))) called.add(name);
  const missing = Object.keys(routes).filter((name) => !called.has(name));
  assert.deepEqual(missing, [], "routes without an example in docs/reference/http-api.md");
}
