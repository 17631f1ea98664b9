import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmod, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { makeWheel, rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { sha256File } from "../../src/files/digest.ts";
import { debianSuite, relationsOf } from "../../src/layers/apt.ts";
import { packFiles } from "../../src/layers/pack.ts";
import { downloadWheels, targetArguments, type PythonFacts } from "../../src/layers/pip.ts";
import { findProgram } from "../../src/packages.ts";

const python: PythonFacts = {
  python: [3, 11],
  implementation: "cpython",
  libc: "glibc",
  libc_version: "2.36",
  machine: "x86_64",
};

test("targetArguments() names every platform whose wheels the guest can use, newest first", () => {
  const args = targetArguments(python);
  const platforms = args.filter((_, index) => args[index - 1] === "--platform");
  assert.deepEqual(platforms.slice(0, 2), ["manylinux_2_36_x86_64", "manylinux_2_35_x86_64"]);
  for (const name of ["manylinux_2_17_x86_64", "manylinux2014_x86_64", "manylinux1_x86_64", "linux_x86_64"])
    assert.ok(platforms.includes(name), name);
  assert.ok(!platforms.some((name) => name.startsWith("manylinux_2_37")));
  assert.ok(args.includes("--only-binary=:all:"), "nothing of a package is run on the host");
  assert.deepEqual(
    args.filter((_, index) => args[index - 1] === "--abi"),
    ["cp311", "abi3", "none"],
  );
  const musl = targetArguments({ ...python, libc: "musl", libc_version: "" });
  assert.ok(musl.includes("musllinux_1_2_x86_64") && !musl.some((each) => each.startsWith("manylinux")));
});

test("downloadWheels() takes wheels and what they need from the index of the host", async (t) => {
  if ((await findProgram("pip3", process.env["PATH"])) === undefined) return t.skip("pip3 is not installed");
  const dir = await temporaryDirectory(t);
  const index = join(dir, "index");
  await mkdir(index);
  makeWheel(index, { name: "forkd_one", version: "1.0", requires: ["forkd_two>=2"] });
  makeWheel(index, { name: "forkd_two", version: "1.0" });
  makeWheel(index, { name: "forkd_two", version: "2.1" });
  const own = makeWheel(dir, { name: "forkd_own", version: "3.0" });
  const local = [{ source: own, name: "forkd_own-3.0-py3-none-any.whl", sha256: "" }];
  const before = { ...process.env };
  t.after(() => {
    process.env = before;
  });
  Object.assign(process.env, { PIP_NO_INDEX: "1", PIP_FIND_LINKS: index });
  const images = join(dir, "images");
  await downloadWheels(images, { packages: ["forkd-one==1.0"], local, python }, join(dir, "out"), {});
  assert.deepEqual((await readdir(join(dir, "out"))).sort(), [
    "forkd_one-1.0-py3-none-any.whl",
    "forkd_own-3.0-py3-none-any.whl",
    "forkd_two-2.1-py3-none-any.whl",
  ]);
  const missing = downloadWheels(
    images,
    { packages: ["forkd-none"], local: [], python },
    join(dir, "none"),
    {},
  );
  await rejectsWith(missing, "invalid_recipe", /no wheel of "forkd-none"/);
});

test("packFiles() keeps modes and links, and has no directories that the recipe does not have", async (t) => {
  const dir = await temporaryDirectory(t);
  await writeFile(join(dir, "run.sh"), "echo");
  await chmod(join(dir, "run.sh"), 0o700);
  const sha256 = "8e25a5c7b1d39aa8aefb5dd7f2b0ff53d2bdbde9f4fe4f1b2ea3a7ee63ec0dd1";
  const files = [
    { source: dir, to: "app", mode: 0o755, type: "directory" as const },
    { source: join(dir, "run.sh"), to: "app/run.sh", mode: 0o755, type: "file" as const, sha256 },
    { source: dir, to: "app/link", mode: 0o777, type: "link" as const, target: "run.sh" },
  ];
  const work = join(dir, "work");
  await mkdir(work);
  const changed = packFiles(files, { to: "/opt", work });
  await rejectsWith(changed, "invalid_recipe", /it changed during the build/);
  const right = files.map((file) => (file.type === "file" ? { ...file, sha256: "" } : file));
  for (const file of right) if (file.type === "file") file.sha256 = await sha256File(file.source);
  const second = join(dir, "second");
  await mkdir(second);
  const archive = await packFiles(right, { to: "/opt", work: second });
  const listing = execFileSync("tar", ["-tvf", archive], { encoding: "utf8" }).trim().split("\n");
  assert.deepEqual(
    listing.map((line) => [line.slice(0, 10), line.split(" ")[1], line.replace(/^.*\d\d:\d\d /, "")]),
    [
      ["drwxr-xr-x", "0/0", "opt/app/"],
      ["-rwxr-xr-x", "0/0", "opt/app/run.sh"],
      ["lrwxrwxrwx", "0/0", "opt/app/link -> run.sh"],
    ],
  );
  assert.ok((await readFile(archive)).length > 0);
});

test("debianSuite() reads the suite of Debian and refuses other systems", () => {
  assert.equal(debianSuite('ID=debian\nVERSION_CODENAME=bookworm\nID_LIKE="x"\n'), "bookworm");
  assert.throws(() => debianSuite("ID=alpine\nVERSION_ID=3.20\n"), {
    code: "invalid_recipe",
    message: /"alpine"/,
  });
  assert.throws(() => debianSuite("ID=debian\nVERSION_CODENAME=../x\n"), { code: "invalid_recipe" });
});

test("relationsOf() keeps what apt needs of the guest's package list and drops the rest", () => {
  const stanza = [
    "Package: a",
    "Status: install ok installed",
    "Description: x",
    " more",
    "Version: 1:2-3",
    "",
  ];
  const hostile = [
    "Package: b\0",
    "Depends: \x1b[2J",
    "Filename: ../../etc/passwd",
    "Conffiles:",
    " /etc/x y",
    "",
  ];
  const text = [...stanza, ...hostile].join("\n");
  assert.equal(
    relationsOf(Buffer.from(text)),
    "Package: a\nStatus: install ok installed\nVersion: 1:2-3\n\n",
  );
});
