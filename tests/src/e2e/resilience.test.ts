/** Full disks, slow and disconnecting clients: failed work is undone, everything else keeps running. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { once } from "node:events";
import { readdirSync, readFileSync } from "node:fs";
import { open, rm } from "node:fs/promises";
import { request } from "node:http";
import { connect as connectSocket, createServer, type AddressInfo } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { isErrno } from "@forkd/base";
import { connect } from "@forkd/sdk/node";
import type { Forkd, ForkdError, Sandbox } from "@forkd/sdk";
import { assertNoDrafts } from "../support/branches.ts";
import { endDaemon, startDaemon, type TestDaemon } from "../support/daemon.ts";
import { rejectsWith, until } from "@forkd/test-support";
import { forkAll, residentBytes, sh } from "../support/sandboxes.ts";
import { fillUp, ownDisk } from "../support/small-disk.ts";
import { testDir } from "../support/test-dir.ts";

const kib = 1024;
const mib = 1024 * kib;

/** Fills the disk to the last block, which statfs does not report. */
async function fillWhole(dataDir: string): Promise<string> {
  const path = await fillUp(dataDir, 0);
  await using file = await open(path, "a");
  for (const bytes of [64 * kib, 4 * kib]) {
    let isFull = false;
    while (!isFull) {
      await file.appendFile(Buffer.alloc(bytes)).catch((error: unknown) => {
        if (!isErrno(error, "ENOSPC")) throw error;
        isFull = true;
      });
    }
  }
  return path;
}

function namesIn(dataDir: string): string[] {
  return readdirSync(join(dataDir, "sandboxes")).sort();
}

test("forks and workspaces on a full disk fail without leftovers, and work again when there is space", async () => {
  await using dir = await testDir();
  await using disk = await ownDisk(dir.path, { tmpfs: "120m" }, ["tiny"]);
  await using daemon = await startDaemon({ dataDir: disk.dataDir, env: { FORKD_DISK_RESERVE_MIB: "0" } });
  const { forkd } = daemon;
  await using kept = await forkd.create("tiny");
  await sh(kept, "echo kept > /root/kept; sync");
  for (const leave of [0, 64 * kib, 1024 * kib, 1100 * kib]) {
    const filler = await fillUp(disk.dataDir, leave);
    for (const work of [
      () => forkd.create("tiny"),
      () => forkd.workspaces.create("w", "tiny"),
      () => forkd.call("fork", { snapshot_tag: "tiny", n: 3 }),
    ]) {
      const failures = await work().then(
        (made) => (Array.isArray(made) ? made.filter((entry) => "code" in entry) : []),
        (reason: unknown) => [reason as ForkdError],
      );
      // With a little space left, the work may succeed.
      if (leave === 0) assert.ok(failures.length > 0);
      for (const { code, error } of failures as { code: string; error?: string }[])
        assert.ok(
          ["disk_full", "capacity_exhausted"].includes(code),
          `${leave} bytes left: ${code}: ${error}`,
        );
    }
    await rm(filler);
    for (const { id } of await forkd.sandboxes.list().all())
      if (id !== kept.id) await forkd.sandboxes.kill(id);
    assert.deepEqual(namesIn(disk.dataDir), [kept.id], `${leave} bytes left`);
    assert.deepEqual(await forkd.workspaces.list().all(), []);
    assert.equal(await sh(kept, "cat /root/kept"), "kept");
  }
  const workspace = await forkd.workspaces.create("w", "tiny");
  assert.equal(workspace.status, "running");
  await forkd.workspaces.remove("w");
});

test("a daemon without space for its own files reports it, and starts when there is space", async () => {
  await using dir = await testDir();
  await using disk = await ownDisk(dir.path, { tmpfs: "100m" }, ["tiny"]);
  const filler = await fillUp(disk.dataDir, 0);
  await assert.rejects(startDaemon({ dataDir: disk.dataDir }), /disk_full|no space left/i);
  await rm(filler);
  await using daemon = await startDaemon({ dataDir: disk.dataDir });
  assert.equal((await daemon.forkd.status()).snapshots, 1);
  assert.match(readFileSync(join(disk.dataDir, "token"), "utf8"), /^[0-9a-f]{64}\n$/);
});

