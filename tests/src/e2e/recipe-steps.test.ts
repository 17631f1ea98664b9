/**
 * Recipes with steps on real VMs: a build runs only the steps that have changed, a recipe that extends a snapshot
 * stores a layer over it, and what fails leaves nothing but the layers of the steps before it.
 */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { runProgram } from "@forkd/base";
import { makeWheel, rejectsWith, until } from "@forkd/test-support";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { sh } from "../support/sandboxes.ts";
import { testDir } from "../support/test-dir.ts";

const dir = await testDir();
const index = join(dir.path, "index");
let daemon: TestDaemon;
before(async () => {
  await mkdir(index);
  makeWheel(index, { name: "forkd_one", version: "1.0", requires: ["forkd_two"] });
  makeWheel(index, { name: "forkd_two", version: "2.0" });
  daemon = await startDaemon({
    snapshots: ["python", "small"],
    ownImages: true,
    // Packages come from a directory, so that the test needs no network.
    env: { PIP_NO_INDEX: "1", PIP_FIND_LINKS: index },
  });
});
afterEach(() => daemon.forkd.call("killAll", {}));
after(async () => {
  await daemon[Symbol.asyncDispose]();
  await dir[Symbol.asyncDispose]();
});

/** Writes a recipe; returns its directory. */
async function recipe(name: string, json: object, files: Record<string, string> = {}): Promise<string> {
  const path = join(dir.path, name);
  await mkdir(path, { recursive: true });
  await writeFile(join(path, "recipe.json"), JSON.stringify({ version: 1, ...json }));
  for (const [file, text] of Object.entries(files)) await writeFile(join(path, file), text);
  return path;
}

/** Builds a recipe; returns its steps as the progress shows them. */
async function build(tag: string, path: string): Promise<string[]> {
  const steps: string[] = [];
  await daemon.forkd.snapshots.build(
    { tag, recipe: path, force: true },
    { onStep: ({ step, message }) => step.startsWith("step ") && steps.push(`${step} ${message}`) },
  );
  return steps;
}

async function layers(): Promise<string[]> {
  return (await readdir(join(daemon.dataDir, "images/layers")).catch(() => [])).sort();
}

async function manifestOf(tag: string): Promise<{
  origin: { kind: string };
  parent?: { tag: string };
  recipe: { name: string };
  files: { memory?: object; layer?: object; disks: object[] };
}> {
  return JSON.parse(await readFile(join(daemon.dataDir, "snapshots", tag, "manifest.json"), "utf8"));
}

// The root file system of the snapshot "python", which is in the cache.
const base = {
  base: { packages: ["python3", "python3-numpy"] },
  memory_mib: 128,
  dockerfile: "Dockerfile",
};
const dockerfile = [
  "ENV GREETING=hello",
  "WORKDIR /srv/app",
  "COPY main.sh .",
  "RUN echo $GREETING > one; touch /tmp/gone; nohup sleep 1000 > /dev/null 2>&1 &",
];
const files = (last: string) => ({ Dockerfile: [...dockerfile, last].join("\n"), "main.sh": "echo run" });

test("a build runs each step in its own boot of the guest, and a second build only what has changed", async () => {
  const last = "RUN cat one > two; ls /tmp | wc -l >> two; ! pidof sleep";
  const path = await recipe("stepped", base, files(last));
  const first = await build("stepped", path);
  assert.deepEqual(first, ["step 3/5 COPY main.sh main.sh", `step 4/5 ${dockerfile[3]}`, `step 5/5 ${last}`]);
  assert.equal((await layers()).length, 3);
  {
    await using sandbox = await daemon.forkd.create("stepped");
    assert.equal(await sh(sandbox, "cat two; sh main.sh; echo $GREETING"), "hello\n0\nrun\nhello");
  }
  await recipe("stepped", base, files("RUN echo other > two"));
  assert.deepEqual(await build("stepped", path), [
    "step 3/5 COPY main.sh main.sh  cached",
    `step 4/5 ${dockerfile[3]}  cached`,
    "step 5/5 RUN echo other > two",
  ]);
  assert.equal((await layers()).length, 4);
  const manifest = await manifestOf("stepped");
  assert.equal(manifest.files.disks.length, 4, "a layer for each step, and that of the parent");
  await using sandbox = await daemon.forkd.create("stepped");
  assert.equal(await sh(sandbox, "cat one two"), "hello\nother");
});

