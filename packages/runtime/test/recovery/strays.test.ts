import assert from "node:assert/strict";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdir, readdir, rm, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { isSandbox } from "@forkd/contract";
import { nullLogger } from "@forkd/base";
import { identify, isAlive, type ProcessId } from "@forkd/machine";
import type { RuntimeConfig } from "../../src/config.ts";
import { newSandboxId, sandboxHome, sandboxPaths } from "../../src/sandbox/paths.ts";
import { openRuntime } from "../../src/open-runtime.ts";
import { fork } from "../../src/operations/fork.ts";
import { cleanup } from "../../src/operations/gc.ts";
import { cleanUpStrays } from "../../src/recovery/strays.ts";
import { assertOnly, context, forkableRuntime, forkRequest, openTestRuntime } from "../support.ts";

/** A process with this argument in its command line, like the console of a VMM. */
async function processWith(
  t: TestContext,
  argument: string,
): Promise<{ child: ChildProcess; process: ProcessId }> {
  const child = spawn("sh", ["-c", "read line", "sh", "-chardev", argument], {
    stdio: ["pipe", "ignore", "ignore"],
  });
  await once(child, "spawn");
  t.after(async () => {
    if (child.exitCode !== null || child.signalCode !== null) return;
    child.kill("SIGKILL");
    await once(child, "exit");
  });
  const process = identify(child.pid ?? 0);
  assert.ok(process);
  return { child, process };
}

function consoleFile(dataDir: string, id: string): string {
  return `file,id=console,path=${join(dataDir, "sandboxes", id)}/0/console.log,append=on`;
}

/** Makes what a daemon that crashed leaves of a sandbox. */
async function leaveBehind(config: RuntimeConfig): Promise<string> {
  const id = newSandboxId();
  const paths = sandboxPaths(config, id, 0);
  await mkdir(paths.dir, { recursive: true });
  await mkdir(paths.socketDir, { recursive: true });
  await writeFile(paths.overlay, "disk");
  return id;
}

test("cleanup() removes strays, and only reports them in a dry run", async (t) => {
  const fixture = await openTestRuntime(t);
  const { runtime, config } = fixture;
  const id = await leaveBehind(config);
  const { child, process } = await processWith(t, consoleFile(config.dataDir, id));
  const strays = [
    { kind: "process", name: id, detail: String(process.pid) },
    { kind: "directory", name: id, detail: sandboxHome(config, id).dir },
  ];
  assert.deepEqual(await cleanup(runtime, { dry_run: true }), { removed: strays, dry_run: true });
  assert.ok(isAlive(process));
  assert.deepEqual(await readdir(config.runtimeDir), [id]);
  const exited = once(child, "exit");
  assert.deepEqual(await cleanup(runtime, { dry_run: false }), { removed: strays, dry_run: false });
  assert.deepEqual(await exited, [null, "SIGKILL"]);
  await assertOnly(fixture, []);
});

test("cleanup() never kills a process that does not name the console of the stray as its own", async (t) => {
  const fixture = await openTestRuntime(t);
  const { runtime, config } = fixture;
  const id = await leaveBehind(config);
  const strangers = await Promise.all(
    [
      consoleFile("/var/lib/another-daemon", id),
      consoleFile(config.dataDir, newSandboxId()),
      consoleFile(`${config.dataDir}/deeper`, id),
      join(config.dataDir, "sandboxes", id, "0", "console.log"),
      `file,path=${join(config.dataDir, "sandboxes", id)}/0/console.log.gz,`,
    ].map((argument) => processWith(t, argument)),
  );
  const { removed } = await cleanup(runtime, { dry_run: false });
  assert.deepEqual(
    removed.map(({ kind, name }) => ({ kind, name })),
    [{ kind: "directory", name: id }],
  );
  for (const { process } of strangers) assert.ok(isAlive(process));
  await assertOnly(fixture, []);
});

test("cleanup() leaves the sandboxes of this runtime and the files of strangers alone", async (t) => {
  const fixture = await forkableRuntime(t);
  const { runtime, config } = fixture;
  const [entry] = await fork(runtime, forkRequest(), context);
  assert.ok(entry && isSandbox(entry));
  const { process } = await processWith(t, consoleFile(config.dataDir, entry.id));
  await mkdir(join(config.dataDir, "sandboxes", "not-a-sandbox"));
  assert.deepEqual((await cleanup(runtime, { dry_run: false })).removed, []);
  assert.deepEqual((await readdir(join(config.dataDir, "sandboxes"))).sort(), ["not-a-sandbox", entry.id]);
  assert.equal(runtime.registry.get(entry.id).isDead, false);
  assert.ok(isAlive(process));
});

test("cleanUpStrays() removes many strays, and accepts a data directory that does not exist", async (t) => {
  const fixture = await openTestRuntime(t);
  const { config } = fixture;
  const ids = [await leaveBehind(config), await leaveBehind(config)];
  const processes = await Promise.all(ids.map((id) => processWith(t, consoleFile(config.dataDir, id))));
  const exits = Promise.all(processes.map(({ child }) => once(child, "exit")));
  await cleanUpStrays(config, nullLogger());
  await exits;
  await assertOnly(fixture, []);
  await cleanUpStrays({ ...config, dataDir: "/nonexistent" }, nullLogger());
});

test("openRuntime() refuses a data directory that was moved while its machines run, and changes nothing", async (t) => {
  const { config, runtime } = await openTestRuntime(t);
  const id = await leaveBehind(config);
  const was = `${config.dataDir}-was,here`;
  const argument = `file,id=console,path=${was.replaceAll(",", ",,")}/sandboxes/${id}/0/console.log,append=on`;
  const { process } = await processWith(t, argument);
  const open = () => openRuntime({ ...config }, runtime.log);
  await assert.rejects(open(), {
    code: "host_not_ready",
    message: new RegExp(`belong to ${was} \\(${id}\\)\\. Nothing was changed$`),
    remedy: { action: "move_data_back", from: config.dataDir, to: was },
    details: { data_dir: config.dataDir, was, sandboxes: [id] },
  });
  await symlink(config.dataDir, was);
  t.after(() => rm(was, { force: true, recursive: true }));
  await assert.rejects(open(), {
    remedy: { action: "change_setting", setting: "data_dir", to: was },
  });
  await rm(was);
  await mkdir(was);
  await assert.rejects(open(), {
    remedy: {
      action: "advice",
      text: `If ${config.dataDir} is a copy of ${was}, remove ${config.dataDir}/sandboxes.`,
    },
  });
  assert.ok(isAlive(process));
  const { dir, socketDir } = sandboxHome(config, id);
  assert.deepEqual([await readdir(dir), await readdir(socketDir)], [["0"], ["0"]]);
});