test("a daemon that starts on a full disk adopts its sandboxes and can free space", async () => {
  await using dir = await testDir();
  // Not tmpfs: there a guest needs space even to read blocks that it never wrote.
  await using disk = await ownDisk(dir.path, { xfs: "320m" }, ["tiny"]);
  const { dataDir } = disk;
  const env = { FORKD_RUNTIME_DIR: join(dir.path, "run"), FORKD_DISK_RESERVE_MIB: "0" };
  const first = await startDaemon({ dataDir, env });
  const asked = { snapshot_tag: "tiny", n: 1 };
  const again = { idempotencyKey: "one" };
  const made = await first.forkd.call("fork", asked, again);
  const { id } = made[0] as { id: string };
  const paused = await first.forkd.create("tiny");
  await paused.pause();
  await endDaemon(first, "SIGKILL");
  const filler = await fillWhole(dataDir);
  try {
    const other = createServer().listen(0, "127.0.0.1");
    await once(other, "listening");
    const listen = `127.0.0.1:${(other.address() as AddressInfo).port}`;
    // A daemon that fails to start stops no sandbox, even with FORKD_ON_STOP=stop.
    const failing = startDaemon({ dataDir, env: { ...env, FORKD_LISTEN: listen, FORKD_ON_STOP: "stop" } });
    try {
      await assert.rejects(failing, /EADDRINUSE/);
    } finally {
      other.close();
    }
    await using second = await startDaemon({ dataDir, env });
    const { forkd } = second;
    assert.equal(await sh(await forkd.sandboxes.get(id), "echo there"), "there");
    assert.deepEqual(await forkd.call("fork", asked, again), made, "the repeated call gets the first answer");
    const found = await connect({ dataDir });
    assert.equal((await found.version()).pid, second.process.pid);
    assert.match(second.log(), /"event":"daemon.record","outcome":"failed"/);
    await forkd.sandboxes.kill(paused.id);
    await rm(filler);
    await until("the daemon has written its record", () => {
      const { pid } = JSON.parse(readFileSync(join(dataDir, "daemon.json"), "utf8")) as { pid: number };
      return pid === second.process.pid;
    });
    await (await forkd.create("tiny")).kill();
    await forkd.sandboxes.kill(id);
    assert.deepEqual(namesIn(dataDir), []);
  } finally {
    await rm(filler, { force: true });
    // Stops sandboxes that a failed assertion left running.
    await (await startDaemon({ dataDir, env }))[Symbol.asyncDispose]();
    await first[Symbol.asyncDispose]();
  }
});

/** Sends a request. The returned function disconnects and returns whether the answer had started. */
function begin(daemon: TestDaemon, method: string, path: string, body: string): () => boolean {
  const outgoing = request({
    socketPath: daemon.socket,
    method,
    path,
    headers: { "content-type": "application/json" },
  });
  let isAnswered = false;
  outgoing.on("error", () => undefined);
  outgoing.on("response", (incoming) => {
    isAnswered = true;
    incoming.pause();
  });
  outgoing.end(body);
  return () => {
    outgoing.destroy();
    return isAnswered;
  };
}

/** Counts processes with a program; threads of the kernel come and go. */
async function processesIn(sandbox: Sandbox): Promise<number> {
  return Number(await sh(sandbox, "for p in /proc/[0-9]*; do test -e $p/exe && echo $p; done | wc -l"));
}

/** Calls that made something, whether or not their clients were still there for the answer. */
function succeeded({ dataDir }: TestDaemon): number {
  const lines = readFileSync(join(dataDir, "audit.jsonl"), "utf8").split("\n").slice(0, -1);
  return lines
    .map((line) => JSON.parse(line) as { route?: string; status?: number })
    .filter(({ route = "", status = 0 }) => /^(fork|branch|createWorkspace)$/.test(route) && status < 300)
    .length;
}

async function removeAllBut(source: Sandbox, forkd: Forkd): Promise<void> {
  for (const { name } of await forkd.workspaces.list().all())
    await forkd.workspaces.remove(name).catch(() => undefined);
  for (const { id } of await forkd.sandboxes.list().all())
    if (id !== source.id) await forkd.sandboxes.kill(id).catch(() => undefined);
}