test("a step that fails names itself and its output, and leaves the layers of the steps before it", async () => {
  const earlier = await layers();
  const path = await recipe("failing", base, files("RUN echo oops >&2; exit 3"));
  const error = await rejectsWith(
    build("failing", path),
    "invalid_recipe",
    /Step 5 of 5 failed: RUN echo oops >&2; exit 3: exit code 3; last output: oops/,
  );
  assert.equal(error.details["step"], 5);
  assert.equal(error.details["exit_code"], 3);
  assert.deepEqual(await layers(), earlier, "neither the failed layer nor an incomplete one");
  await rejectsWith(daemon.forkd.snapshots.info("failing"), "snapshot_not_found");
});

test("a recipe that extends a snapshot stores a layer, and its children are warm with both", async () => {
  const source = join(dir.path, "package");
  await mkdir(source);
  const scripts = { postinstall: "echo no > ran" };
  await writeFile(join(source, "package.json"), JSON.stringify({ name: "x", version: "1.0.0", scripts }));
  await writeFile(join(source, "index.js"), "module.exports = 1;");
  const child = (last: string) => ({
    from: "python",
    env: { WHO: "child" },
    pip: ["forkd-one==1.0"],
    npm: ["./x-1.0.0.tgz"],
    steps: [{ run: last }],
    languages: { python: { warmup: "import forkd_one\nown = numpy.ones(3) * 2" } },
  });
  const path = await recipe("child", child("forkd_one > /etc/answer"));
  await runProgram("npm", ["pack", source, "--pack-destination", path]);
  assert.deepEqual(await build("child", path), [
    "step 1/3 PIP forkd-one==1.0",
    "step 2/3 NPM x-1.0.0.tgz",
    "step 3/3 RUN forkd_one > /etc/answer",
  ]);
  const manifest = await manifestOf("child");
  assert.deepEqual(manifest.origin, { kind: "build" });
  assert.equal(manifest.parent?.tag, "python");
  assert.equal(manifest.recipe.name, "child");
  assert.ok(manifest.files.layer && !manifest.files.memory, "only what differs from the parent");
  {
    await using sandbox = await daemon.forkd.create("child");
    const { resultJson } = await sandbox.eval(
      "[float(own.sum()), forkd_one.VERSION, __import__('forkd_two').VERSION, __import__('os').environ['WHO']]",
    );
    assert.deepEqual(resultJson, [6, "1.0", "2.0", "child"]);
    const found = "cat /etc/answer; cat /node_modules/x/index.js; ls /node_modules/x; ls /var/cache";
    assert.match(
      await sh(sandbox, found),
      /^forkd_one 1\.0\nmodule\.exports = 1;index\.js\npackage\.json\n(?!.*forkd-packages)/,
    );
  }
  await recipe("child", child("forkd_one > /etc/other"));
  assert.deepEqual(await build("child", path), [
    "step 1/3 PIP forkd-one==1.0  cached",
    "step 2/3 NPM x-1.0.0.tgz  cached",
    "step 3/3 RUN forkd_one > /etc/other",
  ]);
  const again = await manifestOf("child");
  assert.equal(again.parent?.tag, "python", "a layer over the parent, not over a state of the cache");
  await using sandbox = await daemon.forkd.create("child");
  assert.deepEqual((await sandbox.eval("[float(own.sum()), forkd_one.VERSION]")).resultJson, [6, "1.0"]);
  assert.equal(
    await sh(sandbox, "cat /etc/other; ls /etc/answer 2>/dev/null || echo none"),
    "forkd_one 1.0\nnone",
  );
});

