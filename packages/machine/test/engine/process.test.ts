import assert from "node:assert/strict";
import { once } from "node:events";
import { readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { tailOf, VmmProcess } from "../../src/engine/process.ts";
import { isAlive } from "../../src/host/procfs.ts";
import { temporaryDirectory } from "@forkd/test-support";

type Started = { vmm: VmmProcess; dir: string };

async function shell(t: TestContext, script: string, files: string[] = []): Promise<Started> {
  const dir = await temporaryDirectory(t);
  const vmm = await VmmProcess.start({
    program: "/bin/sh",
    args: ["-c", script, "sh", dir],
    logPath: join(dir, "log"),
    consolePath: join(dir, "console"),
    files,
  });
  t.after(() => vmm[Symbol.asyncDispose]());
  return { vmm, dir };
}

test("VmmProcess reports how the process exited", async (t) => {
  const table: { script: string; text: string; exitCode: number | null; signal: string | null }[] = [
    { script: "exit 0", text: "guest powered off or reset", exitCode: 0, signal: null },
    { script: "exit 3", text: "VMM exited with code 3", exitCode: 3, signal: null },
    { script: "kill -SEGV $$", text: "VMM killed by SIGSEGV", exitCode: null, signal: "SIGSEGV" },
    {
      script: "printf '[ 1.0] Kernel panic - not syncing: no init\\n[ 1.1] CPU: 0\\n' > $1/console; exit 0",
      text: "guest: Kernel panic",
      exitCode: 0,
      signal: null,
    },
    {
      script: "printf 'forkd: boot failed: no /dev/vda\\n' > $1/console; exit 0",
      text: "guest: boot failed",
      exitCode: 0,
      signal: null,
    },
  ];
  for (const { script, text, exitCode, signal } of table) {
    const { vmm } = await shell(t, script);
    const reason = await vmm.exited;
    assert.deepEqual(
      { text: reason.text, exitCode: reason.exitCode, signal: reason.signal },
      { text, exitCode, signal },
    );
  }
});

test("VmmProcess leaves lines out of the log that QEMU writes at every start", async (t) => {
  const noise = "warning: TCG doesn't support requested feature: CPUID.80000007H:EDX.invtsc [bit 8]";
  const { vmm } = await shell(t, `echo "qemu: ${noise}" >&2; echo reason >&2; echo "qemu: ${noise}"; exit 1`);
  assert.equal((await vmm.exited).log, "reason");
});

test("VmmProcess reports the last lines of the log and the console", async (t) => {
  const { vmm } = await shell(
    t,
    "seq 1 5000; echo out; echo error >&2; seq 1 5000 > $1/console; echo login: >> $1/console; exit 1",
  );
  const reason = await vmm.exited;
  assert.match(reason.log, /\n5000\nout\nerror$/);
  assert.match(reason.console, /\n5000\nlogin:$/);
  assert.ok(reason.log.length <= 4096 && reason.console.length <= 4096);
});

test("setCause() keeps the first cause", async (t) => {
  const { vmm } = await shell(t, "exec sleep 60");
  vmm.setCause("agent broke the protocol");
  vmm.setCause("second");
  await vmm[Symbol.asyncDispose]();
  const reason = await vmm.exited;
  assert.equal(reason.text, "agent broke the protocol");
  assert.equal(reason.signal, "SIGKILL");
});

test("VmmProcess reports the limit that it was ended for", async (t) => {
  const { vmm } = await shell(t, "exec sleep 60");
  vmm.setCause("its disk is too large", "disk");
  await vmm[Symbol.asyncDispose]();
  const { text, exceeded } = await vmm.exited;
  assert.deepEqual([text, exceeded], ["its disk is too large", "disk"]);
});

test("disposing a VmmProcess ends it, and disposing it again does nothing", async (t) => {
  const { vmm } = await shell(t, "trap '' TERM; while :; do sleep 1; done");
  assert.ok(isAlive(vmm.id));
  await vmm[Symbol.asyncDispose]();
  assert.equal(isAlive(vmm.id), false);
  assert.equal((await vmm.exited).text, "stopped by forkd");
  await vmm[Symbol.asyncDispose]();
});

test("VmmProcess.start() passes a socket as descriptor 3 and files as 4 and higher", async (t) => {
  const dir = await temporaryDirectory(t);
  await writeFile(join(dir, "first"), "device state");
  await writeFile(join(dir, "second"), "another");
  const { vmm } = await shell(t, 'read line <&3; echo "$line $(cat <&4) $(cat <&5)" >&3', [
    join(dir, "first"),
    join(dir, "second"),
  ]);
  vmm.control.setEncoding("utf8");
  vmm.control.write("hello\n");
  assert.deepEqual(await once(vmm.control, "data"), ["hello device state another\n"]);
});

test("VmmProcess.start() passes no variables of the daemon but those that the program needs", async (t) => {
  process.env["FORKD_TEST_SECRET"] = "hunter2";
  t.after(() => delete process.env["FORKD_TEST_SECRET"]);
  const dir = await temporaryDirectory(t);
  const texts = { logPath: join(dir, "log"), consolePath: join(dir, "console") };
  await using vmm = await VmmProcess.start({ program: "/usr/bin/env", args: [], ...texts });
  const names = (await vmm.exited).log.split("\n").map((line) => line.replace(/=.*/, ""));
  const allowed = ["PATH", "LD_LIBRARY_PATH", "QEMU_MODULE_DIR"];
  assert.ok(names.includes("PATH"));
  assert.deepEqual(
    names.filter((name) => !allowed.includes(name)),
    [],
  );
});

test("VmmProcess.start() makes the files that the process creates private", async (t) => {
  const { vmm, dir } = await shell(t, "echo x > $1/console");
  await vmm.exited;
  assert.equal((await stat(join(dir, "console"))).mode & 0o777, 0o600);
});

test("VmmProcess runs in its own session and has pid and start time as id", async (t) => {
  const { vmm } = await shell(t, "exec sleep 60");
  const stat = await readFile(`/proc/${vmm.id.pid}/stat`, "latin1");
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  assert.equal(Number(fields[3]), vmm.id.pid, "leader of its session");
  assert.equal(Number(fields[19]), vmm.id.startTime);
  assert.deepEqual(vmm.argv.slice(0, 2), ["/bin/sh", "-c"]);
});

test("VmmProcess.start() names a missing program", async (t) => {
  const dir = await temporaryDirectory(t);
  const options = { args: [], logPath: join(dir, "log"), consolePath: join(dir, "console") };
  await assert.rejects(VmmProcess.start({ ...options, program: join(dir, "no-qemu") }), {
    name: "ForkdError",
    code: "host_not_ready",
    message: /Cannot start .*no-qemu: .*ENOENT/,
    remedy: { action: "run_doctor" },
  });
  const unstarted = VmmProcess.start({ ...options, program: "/bin/true", files: [join(dir, "no-state")] });
  await assert.rejects(unstarted, { code: "ENOENT" });
});

test("tailOf() returns the end of a file, or nothing if it cannot be read", async (t) => {
  const dir = await temporaryDirectory(t);
  const path = join(dir, "text");
  assert.equal(await tailOf(path), "");
  await writeFile(path, "");
  assert.equal(await tailOf(path), "");
  await writeFile(path, "one\ntwo\nthree\n");
  assert.equal(await tailOf(path), "one\ntwo\nthree");
  assert.equal(await tailOf(path, 6), "three");
  assert.equal(await tailOf(dir), "");
});
