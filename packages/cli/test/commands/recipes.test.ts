/** `forkd recipes` with a shelf of small demos, against a fake daemon. */
import assert from "node:assert/strict";
import { existsSync } from "node:fs";
import { chmod, mkdir, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { openFakeDaemon, snapshot, type FakeDaemon } from "../fake-daemon.ts";
import { jsonLines, runCli, type CliOptions } from "../run-cli.ts";

const good = `import json, os, sys
print("working in", os.listdir("."))
print("over two lines", file=sys.stderr)
print(json.dumps({"recipe": "good", "ok": True, "facts": {"tag": os.environ["FORKD_DEMO_TAG"]}}))
`;
const demos: Readonly<Record<string, string>> = {
  "good/demo.py": good,
  "raises/demo.py": "raise SystemExit('it broke')",
  "silent/demo.py": "print('{}')",
  "other/demo.py": `print('{"recipe": "good", "ok": true}')`,
  "not-ok/demo.py": `print('{"recipe": "not-ok", "ok": false, "facts": {"n": 1}}')`,
  "hangs/demo.py": "print('started')\nwhile True:\n  pass",
  "sdk/demo.py": `import forkd, json; print(json.dumps({"recipe": "sdk", "ok": "Sandbox" in dir(forkd)}))`,
  "node/demo.mjs": `import { Sandbox } from "forkd";
console.log(JSON.stringify({ recipe: "node", ok: typeof Sandbox.create === "function" }));`,
  "shell/demo.sh": `#!/bin/sh
set -e
test "$(forkd images -q)" = good
echo '{"recipe": "shell", "ok": true}'`,
};

type Result = { ok: boolean; error?: string; facts: object; seconds: number };

/** A daemon that has the snapshot `good`, and a shelf with the demos. */
async function open(): Promise<
  { daemon: FakeDaemon; options: CliOptions; dataDir: string } & AsyncDisposable
> {
  let dataDir = "";
  const daemon = await openFakeDaemon({
    "GET /v1/snapshots": { json: [snapshot("good")] },
    "GET /v1/snapshots/good/info": { json: snapshot("good") },
    "GET /v1/status": () => ({ json: { data_dir: dataDir } }),
    "POST /v1/snapshots": {
      status: 201,
      lines: [
        { type: "step", step: "boot", message: "booting", duration_ms: 2345 },
        { type: "snapshot", snapshot: snapshot("built") },
      ],
    },
  });
  dataDir = join(daemon.dir, "data");
  const shelf = join(daemon.dir, "shelf");
  for (const [path, text] of Object.entries({
    ...demos,
    "built/demo.py": good.replace('"good"', '"built"'),
  })) {
    const name = path.split("/")[0] ?? "";
    await mkdir(join(shelf, name), { recursive: true });
    await writeFile(join(shelf, path), text);
    if (path.endsWith(".sh")) await chmod(join(shelf, path), 0o755);
    const own = name === "good" || name === "built";
    const facts = { version: 1, description: `about ${name}`, ...(!own && { uses: "good" }) };
    await writeFile(join(shelf, name, own ? "recipe.json" : "program.json"), JSON.stringify(facts));
  }
  const env = { FORKD_RECIPES_DIR: shelf, TMPDIR: join(daemon.dir, "tmp") };
  await mkdir(env.TMPDIR);
  return {
    daemon,
    options: { socket: daemon.socket, env },
    dataDir,
    [Symbol.asyncDispose]: () => daemon[Symbol.asyncDispose](),
  };
}

test("recipes demo runs the demo, prints its lines and records its result", async () => {
  await using place = await open();
  const { code, stdout, stderr } = await runCli(["recipes", "demo", "good"], place.options);
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^working in \['bin'\]\nok: good in \d+\.\d s\n {2}tag: good\n$/);
  assert.equal(stderr, "over two lines\n");
  const recorded = JSON.parse(await readFile(join(place.dataDir, "demos/good.json"), "utf8")) as Result;
  assert.deepEqual([recorded.ok, recorded.facts], [true, { tag: "good" }]);
  assert.deepEqual(await readdir(join(place.daemon.dir, "tmp")), []);
  const listed = await runCli(["recipes"], place.options);
  assert.match(listed.stdout, /^good +ready +ok +\d+s ago +here +\d\S+ +\d+\.\d +about good$/m);
  assert.match(listed.stdout, /^raises +good: ready +never run +- .* about raises$/m);
  assert.match(listed.stdout, /^built +not built +never run /m);
  const one = await runCli(["recipes", "good"], place.options);
  assert.match(one.stdout, /^last demo here +ok in .*\n {2}tag +good$/m);
  const names = (await runCli(["recipes", "-q"], place.options)).stdout.split("\n");
  assert.ok(names.includes("good") && names.includes("hangs"));
});

