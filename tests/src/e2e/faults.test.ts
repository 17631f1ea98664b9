/** Invalid input, and faults of snapshots, builds and the daemon. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { mkdir, open, readFile, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { runProgram } from "@forkd/base";
import { startDaemon } from "../support/daemon.ts";
import { ownFile } from "../support/data-dir.ts";
import { until, rejectsWith } from "@forkd/test-support";
import { processExists, sh } from "../support/sandboxes.ts";
import { testDir } from "../support/test-dir.ts";

async function flipByte(path: string, offset: number): Promise<void> {
  await using file = await open(path, "r+");
  const byte = Buffer.alloc(1);
  await file.read(byte, 0, 1, offset);
  byte[0] = (byte[0] ?? 0) ^ 0xff;
  await file.write(byte, 0, 1, offset);
}

test("fork() refuses a snapshot with one changed byte, names the file and starts no machine", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"] });
  for (const name of ["memory", "devices", "disk-0.qcow2", "rootfs.ext4"]) {
    const path = await ownFile(daemon.dataDir, "tiny", name);
    await flipByte(path, 4096);
    await rejectsWith(daemon.forkd.fork("tiny"), "snapshot_corrupt", new RegExp(`"${name}"`));
    assert.deepEqual(readdirSync(join(daemon.dataDir, "sandboxes")), []);
    await flipByte(path, 4096);
  }
});

test("fork() refuses a snapshot that changed after its first use", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"] });
  await (await daemon.forkd.create("tiny")).kill();
  await flipByte(await ownFile(daemon.dataDir, "tiny", "devices"), 100);
  await rejectsWith(daemon.forkd.fork("tiny"), "snapshot_corrupt", /"devices"/);
  await rejectsWith(daemon.forkd.snapshots.info("tiny", { verify: true }), "snapshot_corrupt", /"devices"/);
});

test("a snapshot with a missing or invalid manifest is listed as failed", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"] });
  const path = await ownFile(daemon.dataDir, "tiny", "manifest.json");
  await writeFile(path, "{ not json");
  await rejectsWith(daemon.forkd.fork("tiny"), "snapshot_corrupt", /manifest/);
  await rm(path);
  await rejectsWith(daemon.forkd.fork("tiny"), "snapshot_corrupt", /manifest is missing/);
  const [listed] = await daemon.forkd.snapshots.list().all();
  assert.deepEqual([listed?.status, listed?.bootable], ["failed", false]);
});

test("fork() refuses a snapshot of another QEMU, CPU or clock and names the differences", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"] });
  const path = await ownFile(daemon.dataDir, "tiny", "manifest.json");
  // Without its digest, as an older version of forkd wrote it.
  const { manifest_digest: _, ...manifest } = JSON.parse(await readFile(path, "utf8")) as {
    manifest_digest: string;
    engine: { version: string };
    machine: { tsc_khz: number; cpu: string };
  };
  manifest.engine.version = "6.1.0";
  manifest.machine.tsc_khz = 1_000_000;
  manifest.machine.cpu = "other";
  await writeFile(path, JSON.stringify(manifest));
  const error = await rejectsWith(
    daemon.forkd.fork("tiny"),
    "snapshot_incompatible",
    /qemu version: snapshot has 6\.1/,
  );
  assert.equal((error.details["differences"] as string[]).length, 3);
  assert.match((await daemon.forkd.snapshots.list().all())[0]?.warning ?? "", /TSC frequency/);
});

test("a snapshot directory can be renamed", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"] });
  await rename(join(daemon.dataDir, "snapshots/tiny"), join(daemon.dataDir, "snapshots/renamed"));
  const child = await daemon.forkd.create("renamed");
  assert.equal(await sh(child, "echo ok"), "ok");
  await child.kill();
});

test("remove() refuses a snapshot with running sandboxes; with force they keep running", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"] });
  const child = await daemon.forkd.create("tiny");
  await rejectsWith(daemon.forkd.snapshots.remove("tiny"), "snapshot_in_use", /1 sandbox runs/);
  await daemon.forkd.snapshots.remove("tiny", { force: true });
  assert.equal(
    await sh(child, "ls /bin | wc -l; echo more > /root/x; cat /root/x"),
    `${(await child.files.list("/bin")).length}\nmore`,
  );
  await rejectsWith(daemon.forkd.fork("tiny"), "snapshot_not_found");
  assert.deepEqual(readdirSync(join(daemon.dataDir, "snapshots")), []);
});

test("build() refuses missing recipes, invalid recipes and images of the wrong kind", async () => {
  await using daemon = await startDaemon();
  await using dir = await testDir();
  const build = (request: object) => daemon.forkd.snapshots.build({ tag: "t", ...request });
  await rejectsWith(build({ recipe: join(dir.path, "nowhere") }), "recipe_not_found");
  await mkdir(join(dir.path, "r"));
  await writeFile(join(dir.path, "r/recipe.json"), JSON.stringify({ version: 1, memory: 5 }));
  await rejectsWith(build({ recipe: join(dir.path, "r") }), "invalid_recipe", /"memory"/);
  await writeFile(
    join(dir.path, "r/recipe.json"),
    JSON.stringify({ version: 1, base: { packages: ["a;b"] } }),
  );
  await rejectsWith(build({ recipe: join(dir.path, "r") }), "invalid_recipe", /base\.packages/);
  await rejectsWith(build({ rootfs: "/bin/sh" }), "invalid_image", /ELF/);
  await rejectsWith(build({ rootfs: join(dir.path, "none") }), "invalid_image");
  await rejectsWith(
    build({ recipe: join(dir.path, "r"), rootfs: "/x" }),
    "invalid_request",
    /give one of recipe, image and rootfs/,
  );
  await rejectsWith(build({ recipe: "relative" }), "invalid_request", /recipe/);
  await rejectsWith(build({ tag: "bad tag", rootfs: "/x" }), "invalid_request", /tag/);
  assert.deepEqual(readdirSync(join(daemon.dataDir, "snapshots")), []);
});

test("a build whose guest does not boot or whose warm-up fails leaves nothing behind", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"] });
  await using dir = await testDir();
  const root = join(dir.path, "root");
  await mkdir(join(root, "bin"), { recursive: true });
  const request = { tag: "late", rootfs: root, memoryMib: 96, diskMib: 16, bootWaitMs: 1000 };
  const building = daemon.forkd.snapshots.build(request);
  // A fast host boots the guest within a second, and the build succeeds.
  const isLate = await building.then(
    () => false,
    () => true,
  );
  if (isLate) await rejectsWith(building, "agent_unreachable", /did not answer within 1000 ms/);
  else await daemon.forkd.snapshots.remove("late");
  const failing = { tag: "failing", rootfs: root, memoryMib: 96, diskMib: 16 };
  await rejectsWith(
    daemon.forkd.snapshots.build({ ...failing, run: [["/no/such"]] }),
    "invalid_recipe",
    /no\/such/,
  );
  await rejectsWith(
    daemon.forkd.snapshots.build({ ...failing, languages: { python: { warmup: "" } } }),
    "invalid_recipe",
    /python3/,
  );
  assert.deepEqual(readdirSync(join(daemon.dataDir, "snapshots")), ["tiny"]);
  assert.deepEqual(readdirSync(join(daemon.dataDir, "sandboxes")), []);
});

test("a build that is cancelled during boot leaves nothing behind", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"] });
  await using dir = await testDir();
  await mkdir(join(dir.path, "root/bin"), { recursive: true });
  const abort = new AbortController();
  const building = daemon.forkd.snapshots.build(
    { tag: "t", rootfs: join(dir.path, "root"), memoryMib: 96, diskMib: 16 },
    { signal: abort.signal, onProgress: ({ step }) => step === "boot" && abort.abort() },
  );
  await rejectsWith(building, "cancelled");
  await until(
    "sandbox and snapshot are removed",
    () =>
      readdirSync(join(daemon.dataDir, "sandboxes")).length === 0 &&
      readdirSync(join(daemon.dataDir, "snapshots")).length === 1,
  );
});

test("a build on a full disk fails with disk_full and leaves nothing behind", async () => {
  await using dir = await testDir();
  const dataDir = join(dir.path, "small");
  await mkdir(dataDir);
  await runProgram("mount", ["-t", "tmpfs", "-o", "size=24m", "tmpfs", dataDir]);
  try {
    await using daemon = await startDaemon({ dataDir });
    await mkdir(join(dir.path, "root/bin"), { recursive: true });
    const error = await rejectsWith(
      daemon.forkd.snapshots.build({
        tag: "t",
        rootfs: join(dir.path, "root"),
        memoryMib: 512,
        diskMib: 512,
      }),
      "disk_full",
    );
    assert.match(error.message, /space/i);
    assert.deepEqual(readdirSync(join(dataDir, "snapshots")), []);
    assert.deepEqual(readdirSync(join(dataDir, "sandboxes")), []);
  } finally {
    await runProgram("umount", [dataDir]);
  }
});

test("a daemon without QEMU reports it and does not start", async () => {
  await assert.rejects(
    startDaemon({ env: { FORKD_QEMU_PATH: "/no/such/qemu" } }),
    /host_not_ready|Cannot run \/no\/such\/qemu/,
  );
});

test("a second daemon on the same data directory is refused", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"] });
  await assert.rejects(startDaemon({ dataDir: daemon.dataDir }), /data_dir_in_use/);
  assert.equal((await daemon.forkd.version()).api, "v1");
});

test("shutdown() stops the sandboxes and the daemon and removes the socket", async () => {
  await using daemon = await startDaemon({ snapshots: ["tiny"] });
  const child = await daemon.forkd.create("tiny");
  assert.deepEqual(await daemon.forkd.shutdown(), { stopped: 1, kept: 0 });
  if (daemon.process.exitCode === null) await once(daemon.process, "exit");
  assert.equal(processExists(child.info.pid), false);
  assert.equal(existsSync(daemon.socket), false);
});
