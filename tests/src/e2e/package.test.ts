/** The npm package `forkd`, packed, installed in an empty project and used as a user does. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { mkdir, readdir, readFile, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { linkSnapshot, linkSnapshots } from "../support/data-dir.ts";
import { noteDataDir } from "../support/orphans.ts";
import {
  compile,
  importsOf,
  install,
  mustRun,
  pack,
  run,
  type Packed,
} from "../support/package/installed.ts";
import { repository } from "../support/places.ts";
import { testDir } from "../support/test-dir.ts";

let dir: { path: string } & AsyncDisposable;
let packed: Packed;
let app: string;
let env: NodeJS.ProcessEnv;

before(async () => {
  dir = await testDir();
  packed = await pack(join(dir.path, "first"));
  app = await install(packed, dir.path);
  const dataDir = join(dir.path, "data");
  noteDataDir(dataDir);
  await linkSnapshots(dataDir, ["tiny"]);
  await linkSnapshot(dataDir, "python", "python-numpy");
  env = {
    ...process.env,
    PATH: await bareHost(),
    FORKD_DATA_DIR: dataDir,
    FORKD_RUNTIME_DIR: join(dir.path, "run"),
    FORKD_LISTEN: "127.0.0.1:0",
    FORKD_POOL_MEMORY_PERCENT: "0",
    FORKD_ON_STOP: "stop",
  };
});
after(async () => {
  await forkd("down", "--stop");
  await dir[Symbol.asyncDispose]();
});

/** Programs that a host without forkd's Debian packages lacks. */
const lacking = ["qemu-system-x86_64", "qemu-img", "mmdebstrap", "xz", "zstd"];

/** A PATH with links to all programs but those, and an apt-get that installs them by links. */
async function bareHost(): Promise<string> {
  const bin = join(dir.path, "bin");
  await mkdir(bin);
  const places = (process.env["PATH"] ?? "").split(":").toReversed();
  const found = new Map<string, string>();
  for (const place of places) {
    for (const name of await readdir(place).catch(() => [])) found.set(name, join(place, name));
  }
  const link = (name: string) => symlink(found.get(name) ?? "", join(bin, name));
  for (const name of found.keys()) if (name !== "apt-get" && !lacking.includes(name)) await link(name);
  const installing = lacking.map((name) => `ln -sf '${found.get(name)}' '${bin}/${name}'`);
  const script = ["#!/bin/sh", '[ "$1" = install ] || exit 0', ...installing, ""].join("\n");
  await writeFile(join(bin, "apt-get"), script, { mode: 0o755 });
  return bin;
}

/** Runs the CLI as the user of the project does. */
function forkd(...args: string[]) {
  return run("npx", ["forkd", ...args], { cwd: app, env });
}

/** The first program in the README of the package. */
const readme = readFileSync(join(repository, "packages/forkd/README.md"), "utf8");
const example = /^```ts\n([^]*?)^```$/m.exec(readme)?.[1] ?? "";

