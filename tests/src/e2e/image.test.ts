/** Container images as a base: built without Docker, booted and forked. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { gzipSync } from "node:zlib";
import { runProgram } from "@forkd/base";
import type { Sandbox } from "@forkd/sdk";
import { rejectsWith, startRegistry, tarOf, writeLayout } from "@forkd/test-support";
import { bareTree, busyboxTree, pythonTree, tarTree } from "../support/container-images.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { cliPath } from "../support/places.ts";
import { forkAll } from "../support/sandboxes.ts";

let daemon: TestDaemon;
before(async () => {
  daemon = await startDaemon({ snapshots: ["node"], ownImages: true });
});
after(() => daemon[Symbol.asyncDispose]());

async function cli(...args: string[]): Promise<{ code: number | null; stdout: string; stderr: string }> {
  const child = spawn(process.execPath, [cliPath, ...args], {
    env: daemon.env,
    cwd: daemon.dir,
    stdio: ["ignore", "pipe", "pipe"],
  });
  let [stdout, stderr] = ["", ""];
  child.stdout.on("data", (data: Buffer) => (stdout += data.toString()));
  child.stderr.on("data", (data: Buffer) => (stderr += data.toString()));
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  return { code, stdout, stderr };
}

/** Writes a recipe into the directory of the daemon. */
async function recipe(name: string, json: object): Promise<string> {
  const path = join(daemon.dir, name);
  await mkdir(path, { recursive: true });
  await writeFile(join(path, "recipe.json"), JSON.stringify({ version: 1, ...json }));
  return path;
}

async function output(sandbox: Sandbox, argv: string[]): Promise<string> {
  const { stdout, stderr, exitCode } = await sandbox.commands.run(argv);
  assert.equal(exitCode, 0, stderr);
  return stdout;
}

test("an image of busybox boots with its variables, directory, user and entrypoint", async () => {
  const tree = await busyboxTree(join(daemon.dir, "busybox"));
  await mkdir(join(tree, "srv/www"), { recursive: true });
  await writeFile(join(tree, "srv/www/index.html"), "old page\n");
  await writeFile(join(tree, "srv/secret"), "gone\n");
  const changes = tarOf([
    { name: "srv/www/index.html", content: "page of the image\n" },
    { name: "srv/.wh.secret" },
    { name: "etc/passwd", content: "root:x:0:0::/root:/bin/sh\napp:x:1234:1234::/srv:/bin/sh\n" },
    { name: "dev/console", type: "3" },
  ]);
  await writeLayout(join(daemon.dir, "web"), {
    layers: [{ tar: await tarTree(tree) }, { tar: changes, compression: "zstd" }],
    config: {
      Env: ["PATH=/bin", "GREETING=hello from the image"],
      WorkingDir: "/srv/www",
      User: "app",
      Entrypoint: ["httpd", "-f"],
      Cmd: ["-p", "8080"],
      ExposedPorts: { "8080/tcp": {} },
      Volumes: { "/data": {} },
      Labels: { vendor: "test" },
    },
  });
  const built = await cli(
    "build",
    "--image",
    "oci:web",
    "--start",
    "--ready-port",
    "8080",
    "--memory-mib",
    "128",
  );
  assert.equal(built.code, 0, built.stderr);
  assert.equal(built.stdout, "web\n");
  assert.match(built.stderr, /unpack .*Left out: device node "dev\/console"/);
  for (const child of await forkAll(daemon.forkd, "web", 2)) {
    assert.equal(await output(child, ["pwd"]), "/srv/www\n");
    assert.equal(await output(child, ["id", "-u"]), "1234\n");
    assert.equal(await output(child, ["sh", "-c", "echo $GREETING; ls /srv"]), "hello from the image\nwww\n");
    assert.equal(await output(child, ["wget", "-q", "-O-", "http://127.0.0.1:8080/"]), "page of the image\n");
    const asRoot = await child.commands.run(["sh", "-c", "id -u; pwd"], { user: "root", cwd: "/" });
    assert.equal(asRoot.stdout, "0\n/\n");
    await child.kill();
  }
  const detail = await daemon.forkd.snapshots.info("web");
  assert.equal(detail.image, `oci:${join(daemon.dir, "web")}`);
  const { stdout } = await cli("info", "web");
  for (const line of [
    /^image +oci:.*web \(sha256:[0-9a-f]{64}\)$/m,
    /^ {2}entrypoint +\["httpd","-f"\]$/m,
    /^ {2}command +\["-p","8080"\]$/m,
    /^ {2}workdir +\/srv\/www$/m,
    /^ {2}user +app$/m,
    /^ {2}ports +8080\/tcp$/m,
    /^ {2}volumes +\/data$/m,
    /^ {2}labels +vendor=test$/m,
  ])
    assert.match(stdout, line);
  assert.match((await cli("images")).stdout, /oci:.*web/);
});