test("a recipe cannot change the machine of the snapshot that it extends, nor extend what is not there", async () => {
  const larger = await recipe("larger", { from: "python", memory_mib: 1024 });
  const message = /memory_mib: is 1024, but "python" has 512/;
  await rejectsWith(build("larger", larger), "invalid_recipe", message);
  const more = await recipe("more", { from: "python", vcpus: 2 });
  await rejectsWith(build("more", more), "invalid_recipe", /vcpus: is 2, but "python" has 1/);
  const nothing = await recipe("nothing", { from: "no-such-snapshot" });
  const unknown = /from: there is neither a snapshot nor a bundled recipe "no-such-snapshot"/;
  await rejectsWith(build("nothing", nothing), "invalid_recipe", unknown);
});

test("a recipe beside another one is built first, and refused if the snapshot is another version of it", async () => {
  await recipe("lower", { from: "small", steps: [{ run: "echo lower > /etc/lower" }] });
  const path = await recipe("upper", { from: "../lower", steps: [{ run: "cat /etc/lower > /etc/upper" }] });
  await build("upper", path);
  const tags = (await daemon.forkd.snapshots.list().all()).map(({ tag, parentTag }) => [tag, parentTag]);
  assert.ok(tags.some(([tag, parent]) => tag === "lower" && parent === "small"));
  assert.ok(tags.some(([tag, parent]) => tag === "upper" && parent === "lower"));
  await using sandbox = await daemon.forkd.create("upper");
  assert.equal(await sh(sandbox, "cat /etc/upper"), "lower");
  await recipe("lower", { from: "small", steps: [{ run: "echo changed > /etc/lower" }] });
  const stale = /snapshot "lower" was not built from "\.\.\/lower" as it is now/;
  await rejectsWith(build("upper", path), "invalid_recipe", stale);
});

test("a cancelled build leaves its finished layers and nothing else", async () => {
  const path = await recipe("cancelled", {
    from: "small",
    steps: [{ run: "true" }, { run: "sleep 600" }],
  });
  const before = await layers();
  const stop = new AbortController();
  const building = daemon.forkd.snapshots.build(
    { tag: "cancelled", recipe: path },
    { signal: stop.signal, onStep: ({ step }) => step === "step 1/2" && stop.abort() },
  );
  await assert.rejects(building);
  // The daemon ends the build when it notices that its caller has gone; until then it has the tag.
  const missing = { tag: "cancelled", recipe: join(dir.path, "none") };
  await until("the build has ended", async () => {
    const error = await daemon.forkd.snapshots.build(missing).catch((thrown: unknown) => thrown);
    return (error as { code?: string }).code === "recipe_not_found";
  });
  const kept = (await layers()).filter((name) => !before.includes(name));
  assert.equal(kept.length, 1);
  assert.ok(!kept[0]?.startsWith("."), "an incomplete layer");
  assert.deepEqual(await readdir(join(daemon.dataDir, "sandboxes")), []);
  const drafts = (await readdir(join(daemon.dataDir, "snapshots"))).filter((name) => name.startsWith("."));
  assert.deepEqual(drafts, []);
});

test("gc removes the layers and states that no snapshot uses", async () => {
  const before = await layers();
  const { removed } = await daemon.forkd.call("gc", { images: true, dry_run: false });
  const left = await layers();
  const names = removed.filter(({ name }) => name.startsWith("layers/"));
  assert.equal(left.length, before.length - names.length);
  assert.equal(left.length, 3, "the layers of the snapshot that was built from images");
  await using sandbox = await daemon.forkd.create("child");
  assert.deepEqual((await sandbox.eval("float(own.sum())")).resultJson, 6);
});