test("the package has what it needs and nothing else", async () => {
  const paths = packed.files.map(({ path }) => path);
  const allowed = [
    /^(package\.json|README\.md|LICENSE)$/,
    /^dist\/packages\/[a-z0-9]+\/dist\/src\/.*\.(js|d\.ts)$/,
    /^dist\/packages\/cli\/dist\/bundle\/forkd\.cjs$/,
    /^dist\/packages\/[a-z0-9]+\/package\.json$/,
    /^dist\/native\/build\/(forkd-[a-z]+|libforkd-[a-z]+\.so)$/,
    /^dist\/guest\/build\/(forkd-agent|[a-z]+\.node)$/,
    /^dist\/guest\/kernels\/(python\/\w+\.py|node\/[\w-]+\.cjs)$/,
    /^dist\/recipes\/([a-z0-9_-]+\/.+|results\.json)$/,
    /^dist\/sdks\/python\/src\/forkd\/[\w/]+\.(py|typed)$/,
    /^dist\/deploy\/systemd\/[a-z-]+\.service$/,
  ];
  assert.deepEqual(
    paths.filter(
      (path) => !allowed.some((pattern) => pattern.test(path)) || /^(?!dist\/recipes\/).*test/.test(path),
    ),
    [],
  );
  for (const { path, mode } of packed.files) {
    // Demos that are run by an interpreter may be executable.
    if (/^dist\/recipes\/.*\.(py|mjs)$/.test(path)) continue;
    const isProgram = path.includes("/build/") || /(\/bundle\/forkd\.cjs|\.sh)$/.test(path);
    assert.equal(mode & 0o777, isProgram ? 0o755 : 0o644, path);
  }
  for (const path of [
    "LICENSE",
    "README.md",
    "dist/packages/egress/dist/src/proxy/main.js",
    "dist/packages/image/dist/src/rootfs/offer-archives.js",
    "dist/native/build/forkd-launch",
    "dist/guest/build/forkd-agent",
    "dist/guest/kernels/python/kernel.py",
    "dist/guest/kernels/node/kernel.cjs",
    "dist/recipes/python-numpy/recipe.json",
    "dist/recipes/tree-search/demo.py",
    "dist/recipes/results.json",
    "dist/sdks/python/src/forkd/__init__.py",
  ])
    assert.ok(paths.includes(path), path);
  const root = join(app, "node_modules/forkd");
  for (const name of await readdir(root, { recursive: true })) {
    if (!/\.(c?js|d\.ts|json|md|service)$/.test(name)) continue;
    const text = await readFile(join(root, name), "utf8");
    assert.ok(!text.includes(repository), `${name} names a directory of this machine`);
    assert.ok(!text.includes("sourceMappingURL"), `${name} names a source map`);
    assert.ok(!/(from|import\() ?"@forkd\//.test(text), `${name} imports a package that is not published`);
  }
});

test("the manifest needs no corrections, and every dependency has one exact version", async () => {
  const path = join(app, "node_modules/forkd/package.json");
  const manifest = JSON.parse(await readFile(path, "utf8")) as Record<string, Record<string, string>>;
  for (const field of ["description", "keywords", "license", "engines", "bin", "exports", "files", "type"])
    assert.ok(manifest[field] !== undefined, field);
  for (const [name, version] of Object.entries(manifest["dependencies"] ?? {}))
    assert.match(version, /^\d+\.\d+\.\d+$/, name);
  const fixed = join(dir.path, "fixed");
  await mkdir(fixed);
  await writeFile(join(fixed, "package.json"), await readFile(path));
  await mustRun("npm", ["pkg", "fix"], { cwd: fixed });
  assert.deepEqual(JSON.parse(await readFile(join(fixed, "package.json"), "utf8")), manifest);
});

test("packing twice gives the same bytes and leaves nothing in the tree", async () => {
  const again = await pack(join(dir.path, "again"));
  assert.equal(again.sha256, packed.sha256);
  const names = await readdir(join(repository, "packages/forkd"));
  assert.deepEqual(names.sort(), ["README.md", "package.json"]);
});

test("npx forkd quickstart names missing programs; with --install it works", async () => {
  const bare = await forkd("quickstart", "-n", "2");
  assert.equal(bare.code, 8, bare.stderr);
  assert.match(bare.stderr, /lacks Debian packages: qemu-system-x86, .*mmdebstrap/);
  assert.match(bare.stderr, /Run `npx forkd quickstart --install`/);
  if (process.getuid?.() !== 0) env = { ...env, PATH: process.env["PATH"] };
  const { code, stdout, stderr } = await forkd("quickstart", "--install", "-n", "2");
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^2 of 2 forked in/m);
  assert.equal(stdout.match(/\[0\.0, 0\.0, 0\.0, 0\.0, 0\.0\]/g)?.length, 2, stdout);
  assert.match(stderr, /npx forkd ls/);
});

test("the program in the README compiles with strict checks and runs", async () => {
  for (const [name, module, resolution] of [
    ["nodenext", "nodenext", "nodenext"],
    ["bundler", "esnext", "bundler"],
  ] as const) {
    const program = await compile(app, example, { name, module, resolution });
    const printed = await mustRun(process.execPath, [program], { cwd: app, env });
    assert.equal(printed, "[0.0, 0.0, 0.0, 0.0, 0.0]\n1\n\n14\n14\n");
  }
  // It has killed what it forked, and the snapshot in between is gone with its children.
  assert.equal((await forkd("images", "-q")).stdout, "python-numpy\ntiny\n");
  assert.equal((await forkd("ls", "-q")).stdout.trimEnd().split("\n").length, 2, "those of quickstart");
});

test("forkd/browser imports no module of Node and nothing from other packages", async () => {
  const { exports } = JSON.parse(await readFile(join(app, "node_modules/forkd/package.json"), "utf8")) as {
    exports: Record<string, { default: string }>;
  };
  const root = join(app, "node_modules/forkd");
  const { files, others } = await importsOf(join(root, exports["./browser"]?.default ?? ""));
  assert.deepEqual([...others], []);
  assert.ok(files.size > 10);
  // The walk sees modules of Node where there are some.
  const node = await importsOf(join(root, exports["."]?.default ?? ""));
  assert.ok(node.others.has("node:http"));
});

test("forkd/browser compiles without types of Node and talks to a daemon with fetch", async () => {
  const source = `
import { Forkd, fetchTransport } from "forkd/browser";
const [url = "", token = ""] = (globalThis as unknown as { place: string }).place.split(" ");
const forkd = new Forkd({ transport: fetchTransport({ url, token }) });
const { api } = await forkd.version();
const tags: string[] = [];
for await (const { tag } of forkd.snapshots.list()) tags.push(tag);
console.log(api, tags.join());
`;
  const options = { name: "browser", module: "esnext", resolution: "bundler", node: false } as const;
  const program = await compile(app, source, options);
  const { url } = JSON.parse((await forkd("up", "--json")).stdout) as { url: string };
  const token = (await readFile(join(dir.path, "data/token"), "utf8")).trim();
  const start = `globalThis.place = ${JSON.stringify(`${url} ${token}`)}; await import(${JSON.stringify(program)});`;
  const args = ["--input-type=module", "--eval", start];
  assert.equal(await mustRun(process.execPath, args, { cwd: app, env }), "v1 python-numpy,tiny\n");
});

test("the installed daemon builds snapshots, starts the proxy and knows its files", async () => {
  const doctor = JSON.parse((await forkd("doctor", "--no-boot", "--json")).stdout) as {
    checks: { name: string; outcome: string; detail: string }[];
  };
  const detailOf = (name: string) => doctor.checks.find((check) => check.name === name)?.detail ?? "";
  for (const name of ["guest agent", "page helper"])
    assert.ok(detailOf(name).startsWith(join(app, "node_modules/forkd/dist/")), detailOf(name));
  assert.match((await forkd("build", "nosuch")).stderr, /Bundled recipes: .*nodejs, .*python-numpy/);
  const unit = (await forkd("service", "print")).stdout;
  assert.match(unit, /node_modules\/forkd\/dist\/packages\/cli\/dist\/src\/main\.js serve/);
  const built = await forkd("build", "python-numpy", "--tag", "own");
  assert.equal(built.code, 0, built.stderr);
  const ran = await forkd(
    "run",
    "own",
    "--allow",
    "api.example.com:443",
    "--",
    "python3",
    "-c",
    "print(6 * 7)",
  );
  assert.deepEqual([ran.code, ran.stdout], [0, "42\n"], ran.stderr);
});

test("the installed CLI runs demos with the SDK that it comes with", async () => {
  const { code, stdout, stderr } = await forkd("recipes", "demo", "speculative-agent");
  assert.equal(code, 0, stderr);
  assert.match(stdout, /^ok: speculative-agent in/m);
  const listed = (await forkd("recipes")).stdout;
  assert.match(listed, /^speculative-agent +python-numpy: ready +ok +\d+s ago +here /m);
  assert.match(listed, /^coding-agent +not built +ok +\S+ ago +release /m);
});

test("the installed CLI serves MCP clients and prints what clients of E2B need", async () => {
  const clientInfo = { name: "test", version: "0" };
  const messages = [
    {
      id: 1,
      method: "initialize",
      params: { protocolVersion: "2025-06-18", capabilities: {}, clientInfo },
    },
    { method: "notifications/initialized" },
    { id: 2, method: "tools/list", params: {} },
  ];
  const input = messages.map((each) => `${JSON.stringify({ jsonrpc: "2.0", ...each })}\n`).join("");
  const answers = await mustRun("npx", ["forkd", "mcp"], { cwd: app, env, input });
  const listed = answers
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as { id?: number; result?: { tools?: unknown[] } })
    .find(({ id }) => id === 2);
  assert.ok((listed?.result?.tools?.length ?? 0) > 10, answers);
  const { stdout } = await forkd("e2b", "env");
  assert.match(
    stdout,
    /^export E2B_API_URL='http:[^']+'\nexport E2B_SANDBOX_URL='http:[^']+'\nexport E2B_API_KEY='e2b_[0-9a-f]+'\n$/,
  );
});