test("a recipe over a snapshot can start a service beside those that run, under another name", async () => {
  const argv = ["httpd", "-f", "-p", "8081"];
  const same = await recipe("same", { from: "web", services: [{ name: "httpd", argv }] });
  const steps: string[] = [];
  const refused = daemon.forkd.snapshots.build(
    { tag: "same", recipe: same },
    { onStep: ({ step }) => steps.push(step) },
  );
  await rejectsWith(refused, "invalid_recipe", /services\[0\]\.name: "httpd" is a service of "web"/);
  assert.deepEqual(steps, []);
  const two = await recipe("two", { from: "web", services: [{ argv, ready: { port: 8081 } }] });
  await daemon.forkd.snapshots.build({ tag: "two", recipe: two });
  await using sandbox = await daemon.forkd.create("two");
  const services = await daemon.forkd.call("listServices", { id: sandbox.id });
  assert.deepEqual(services.map(({ name, state }) => `${name} ${state}`).sort(), [
    "httpd running",
    "httpd-2 running",
  ]);
  for (const port of [8080, 8081])
    assert.equal(
      await output(sandbox, ["wget", "-q", "-O-", `http://127.0.0.1:${port}/`]),
      "page of the image\n",
    );
});

test("steps over an image begin with its user, directory and variables", async () => {
  await recipe("stepped", {
    base: { image: "oci:../web" },
    steps: [
      // It fails as root.
      { run: '[ "$(id -u) $(pwd) $GREETING" = "1234 /srv/www hello from the image" ] && ! touch denied' },
      { user: "root" },
      { run: "mkdir -m 777 ../work" },
      { workdir: "../work" },
      { user: "app" },
      { run: ["sh", "-c", "id -u > made-by"] },
    ],
    memory_mib: 128,
  });
  await daemon.forkd.snapshots.build({ tag: "stepped", recipe: join(daemon.dir, "stepped") });
  await using sandbox = await daemon.forkd.create("stepped");
  assert.equal(await output(sandbox, ["sh", "-c", "pwd; id -u; cat made-by"]), "/srv/work\n1234\n1234\n");
});

test("an image with nothing but two programs boots: one static, one with musl", async (t) => {
  const tree = await bareTree(join(daemon.dir, "bare"));
  await writeLayout(join(daemon.dir, "bare-image"), {
    layers: [{ tar: await tarTree(tree), compression: "none" }],
  });
  await runProgram("tar", [
    "-C",
    join(daemon.dir, "bare-image"),
    "-czf",
    join(daemon.dir, "packed.tar.gz"),
    ".",
  ]);
  await rm(join(daemon.dir, "bare-image"), { recursive: true });
  const image = `oci:${join(daemon.dir, "packed.tar.gz")}`;
  const steps: string[] = [];
  await daemon.forkd.snapshots.build(
    { tag: "bare", image, memoryMib: 96 },
    { onStep: ({ step }) => steps.push(step) },
  );
  assert.deepEqual(steps.slice(0, 3), ["read", "unpack", "image"]);
  const sandbox = await daemon.forkd.create("bare");
  assert.equal(await output(sandbox, ["/static"]), "static 0\n");
  assert.equal(await output(sandbox, ["/dynamic"]), "musl 0\n");
  await sandbox.files.write("/tmp/file", "text");
  assert.equal(await sandbox.files.readText("/etc/hosts").then((text) => /localhost/.test(text)), true);
  await sandbox.kill();

  // The same content from a registry, where its layer is compressed: nothing is unpacked again.
  const registry = await startRegistry(t);
  const name = `${registry.address}/test/bare:1`;
  await runProgram("gunzip", [join(daemon.dir, "packed.tar.gz")]);
  await runProgram("skopeo", [
    "copy",
    "--insecure-policy",
    "--dest-tls-verify=false",
    `oci-archive:${join(daemon.dir, "packed.tar")}`,
    `docker://${name}`,
  ]);
  const again = await cli("build", "--image", name, "--memory-mib", "96", "--json");
  assert.equal(again.code, 0, again.stderr);
  const events = again.stdout
    .trim()
    .split("\n")
    .map(
      (line) =>
        JSON.parse(line) as { type: string; step?: string; snapshot?: { tag: string; image: string } },
    );
  assert.ok(!events.some(({ step }) => step === "unpack"));
  const { snapshot } = events.at(-1) ?? {};
  assert.deepEqual([snapshot?.tag, snapshot?.image], ["bare-1", name]);
  const info = await daemon.forkd.snapshots.info("bare-1");
  assert.equal(
    info.manifest["rootfs"] && JSON.stringify(info.manifest["rootfs"]),
    JSON.stringify((await daemon.forkd.snapshots.info("bare")).manifest["rootfs"]),
  );
});

