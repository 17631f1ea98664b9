/** The command line against a real daemon and real VMs. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { after, afterEach, before, test } from "node:test";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { cliPath } from "../support/places.ts";

let daemon: TestDaemon;
before(async () => {
  daemon = await startDaemon({ snapshots: ["python", "tiny"] });
});
// A test that fails must not leave sandboxes to the next tests.
afterEach(() => daemon.forkd.call("killAll", {}));
after(() => daemon[Symbol.asyncDispose]());

type Run = { code: number | null; stdout: string; stderr: string };

async function forkd(args: readonly string[], stdin = ""): Promise<Run> {
  const child = spawn(process.execPath, [cliPath, ...args], {
    env: daemon.env,
    stdio: ["pipe", "pipe", "pipe"],
  });
  let stdout = "";
  let stderr = "";
  child.stdout.on("data", (data: Buffer) => (stdout += data.toString()));
  child.stderr.on("data", (data: Buffer) => (stderr += data.toString()));
  child.stdin.end(stdin);
  const code = await new Promise<number | null>((resolve) => child.once("close", resolve));
  return { code, stdout, stderr };
}

async function forkId(tag: string): Promise<string> {
  const { stdout } = await forkd(["fork", "--tag", tag, "--json"]);
  return (JSON.parse(stdout) as { id: string }[])[0]?.id ?? "";
}

test("fork, ls, eval, exec, cp and kill accept the beginning of an id", async () => {
  const id = await forkId("python");
  assert.match(id, /^sb-[0-9a-f]{24}$/);
  const short = id.slice(3, 9);
  assert.match((await forkd(["ls"])).stdout, new RegExp(id));
  const value = await forkd(["eval", short, "print('noise')\n[1, 2.5]"]);
  assert.deepEqual([value.code, value.stdout], [0, "[1, 2.5]\n"]);
  assert.match(value.stderr, /noise/);
  const failed = await forkd(["eval", short, "1/0"]);
  assert.equal(failed.code, 1);
  assert.match(failed.stderr, /ZeroDivisionError/);
  const command = await forkd(["exec", short, "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
  assert.deepEqual([command.code, command.stdout, command.stderr], [7, "out\n", "err\n"]);
  assert.equal((await forkd(["exec", "-i", short, "--", "cat"], "typed\n")).stdout, "typed\n");
  const file = join(daemon.dir, "f.txt");
  writeFileSync(file, "content");
  assert.equal((await forkd(["cp", file, `${short}:/root/g.txt`])).code, 0);
  assert.equal((await forkd(["cp", `${short}:/root/g.txt`, `${file}.back`])).code, 0);
  assert.equal(readFileSync(`${file}.back`, "utf8"), "content");
  mkdirSync(join(daemon.dir, "tree/sub"), { recursive: true });
  writeFileSync(join(daemon.dir, "tree/sub/x"), "deep");
  assert.equal((await forkd(["cp", join(daemon.dir, "tree"), `${short}:/root/`])).code, 0);
  assert.equal((await forkd(["exec", short, "--", "cat", "/root/tree/sub/x"])).stdout, "deep");
  assert.deepEqual((await forkd(["kill", short])).code, 0);
  assert.equal((await forkd(["exec", id, "--", "true"])).code, 3);
});

test("ps, attach, info, interrupt, contexts and exec --label work with a real guest", async () => {
  const forked = await forkd(["fork", "python", "-n", "2", "--label", "job=9", "--json"]);
  const [id = "", other = ""] = (JSON.parse(forked.stdout) as { id: string }[]).map((each) => each.id);
  // A finished command: its output is kept, and attach has its exit code.
  const done = (
    await forkd(["exec", id, "-d", "--", "sh", "-c", "echo one; echo two; exit 3"])
  ).stdout.trim();
  const attached = await forkd(["attach", id, done]);
  assert.deepEqual([attached.code, attached.stdout], [3, "one\ntwo\n"]);
  assert.equal((await forkd(["attach", id, done, "--tail", "1"])).stdout, "two\n");
  // The only running command, with stdin.
  const cat = (await forkd(["exec", id, "-d", "-i", "--", "cat"])).stdout.trim();
  const listed = JSON.parse((await forkd(["ps", id, "--json"])).stdout) as Record<string, unknown>[];
  const {
    pid: _pid,
    age_secs: age,
    ...running
  } = listed.find((each) => each["exec_id"] === Number(cat)) ?? {};
  assert.deepEqual(running, {
    exec_id: Number(cat),
    state: "running",
    command: "cat",
    args: ["cat"],
    stdin_open: true,
    pty: false,
    stdout_bytes: 0,
    stderr_bytes: 0,
  });
  assert.ok(typeof age === "number" && age >= 0);
  assert.match((await forkd(["ps", id])).stdout, /finished +3 .* sh -c 'echo one; echo two; exit 3'/);
  const typed = await forkd(["attach", id], "typed\n");
  assert.deepEqual([typed.code, typed.stdout], [0, "typed\n"]);
  let isOver = false;
  const code = "import time\ntime.sleep(100)";
  const endless = forkd(["eval", id, "--context", "job-7", "--timeout", "120", code]).finally(
    () => (isOver = true),
  );
  // An interrupt has no effect before the code runs, so it is repeated.
  while (!isOver) assert.equal((await forkd(["interrupt", id, "--context", "job-7"])).code, 0);
  assert.match((await endless).stderr, /KeyboardInterrupt/);
  assert.match((await forkd(["contexts", id])).stdout, /^job-7 +python$/m);
  assert.deepEqual((await forkd(["contexts", id, "--drop", "job-7"])).stdout, "job-7\n");
  assert.doesNotMatch((await forkd(["contexts", id])).stdout, /job-7/);
  const info = JSON.parse((await forkd(["info", id, "--json"])).stdout) as {
    stats: { private_bytes: number };
    commands: { exec_id: number }[];
  };
  assert.ok(info.stats.private_bytes > 0);
  assert.ok(info.commands.some(({ exec_id }) => exec_id === Number(done)));
  const group = await forkd([
    "exec",
    "--label",
    "job=9",
    "--",
    "sh",
    "-c",
    "echo $FORKD_INDEX; exit $FORKD_INDEX",
  ]);
  assert.equal(group.code, 1);
  assert.deepEqual(
    group.stdout.trim().split("\n").toSorted(),
    [`${id.slice(0, 11)} | 0`, `${other.slice(0, 11)} | 1`].toSorted(),
  );
  assert.match(group.stderr, /exit code 1\nSucceeded in 1 of 2 sandboxes, failed in 1\./);
});

test("run forks a sandbox, prints the output, kills the sandbox and exits with the command's code", async () => {
  const run = await forkd(["run", "tiny", "-e", "A=1", "--", "sh", "-c", "echo $A; exit 5"]);
  assert.deepEqual([run.code, run.stdout], [5, "1\n"]);
  assert.deepEqual(JSON.parse((await forkd(["ls", "--json"])).stdout), []);
});

test("--json prints the objects of the REST interface", async () => {
  const images = JSON.parse((await forkd(["images", "--json"])).stdout) as { tag: string }[];
  assert.deepEqual(
    images.map(({ tag }) => tag),
    ["python", "tiny"],
  );
  const info = JSON.parse((await forkd(["info", "python", "--json"])).stdout) as {
    manifest: { machine: { type: string } };
  };
  assert.equal(info.manifest.machine.type, "microvm");
  const doctor = await forkd(["doctor", "--no-boot", "--json"]);
  assert.equal(doctor.code, 0);
  const report = JSON.parse(doctor.stdout) as { accelerator: string; checks: { name: string }[] };
  assert.ok(
    ["tcg", "kvm"].includes(report.accelerator) && report.checks.some(({ name }) => name === "accelerator"),
  );
  const error = await forkd(["fork", "--tag", "none", "--json"]);
  assert.equal(error.code, 3);
  assert.equal(
    (JSON.parse(error.stderr.trim().split("\n").at(-1) ?? "{}") as { code: string }).code,
    "snapshot_not_found",
  );
});

test("fork --vary gives each child its own input", async () => {
  const vary = join(daemon.dir, "vary.json");
  writeFileSync(vary, JSON.stringify([{ env: { X: "a" } }, { env: { X: "b" } }]));
  const { stdout } = await forkd([
    "fork",
    "--tag",
    "tiny",
    "-n",
    "2",
    "--vary",
    vary,
    "--label",
    "k=v",
    "--json",
  ]);
  const ids = (JSON.parse(stdout) as { id: string }[]).map(({ id }) => id);
  const outputs = await Promise.all(ids.map((id) => forkd(["exec", id, "--", "sh", "-c", "echo $X"])));
  assert.deepEqual(
    outputs.map((output) => output.stdout),
    ["a\n", "b\n"],
  );
  assert.equal((await forkd(["kill", "--label", "k=v"])).code, 0);
  assert.deepEqual(JSON.parse((await forkd(["ls", "--json"])).stdout), []);
});

test("a tag that does not exist exits 3 with one remedy", async () => {
  const { code, stderr } = await forkd(["fork", "pyhton"]);
  assert.equal(code, 3);
  assert.equal(
    stderr,
    'forkd: Cannot find snapshot "pyhton"\n  Did you mean "python"? Run `forkd images` to list snapshots.\n',
  );
});

test("usage errors exit with code 2 and a message", async () => {
  for (const args of [
    ["fork", "--tag", "tiny", "-n", "0"],
    ["fork", "--tag", "bad tag"],
    ["no-such-verb"],
    ["exec"],
    ["cp", "a", "b"],
  ]) {
    const { code, stderr } = await forkd(args);
    assert.equal(code, 2, `${args.join(" ")}: ${stderr}`);
    assert.match(stderr, /forkd:|error:/);
  }
});

test("snapshot builds from a directory without Python or a shell, and the agent works in it", async () => {
  const root = join(daemon.dir, "bare");
  mkdirSync(join(root, "etc"), { recursive: true });
  const built = await forkd([
    "snapshot",
    "--tag",
    "bare",
    "--rootfs",
    root,
    "--memory-mib",
    "96",
    "--disk-mib",
    "16",
    "--vcpus",
    "2",
  ]);
  assert.equal(built.code, 0, built.stderr);
  const id = await forkId("bare");
  writeFileSync(join(daemon.dir, "note"), "in");
  assert.equal((await forkd(["cp", join(daemon.dir, "note"), `${id}:/note`])).code, 0);
  assert.equal((await forkd(["cp", `${id}:/note`, "-"])).stdout, "in");
  assert.match((await forkd(["exec", id, "--", "sh"])).stderr, /No such file|not found/);
  assert.equal((await forkd(["kill", "--all"])).code, 0);
  assert.equal((await forkd(["rmi", "bare"])).code, 0);
});
