/** `forkd recipes` with real demos that are fast, on the snapshots that the tests share. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { copyFile, cp, mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { linkSnapshot } from "../support/data-dir.ts";
import { cliPath, repository } from "../support/places.ts";

let daemon: TestDaemon;
before(async () => {
  daemon = await startDaemon({ snapshots: ["tiny"] });
  await linkSnapshot(daemon.dataDir, "python", "python-numpy");
});
after(() => daemon[Symbol.asyncDispose]());

type Row = { name: string; snapshot: { tag: string; status: string | null }; last: Result | null };
type Result = { ok: boolean; facts: Record<string, unknown>; accelerator: string; snapshot: string };

type Options = { env?: NodeJS.ProcessEnv; interruptAt?: string };

async function forkd(args: readonly string[], { env, interruptAt }: Options = {}) {
  const child = spawn(process.execPath, [cliPath, ...args], { env: { ...daemon.env, ...env } });
  let [stdout, stderr] = ["", ""];
  let isInterrupted = interruptAt === undefined;
  child.stdout.on("data", (data: Buffer) => {
    stdout += data.toString();
    if (isInterrupted || !stdout.includes(interruptAt ?? "")) return;
    // A second signal would end the CLI at once.
    isInterrupted = true;
    child.kill("SIGINT");
  });
  child.stderr.on("data", (data: Buffer) => (stderr += data.toString()));
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  return { code, stdout, stderr };
}

async function rows(): Promise<Row[]> {
  return JSON.parse((await forkd(["recipes", "--json"])).stdout) as Row[];
}

/** Demos that the snapshot of python-numpy is enough for. The others run with `npm run test:recipes`. */
const fast = ["mcp-agent", "speculative-agent"];
for (const name of fast) {
  test(`the demo of ${name} is ok and leaves nothing behind`, async () => {
    const { code, stdout, stderr } = await forkd(["recipes", "demo", name]);
    assert.equal(code, 0, stdout + stderr);
    const row = (await rows()).find((each) => each.name === name);
    assert.deepEqual(row?.snapshot, { tag: "python-numpy", status: "ready" });
    assert.equal(row.last?.ok, true);
    assert.equal(row.last.snapshot, "python-numpy");
    assert.ok(Object.keys(row.last.facts).length > 0);
    assert.deepEqual(await daemon.forkd.call("listSandboxes", {}), []);
    const tags = (await daemon.forkd.snapshots.list().all()).map(({ tag }) => tag);
    assert.deepEqual(tags, ["python-numpy", "tiny"]);
  });
}

test("the tools for models branch, rewind, keep and answer mistakes with text", async () => {
  const shelf = join(daemon.dir, "toolbox");
  await mkdir(join(shelf, "toolbox"), { recursive: true });
  await cp(join(repository, "recipes/_shared"), join(shelf, "_shared"), { recursive: true });
  await writeFile(join(shelf, "toolbox/program.json"), '{"version":1,"uses":"python-numpy"}');
  await copyFile(join(repository, "tests/python/toolbox.py"), join(shelf, "toolbox/demo.py"));
  const { code, stdout, stderr } = await forkd(["recipes", "demo", "toolbox"], {
    env: { FORKD_RECIPES_DIR: shelf },
  });
  assert.equal(code, 0, stdout + stderr);
  assert.deepEqual(await daemon.forkd.call("listSandboxes", {}), []);
  assert.equal((await daemon.forkd.snapshots.list().all()).length, 2);
});

test("a demo that is interrupted kills its sandboxes", async () => {
  const shelf = join(daemon.dir, "shelf");
  await mkdir(join(shelf, "waits"), { recursive: true });
  await writeFile(join(shelf, "waits/program.json"), '{"version":1,"uses":"tiny"}');
  const demo = [
    "import forkd",
    "with forkd.Sandbox.create('tiny') as sandbox:",
    "  sandbox.commands.run('echo started; sleep 600', timeout=0, on_stdout=print)",
  ];
  await writeFile(join(shelf, "waits/demo.py"), demo.join("\n"));
  const { code, stdout, stderr } = await forkd(["recipes", "demo", "waits"], {
    env: { FORKD_RECIPES_DIR: shelf },
    interruptAt: "started",
  });
  assert.equal(code, 130, stdout + stderr);
  assert.deepEqual(await daemon.forkd.call("listSandboxes", {}), []);
});

test("a recipe that cannot be built fails its demo with the error of the build", async () => {
  const shelf = join(daemon.dir, "shelf");
  await mkdir(join(shelf, "wrong"), { recursive: true });
  await writeFile(join(shelf, "wrong/recipe.json"), '{"version":1,"no_such_key":1}');
  await writeFile(join(shelf, "wrong/demo.sh"), "");
  const { code, stderr } = await forkd(["recipes", "demo", "wrong"], { env: { FORKD_RECIPES_DIR: shelf } });
  assert.equal(code, 2, "the build refuses the recipe");
  assert.match(stderr, /^Building wrong; later runs use it\.\nforkd: .*no_such_key/m);
});