test("a recipe adds files, commands and a warm interpreter to a Debian image with a user", async () => {
  const tree = await pythonTree(join(daemon.dir, "debian"));
  const upper = tarOf([
    { name: "project/", uid: 1500, gid: 1500 },
    { name: "usr/share/.wh.doc" },
    { name: "usr/share/python3/.wh..wh..opq" },
  ]);
  const path = await recipe("app", {
    base: { image: "oci:layout" },
    files: [{ from: "note.txt", to: "/opt/note.txt" }],
    run: [["sh", "-c", "id -u > built-by; cat /opt/note.txt >> built-by"]],
    env: { BOTH: "recipe" },
    languages: { python: { warmup: "import json, os" } },
    memory_mib: 256,
  });
  await writeLayout(join(path, "layout"), {
    layers: [{ tar: await tarTree(tree) }, { tar: upper }],
    types: "docker",
    config: { Env: ["FROM_IMAGE=1", "BOTH=image"], WorkingDir: "/project", User: "1500:1500" },
  });
  await rm(tree, { recursive: true });
  await rm(`${tree}.tar`);
  await writeFile(join(path, "note.txt"), "from the recipe\n");
  await daemon.forkd.snapshots.build({ tag: "app", recipe: path });
  const sandbox = await daemon.forkd.create("app");
  assert.equal(await output(sandbox, ["cat", "/project/built-by"]), "1500\nfrom the recipe\n");
  const { resultJson } = await sandbox.eval(
    "[os.getcwd(), os.getuid(), os.environ['FROM_IMAGE'], os.environ['BOTH'], os.path.exists('/usr/share/doc')]",
  );
  assert.deepEqual(resultJson, ["/project", 1500, "1", "recipe", false]);
  // A branch keeps directory and user.
  await sandbox.branch({ tag: "app-branch" });
  const child = await daemon.forkd.create("app-branch");
  assert.equal(await output(child, ["sh", "-c", "pwd; id -u"]), "/project\n1500\n");
  await daemon.forkd.call("killAll", {});
});

test("a warm interpreter runs as the user of an image, also after steps over its snapshot", async () => {
  const path = await recipe("more", {
    from: "app",
    steps: [{ run: "id -u > stepped-by; echo 'value = 7' > added.py" }],
    // The interpreter that runs has its names, and finds what the step added.
    languages: { python: { warmup: "import sys; sys.path.insert(0, os.getcwd())\nimport added" } },
  });
  await daemon.forkd.snapshots.build({ tag: "more", recipe: path });
  await using sandbox = await daemon.forkd.create("more");
  assert.equal(await output(sandbox, ["sh", "-c", "pwd; id -u; cat stepped-by"]), "/project\n1500\n1500\n");
  const { resultJson } = await sandbox.eval("[added.value, os.getcwd(), os.getuid(), json.loads('[1]')]");
  assert.deepEqual(resultJson, [7, "/project", 1500, [1]]);
});

test("a warm Node interpreter finds packages that steps over its snapshot add", async () => {
  const path = await recipe("packaged", {
    from: "node",
    npm: ["./seven-1.0.0.tgz"],
    steps: [{ workdir: "/srv" }, { run: "echo 'module.exports = 8;' > eight.js" }],
    languages: { node: { warmup: "var seven = require('seven'); var eight = require('/srv/eight.js');" } },
  });
  const archive = tarOf([
    { name: "package/package.json", content: JSON.stringify({ name: "seven", version: "1.0.0" }) },
    { name: "package/index.js", content: "module.exports = 7;" },
  ]);
  await writeFile(join(path, "seven-1.0.0.tgz"), gzipSync(archive));
  await daemon.forkd.snapshots.build({ tag: "packaged", recipe: path });
  await using sandbox = await daemon.forkd.create("packaged");
  const { resultJson } = await sandbox.eval("[seven, eight, require('seven')]", { language: "node" });
  assert.deepEqual(resultJson, [7, 8, 7]);
  assert.equal(await output(sandbox, ["node", "-p", "process.cwd() + require('seven')"]), "/srv7\n");
});

test("images that cannot be built leave nothing behind", async () => {
  const layer = { tar: tarOf([{ name: "a/../../../escape", content: "x" }]) };
  const layout = await writeLayout(join(daemon.dir, "hostile"), { layers: [layer] });
  const { code, stderr } = await cli("build", "--image", `oci:${layout}`);
  assert.equal(code, 2);
  assert.match(
    stderr,
    /Cannot use "oci:.*hostile": layer 1 of 1 \(sha256:.*\): "a\/.*escape" leads out of the image/,
  );
  const plain = await writeLayout(join(daemon.dir, "plain"), { layers: [{ tar: tarOf([{ name: "x/" }]) }] });
  await rejectsWith(
    daemon.forkd.snapshots.build({ tag: "none", image: `oci:${plain}`, start: {} }),
    "invalid_image",
    /it has neither ENTRYPOINT nor CMD/,
  );
  await rejectsWith(
    daemon.forkd.snapshots.build({ tag: "none", rootfs: plain }),
    "invalid_image",
    /it looks like a container image with layers/,
  );
  assert.equal((await cli("build", "--image", "oci:plain", "some-recipe")).code, 2);
  assert.equal((await cli("build", "python-numpy", "--start")).code, 2);
  const tags = (await daemon.forkd.snapshots.list().all()).map(({ tag }) => tag);
  assert.ok(!tags.includes("hostile") && !tags.includes("none"));
});