test("recipes demo reports why a demo failed, and exits with 1", async () => {
  await using place = await open();
  const expected: [name: string, why: RegExp][] = [
    ["raises", /^exit code 1: it broke$/],
    ["silent", /^its last line is not a result/],
    ["other", /^its result names the recipe "good"$/],
    ["not-ok", /^its result is not ok$/],
  ];
  for (const [name, why] of expected) {
    const { code, stdout } = await runCli(["recipes", "demo", name, "--json"], place.options);
    assert.equal(code, 1, name);
    const last = jsonLines(stdout).at(-1) as { type: string; result: Result };
    assert.equal(last.type, "demo");
    assert.equal(last.result.ok, false);
    assert.match(last.result.error ?? "", why);
    assert.ok(existsSync(join(place.dataDir, `demos/${name}.json`)), name);
  }
  const plain = await runCli(["recipes", "demo", "raises"], place.options);
  assert.match(plain.stderr, /^failed: raises in \d+\.\d s: exit code 1: it broke$/m);
});

test("recipes demo stops a demo that takes too long, and one that is interrupted", async () => {
  await using place = await open();
  const late = await runCli(["recipes", "demo", "hangs", "--timeout", "1s"], place.options);
  assert.equal(late.code, 1);
  assert.match(late.stderr, /it did not end within 1 s/);
  const interrupted = await runCli(["recipes", "demo", "hangs"], {
    ...place.options,
    onStdout: (text, child) => {
      if (text.endsWith("started\n")) child.kill("SIGINT");
    },
  });
  assert.equal(interrupted.code, 130, interrupted.stderr);
  assert.deepEqual(await readdir(join(place.daemon.dir, "tmp")), []);
});

test("recipes demo offers the SDKs to Python and Node, and forkd to a shell", async () => {
  await using place = await open();
  for (const name of ["sdk", "node", "shell"]) {
    const { code, stderr } = await runCli(["recipes", "demo", name], place.options);
    assert.equal(code, 0, `${name}: ${stderr}`);
  }
});

test("recipes demo builds a snapshot that is missing; with --tag it does not", async () => {
  await using place = await open();
  const built = await runCli(["recipes", "demo", "built", "--json"], place.options);
  assert.equal(built.code, 0, built.stderr);
  assert.deepEqual(
    jsonLines(built.stdout).map((event) => (event as { type: string }).type),
    ["step", "snapshot", "output", "output", "demo"],
  );
  const asked = place.daemon.asked.find(({ method }) => method === "POST");
  const shelf = place.options.env?.["FORKD_RECIPES_DIR"] ?? "";
  assert.deepEqual(JSON.parse(asked?.body ?? ""), {
    tag: "built",
    recipe: join(shelf, "built"),
    force: false,
  });
  const other = await runCli(["recipes", "demo", "built", "--tag", "good"], place.options);
  assert.match(other.stdout, /tag: good/);
  assert.equal(place.daemon.asked.filter(({ method }) => method === "POST").length, 1);
});

test("recipes refuses unknown names and recipes without a demo, before it asks the daemon", async () => {
  await using place = await open();
  const unknown = await runCli(["recipes", "goood"], place.options);
  assert.equal(unknown.code, 3);
  assert.match(unknown.stderr, /"goood" is not on the shelf.*\n {2}Did you mean "good"\?/);
  await rm(join(place.daemon.dir, "shelf/node/demo.mjs"));
  const without = await runCli(["recipes", "demo", "node"], place.options);
  assert.equal(without.code, 2);
  assert.match(without.stderr, /^forkd: The recipe node has no demo$/m);
  const absent = await runCli(["build", "node"], place.options);
  assert.match(absent.stderr, /"node" is a program .*\n {2}Run `forkd recipes demo node`/);
  assert.deepEqual(place.daemon.asked, []);
});

test("names of recipes and demos are completed", async () => {
  await using place = await open();
  const complete = async (...words: string[]) =>
    (await runCli(["__complete", "--", ...words], place.options)).stdout.trimEnd().split("\n");
  assert.deepEqual(await complete("recipes", "g"), ["good"]);
  assert.deepEqual(await complete("recipes", "de"), ["demo"]);
  assert.deepEqual(await complete("recipes", "demo", "n"), ["node", "not-ok"]);
});
