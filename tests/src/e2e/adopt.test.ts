/** A restarted daemon adopts the machines of the daemon before it. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import type { Forkd, Sandbox } from "@forkd/sdk";
import { endDaemon, withDaemons } from "../support/daemon.ts";
import { until, rejectsWith } from "@forkd/test-support";
import { forkAll, processExists, sh } from "../support/sandboxes.ts";

async function again(forkd: Forkd, { id }: { id: string }): Promise<Sandbox> {
  return forkd.sandboxes.get(id);
}

function byId<T extends { id: string }>(entries: T[]): T[] {
  return entries.toSorted((a, b) => (a.id < b.id ? -1 : 1));
}

/** Sends QMP commands to a VMM, as an earlier daemon could have done just before it was killed. */
async function sendToVmm(runtimeDir: string, { id }: Sandbox, ...commands: object[]): Promise<void> {
  const socket = connect(join(runtimeDir, id, "0", "qmp.sock"));
  await once(socket, "connect");
  let text = "";
  socket.setEncoding("utf8").on("data", (chunk: string) => (text += chunk));
  for (const command of [{ execute: "qmp_capabilities" }, ...commands])
    socket.write(`${JSON.stringify(command)}\n`);
  await until("the VMM has answered", () => text.split('"return"').length > commands.length + 1);
  socket.destroy();
}

test("a daemon adopts the sandboxes of a killed daemon, with memory, disk, kernels and commands", async () => {
  await withDaemons(["python", "tiny"], async (start, dataDir) => {
    const first = await start({ FORKD_POOL_MEMORY_PERCENT: "10" });
    const [busy, calm] = (await forkAll(first.forkd, "python", 2, { labels: { job: "x" } })) as [
      Sandbox,
      Sandbox,
    ];
    const [stopped, doomed] = (await forkAll(first.forkd, "tiny", 2)) as [Sandbox, Sandbox];
    await calm.eval("x = [1, 2]");
    await sh(calm, "echo kept > /root/note");
    await calm.branch({ tag: "early" });
    await sh(calm, "echo more >> /root/note");
    const script = "for i in $(seq 1 40); do echo line $i; sleep 0.1; done; exit 7";
    const background = await calm.commands.run(script, { background: true });
    const followed = await calm.commands.start(["sh", "-c", script]);
    const result = followed.wait();
    const evaluated = busy.eval("import time\ntime.sleep(60)").catch((error: unknown) => error);
    // A VMM of the pool belongs to no sandbox.
    await until("a VMM waits in the pool", async () =>
      Object.values((await first.forkd.status()).pool).some((count) => count > 0),
    );
    const before = await first.forkd.sandboxes.list().all();
    await endDaemon(first, "SIGKILL");
    assert.match(String(await evaluated), /daemon/i);
    for (const { info } of before) assert.ok(processExists(info.pid));

    // A killed daemon may leave a stopped guest with an unused overlay; a VMM may exit while no daemon runs.
    const spare = join(dataDir, "sandboxes", stopped.id, "0", "disk-1.qcow2");
    await writeFile(spare, "");
    await sendToVmm(join(dataDir, "..", "run"), stopped, { execute: "stop" });
    process.kill(doomed.info.pid ?? 0, "SIGKILL");
    await until("the VMM has exited", () => !processExists(doomed.info.pid));

    const second = await start();
    const { forkd } = second;
    const after = await forkd.sandboxes.list().all();
    assert.deepEqual(
      byId(after.map(({ info }) => info).filter(({ state }) => state === "running")),
      byId(before.map(({ info }) => info).filter(({ id }) => id !== doomed.id)).map((info) => ({
        ...info,
        readyMs: 0,
        branchCount: 0,
      })),
    );
    const dead = (await again(forkd, doomed)).info;
    assert.deepEqual([dead.state, /ended while no daemon ran/.test(dead.reason ?? "")], ["dead", true]);
    assert.equal(await sh(await again(forkd, stopped), "echo runs"), "runs");
    assert.equal(existsSync(spare), false);
    assert.equal((await (await again(forkd, busy)).eval("1 + 1")).resultJson, 2);
    const there = await again(forkd, calm);
    assert.deepEqual((await there.eval("x + [3]")).resultJson, [1, 2, 3]);
    assert.equal(await sh(there, "cat /root/note"), "kept\nmore");

    // The open stream reconnects automatically; a background command can be read from any offset.
    const { stdout, exitCode: code } = await result;
    const lines = Array.from({ length: 40 }, (_, index) => `line ${index + 1}\n`).join("");
    assert.deepEqual([stdout, code], [lines, 7]);
    const tail = await (await there.commands.attach(background, { stdoutOffset: 7 })).wait();
    assert.deepEqual([tail.stdout, tail.exitCode], [lines.slice(7), 7]);

    // Every operation works on adopted sandboxes.
    await there.branch({ tag: "late" });
    const child = await forkd.create("late");
    assert.deepEqual((await child.eval("x")).resultJson, [1, 2]);
    assert.equal(await sh(child, "cat /root/note"), "kept\nmore");
    await there.pause();
    await there.resume();
    assert.deepEqual((await there.eval("x")).resultJson, [1, 2]);
    await there.rewind("early");
    assert.equal(await sh(there, "cat /root/note"), "kept");
    await there.kill();
    await rejectsWith(again(forkd, there), "sandbox_not_found");
    await until("its VMM is gone", () => !processExists(there.info.pid));

    // The daemon also notices the exit of a VMM that is not its child process.
    process.kill((await again(forkd, busy)).info.pid ?? 0, "SIGKILL");
    await until("the sandbox is reported dead", async () => (await again(forkd, busy)).info.state === "dead");
    await forkd.call("killAll", {});
    assert.deepEqual(readdirSync(join(dataDir, "sandboxes")), []);
  });
});

test("a daemon keeps or stops its sandboxes at shutdown, as the caller asks", async () => {
  await withDaemons(["tiny"], async (start, dataDir) => {
    const first = await start({ FORKD_ON_STOP: "keep", FORKD_DRAIN_SECS: "0" });
    const kept = await first.forkd.create("tiny");
    const run = await kept.commands.start(["sh", "-c", "echo on; sleep 3; echo off"]);
    const result = run.wait();
    await endDaemon(first, "SIGTERM");
    assert.ok(processExists(kept.info.pid));
    const second = await start();
    assert.equal((await result).stdout, "on\noff\n");
    assert.deepEqual(await second.forkd.shutdown({ sandboxes: "keep" }), { stopped: 0, kept: 1 });
    if (second.process.exitCode === null) await once(second.process, "exit");
    const third = await start();
    assert.equal(await sh(await again(third.forkd, kept), "echo there"), "there");
    assert.deepEqual(await third.forkd.shutdown({ sandboxes: "stop" }), { stopped: 1, kept: 0 });
    if (third.process.exitCode === null) await once(third.process, "exit");
    await until("its VMM is gone", () => !processExists(kept.info.pid));
    assert.deepEqual(readdirSync(join(dataDir, "sandboxes")), []);
  });
});