test("slow, stuck and disconnected clients do not affect the daemon", async (t) => {
  await using daemon = await startDaemon({ snapshots: ["tiny"] });
  const { forkd } = daemon;
  await using source = await forkd.create("tiny");

  await t.test("a hundred clients that send half a request, or nothing, do not block others", async () => {
    const halves = ["", "GET /v1/sta", "POST /v1/gc HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{"];
    const stuck = await Promise.all(
      Array.from({ length: 100 }, async (_, index) => {
        const socket = connectSocket(daemon.socket);
        await once(socket, "connect");
        socket.on("error", () => undefined);
        socket.write(halves[index % halves.length] ?? "");
        return socket;
      }),
    );
    assert.equal(await sh(source, "echo served"), "served");
    for (const socket of stuck) socket.destroy();
    await until(
      "the connections are closed",
      () => readdirSync(`/proc/${daemon.process.pid}/fd`).length < 60,
    );
  });

  await t.test("100 MB of output for a client that does not read use little memory", async () => {
    const before = residentBytes(daemon.process.pid);
    const args = ["sh", "-c", "head -c 100000000 /dev/zero | tr '\\0' x; echo done > /root/done"];
    const leave = begin(
      daemon,
      "POST",
      `/v1/sandboxes/${source.id}/exec`,
      JSON.stringify({ args, stream: true }),
    );
    for (let count = 0; count < 20; count++) assert.equal(await sh(source, "echo served"), "served");
    const grown = residentBytes(daemon.process.pid) - before;
    assert.ok(grown < 60 * mib, `the daemon's memory grew by ${Math.round(grown / mib)} MiB`);
    assert.equal(await sh(source, "test -e /root/done || echo waits"), "waits");
    leave();
    await until("the command is gone", async () =>
      (await source.commands.list()).every(({ state }) => state === "finished"),
    );
  });

  await t.test("clients that disconnect during a fork or a branch leave nothing behind", async () => {
    for (const waitMs of [0, 20, 80, 200]) {
      const before = succeeded(daemon);
      const leave = [
        begin(daemon, "POST", "/v1/sandboxes", JSON.stringify({ snapshot_tag: "tiny", n: 2 })),
        begin(
          daemon,
          "POST",
          `/v1/sandboxes/${source.id}/branch`,
          JSON.stringify({ tag: `gone-${waitMs}`, n: 1 }),
        ),
        begin(daemon, "POST", "/v1/workspaces", JSON.stringify({ name: "gone", snapshot_tag: "tiny" })),
      ];
      await new Promise((resolve) => setTimeout(resolve, waitMs));
      // Handle answers that have already arrived.
      await new Promise((resolve) => setImmediate(resolve));
      const wasAnswered = leave.map((each) => each()).includes(true);
      await until("all work is done or undone", async () => {
        // A fast host had finished before the client disconnected. Then remove what it made.
        if (wasAnswered || succeeded(daemon) > before) await removeAllBut(source, forkd);
        return namesIn(daemon.dataDir).join() === source.id;
      });
    }
    await until("the calls are over", async () => (await forkd.sandboxes.list().all()).length === 1);
    await assertNoDrafts(forkd, daemon.dataDir);
    assert.equal(await sh(source, "echo served"), "served");
  });

  await t.test(
    "an interrupted upload changes nothing, and an interrupted download leaves no process",
    async () => {
      await source.files.write("/root/file", "before");
      const calm = await processesIn(source);
      const path = `/v1/sandboxes/${source.id}/files?path=`;
      const socket = connectSocket(daemon.socket);
      socket.write(
        `PUT ${path}/root/file HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n${"x".repeat(200_000)}`,
      );
      await until("the upload is in progress", async () => (await processesIn(source)) > calm);
      socket.destroy();
      await until("its process is gone", async () => (await processesIn(source)) === calm);
      const leave = begin(daemon, "GET", `${path}/dev/zero`, "");
      await until("the download is in progress", async () => (await processesIn(source)) > calm);
      leave();
      await until("its process is gone", async () => (await processesIn(source)) === calm);
      assert.equal(await source.files.readText("/root/file"), "before");
    },
  );
});

test("stopped VMMs end the calls into them in time and cost no other sandbox its turn", async () => {
  await using daemon = await startDaemon({
    snapshots: ["tiny", "python"],
    env: { FORKD_VMM_TIMEOUT_SECS: "3", FORKD_GUEST_TIMEOUT_SECS: "6", FORKD_BRANCH_CONCURRENCY: "3" },
  });
  const { forkd } = daemon;
  const [healthy, branched, paused, followed, read] = await forkAll(forkd, "tiny", 5);
  assert.ok(healthy && branched && paused && followed && read);
  const evaluated = await forkd.create("python");
  const silent = [branched, paused, followed, read, evaluated];
  const stream = await followed.commands.start(["sleep", "1000"]);
  for (const { info } of silent) process.kill(info.pid ?? 0, "SIGSTOP");

  const vmmLate = /the VMM did not answer ".*" within 3 s/;
  const guestLate = /the guest did not answer within/;
  const calls = [
    rejectsWith(branched.branch({ tag: "b" }), "sandbox_dead", vmmLate),
    rejectsWith(paused.pause(), "sandbox_dead", vmmLate),
    rejectsWith(stream.wait(), "agent_unreachable", guestLate),
    rejectsWith(read.files.read("/etc/hostname"), "agent_unreachable", guestLate),
    rejectsWith(evaluated.eval("1", { timeoutMs: 0 }), "agent_unreachable", guestLate),
  ];
  // Meanwhile the others work.
  const branch = await healthy.branch({ tag: "healthy", n: 1 });
  assert.equal(await sh(branch.children[0] as Sandbox, "echo child"), "child");
  await Promise.all(calls);

  // The places of the failed calls are free, and each machine has paid for its own silence only.
  await Promise.all(["x", "y", "z"].map((tag) => healthy.branch({ tag })));
  for (const { id } of [branched, paused]) {
    const { state, reason } = (await forkd.sandboxes.get(id)).info;
    assert.deepEqual([state, vmmLate.test(reason ?? "")], ["dead", true], reason);
  }
  process.kill(read.info.pid ?? 0, "SIGCONT");
  assert.equal(await sh(read, "echo again"), "again");
  await Promise.all([followed, evaluated].map((sandbox) => sandbox.kill()));
  assert.equal(await sh(healthy, "echo healthy"), "healthy");
  await assertNoDrafts(forkd, daemon.dataDir);
});
