/** A VMM that stops answering, played by a script in place of QEMU. */
import assert from "node:assert/strict";
import { chmod, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { rejectsWith, temporaryDirectory } from "@forkd/test-support";
import { vmmDeadlines } from "../../../src/deadlines.ts";
import { QemuEngine } from "../../../src/engine/qemu/driver.ts";
import { shapeOf } from "../../../src/engine/qemu/args.ts";
import { isAlive } from "../../../src/host/procfs.ts";
import type { Machine } from "../../../src/engine/engine.ts";

/** Greets, listens for the agent's connection, and answers the first commands. */
const program = (answers: number): string => `#!${process.execPath}
const { createServer, Socket } = require("node:net");
const args = process.argv.slice(2);
if (args[0] === "--version") { console.log("QEMU emulator version 9.9.9"); process.exit(0); }
const fd = Number(args.find((each) => each.includes("id=agent,")).split("fd=")[1].split(",")[0]);
createServer(() => undefined).listen({ fd }, () => {
  const control = new Socket({ fd: 3 });
  let left = ${answers};
  let text = "";
  control.write(JSON.stringify({ QMP: {} }) + "\\n");
  control.on("data", (chunk) => {
    const lines = (text + chunk).split("\\n");
    text = lines.pop();
    for (const line of lines) if (left-- > 0) control.write(JSON.stringify({ return: {}, id: JSON.parse(line).id }) + "\\n");
  });
});
`;

async function boot(t: TestContext, answers: number): Promise<Machine> {
  const dir = await temporaryDirectory(t);
  const qemu = join(dir, "qemu");
  await writeFile(qemu, program(answers));
  await chmod(qemu, 0o755);
  const engine = await QemuEngine.open(qemu, { ...vmmDeadlines, commandMs: 2000 });
  const machine = await engine.boot({
    shape: shapeOf({ vcpus: 1, memoryMib: 16, accelerator: "tcg" }),
    place: { socketDir: dir, consolePath: join(dir, "console"), logPath: join(dir, "log") },
    memoryFile: join(dir, "memory"),
    disk: { overlay: join(dir, "overlay"), backing: [] },
    kernel: { path: "none", initramfs: "none", commandLine: "" },
  });
  t.after(() => machine[Symbol.asyncDispose]());
  return machine;
}

test("a VMM that does not answer a command is killed, and its exit says why", async (t) => {
  const machine = await boot(t, 1);
  await rejectsWith(machine.pause(), "engine_failed", /the VMM did not answer "stop" within 2 s/);
  const { text, signal } = await machine.exited;
  assert.equal(text, 'the VMM did not answer "stop" within 2 s');
  assert.equal(signal, "SIGKILL");
  assert.equal(isAlive(machine.process), false);
});

test("a VMM that falls silent during a pause fails every later step", async (t) => {
  const machine = await boot(t, 2);
  const paused = await machine.pause();
  await rejectsWith(
    paused.saveDevices(join(await temporaryDirectory(t), "devices")),
    "engine_failed",
    /did not answer "xen-save-devices-state"/,
  );
  await rejectsWith(paused.freezeDisk(), "engine_failed");
  await rejectsWith(Promise.resolve(paused[Symbol.asyncDispose]()), "engine_failed");
});

test("a VMM that was stopped by a signal is ended like one that hangs", async (t) => {
  const machine = await boot(t, 100);
  process.kill(machine.process.pid, "SIGSTOP");
  await rejectsWith(machine.pause(), "engine_failed", /did not answer "stop"/);
  assert.match((await machine.exited).text, /did not answer "stop"/);
});
