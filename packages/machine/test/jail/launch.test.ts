import assert from "node:assert/strict";
import { linkSync, lstatSync, readFileSync, statSync, symlinkSync, writeFileSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { runProgram } from "@forkd/base";
import { isRoot, Jailed, needsRoot, Place, starter, type Start, type Variant } from "./support.ts";

const variants: readonly Variant[] = isRoot ? ["root", "user", "none"] : ["user", "none"];

/** Starts a program that waits. */
async function sleeper(t: TestContext, place: Place, start: Partial<Start>): Promise<Jailed> {
  const program = place.program("test-probe");
  const jailed = new Jailed(t, place, { variant: "user", program, args: ["sleep"], ...start });
  assert.equal(await jailed.line(), "ready");
  return jailed;
}

/** The line that the launcher prints when it cannot start the program. */
async function failure(t: TestContext, place: Place, start: Partial<Start>): Promise<string> {
  const program = place.program("test-probe");
  const jailed = new Jailed(t, place, { variant: "user", program, args: ["sleep"], ...start });
  const { output, code, errors } = await jailed.result();
  assert.deepEqual({ output, code }, { output: "", code: 125 });
  assert.match(errors, /^forkd-launch: [^\n]+\n$/);
  return errors.slice("forkd-launch: ".length, -1);
}

for (const variant of variants) {
  test(`the program keeps the pid and gets only its own environment (${variant})`, async (t) => {
    const place = await Place.make(t, variant);
    const jailed = await sleeper(t, place, { variant, options: ["--env", "A=1", "--env", "B=x y=z"] });
    const { pid } = jailed.id;
    // The user of the machine and root can read this.
    if (isRoot) assert.equal(readFileSync(`/proc/${pid}/environ`, "utf8"), "A=1\0B=x y=z\0");
    const status = readFileSync(`/proc/${pid}/status`, "utf8");
    assert.match(status, /^CapEff:\t0+$/m);
    assert.match(status, /^NoNewPrivs:\t1$/m);
    assert.match(status, /^Seccomp:\t2$/m);
    assert.ok(Number(readFileSync(`/proc/${pid}/oom_score_adj`, "utf8")) >= 500);
    // A kernel without huge pages has no such line.
    const [, huge = "0"] = /^THP_enabled:\s+(\d)$/m.exec(readFileSync(`/proc/${pid}/status`, "utf8")) ?? [];
    assert.equal(huge, "0", "no huge pages");
    assert.match(readFileSync(`/proc/${pid}/cmdline`, "utf8"), /test-probe\0sleep\0$/);
  });

  test(`listening sockets belong to the user that starts machines (${variant})`, async (t) => {
    const place = await Place.make(t, variant);
    const path = join(place.machine, "qmp.sock");
    await sleeper(t, place, { variant, options: ["--listen", `9:${path}`] });
    const { uid, mode } = statSync(path);
    assert.deepEqual([uid, mode & 0o777], [starter(variant), 0o700]);
  });
}

test("one user per machine owns exactly the files it is given", { skip: needsRoot }, async (t) => {
  const place = await Place.make(t, "root");
  const disk = join(place.machine, "disk");
  await sleeper(t, place, { variant: "root", uid: 200_007, options: ["--own", disk] });
  const { uid, gid, mode } = statSync(disk);
  assert.deepEqual([uid, gid, mode & 0o777], [200_007, 200_007, 0o600]);
  assert.equal(statSync(place.machine).uid, 0);
});

test("the launcher gives away only regular files with one name", { skip: needsRoot }, async (t) => {
  const place = await Place.make(t, "root");
  const [secret = ""] = place.secrets;
  const planted = join(place.machine, "planted");
  const own = (path: string): Promise<string> =>
    failure(t, place, { variant: "root", options: ["--own", path] });
  symlinkSync(secret, planted);
  assert.match(await own(planted), /^own .*: Too many levels of symbolic links$/);
  linkSync(secret, `${planted}2`);
  assert.match(await own(`${planted}2`), /^own .*: not a regular file with one name$/);
  assert.match(await own(place.machine), /^own .*: not a regular file with one name$/);
  await runProgram("mkfifo", [`${planted}3`], { keep: 1024 });
  assert.match(await own(`${planted}3`), /^own .*: not a regular file with one name$/);
  assert.equal(lstatSync(secret).uid, 0);
});

test("a start that fails says which step failed", async (t) => {
  const place = await Place.make(t, "user");
  const missing = join(place.dir, "missing");
  assert.equal(
    await failure(t, place, { options: ["--read", missing] }),
    `mount ${missing}: No such file or directory`,
  );
  assert.equal(
    await failure(t, place, { options: ["--listen", `9:${missing}/s`] }),
    `listen ${missing}/s: No such file or directory`,
  );
  assert.equal(await failure(t, place, { options: ["--keep", "77"] }), "keep 77: Bad file descriptor");
  assert.equal(
    await failure(t, place, { options: ["--device", place.memory] }),
    `mount ${place.memory}: not a character device`,
  );
  const { errors, code } = await new Jailed(t, place, {
    variant: "user",
    program: place.program("test-guest"),
    options: ["--", missing],
  }).result();
  assert.deepEqual([code, errors], [125, `forkd-launch: exec ${missing}: No such file or directory\n`]);
});

test("the launcher refuses a command line that it does not understand", async (t) => {
  const place = await Place.make(t, "none");
  for (const [options, problem] of [
    [["--keep", "2"], /descriptors 0 to 2 are always passed on/],
    [["--listen", "9"], /is not FD:PATH/],
    [["--listen", "9:x"], /is not an absolute path/],
    [["--read", "/a/../b"], /contains \.\./],
    [["--net", "tap:9"], /--variant none has no network/],
    [["--net", "wifi"], /is not off, slirp or tap:FD/],
    [["--limit-file", "-1"], /is not a number/],
    [["--uids", "0:10"], /must not include root/],
    [["--env", "A"], /is not NAME=VALUE/],
    [["--listen", "9:/a", "--listen", "9:/b"], /descriptor 9 is given twice/],
    [["--erase", "x"], /unknown option "--erase"/],
  ] as const) {
    assert.match(await failure(t, place, { variant: "none", options }), problem);
  }
});

test(
  "a directory is mounted with the mounts in it, all of them read-only",
  { skip: needsRoot },
  async (t) => {
    const place = await Place.make(t, "root");
    const inner = join(place.dir, "shared", "inner");
    mkdirSync(inner, { recursive: true });
    await runProgram("mount", ["-t", "tmpfs", "-o", "mode=0777", "tmpfs", inner], { keep: 1024 });
    try {
      writeFileSync(join(inner, "file"), "x");
      const jailed = await sleeper(t, place, {
        variant: "root",
        options: ["--read", join(place.dir, "shared")],
      });
      const mounts = readFileSync(`/proc/${jailed.id.pid}/mountinfo`, "utf8").trim().split("\n");
      const paths = mounts.map((line) => line.split(" ")[4]);
      assert.ok(paths.includes(inner));
      for (const line of mounts) assert.match(line.split(" ")[5] ?? "", /^ro,nosuid,nodev/);
      assert.equal(readFileSync(join(`/proc/${jailed.id.pid}/root`, inner, "file"), "utf8"), "x");
      await jailed.kill();
    } finally {
      await runProgram("umount", [inner], { keep: 1024 });
    }
  },
);

for (const variant of variants.filter((each) => each !== "none")) {
  test(`older kernels build the same jail (${variant})`, async (t) => {
    const place = await Place.make(t, variant);
    const options = ["--read", place.memory, "--write", place.machine, "--net", "slirp", "--keep", "4"];
    const stdio = ["pipe", "pipe", "pipe", "pipe", "pipe"] as const;
    const layout = async (before: readonly string[]): Promise<string[]> => {
      const jailed = await sleeper(t, place, { variant, options, before, stdio: [...stdio] });
      const mounts = readFileSync(`/proc/${jailed.id.pid}/mountinfo`, "utf8").trim().split("\n");
      await jailed.kill();
      return mounts.map((line) => line.split(" ").slice(4, 6).join(" ")).sort();
    };
    const without = [place.program("test-without"), "open_tree", "close_range", "nftables", "landlock", "--"];
    assert.deepEqual(await layout(without), await layout([]));
  });
}
