/** A data directory that forkd 0.1.0 wrote, with running and paused sandboxes, works with this version. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { connect } from "@forkd/sdk/node";
import type { Forkd } from "@forkd/sdk";
import { endDaemon, withDaemons } from "../support/daemon.ts";
import { makeOld, oldText, reshape } from "../support/old-format.ts";
import { sh } from "../support/sandboxes.ts";

const token = `fk_${"0".repeat(43)}`;
const tcp = { FORKD_LISTEN: "127.0.0.1:0" };

/** Over TCP, where a key is asked for. */
function asRunner(dataDir: string): Promise<Forkd> {
  const { url } = JSON.parse(readFileSync(join(dataDir, "daemon.json"), "utf8")) as { url: string };
  return connect({ url, token });
}

test("reshape() keeps values and takes keys and version of the old file", () => {
  const current = { version: 3, added: 1, a: { b: 2, added: 1 }, list: [{ x: 1, added: 1 }] };
  const old = { version: 2, a: { b: 0, gone: 7 }, list: [{ x: 0 }] };
  assert.deepEqual(reshape(current, old), { version: 2, a: { b: 2, gone: 7 }, list: [{ x: 1 }] });
});

test("snapshots, sandboxes, keys and kept answers of forkd 0.1.0 are there and work", async () => {
  await withDaemons(["tiny"], async (start, dataDir) => {
    const snapshots = join(dataDir, "snapshots");
    const sandboxes = join(dataDir, "sandboxes");
    await makeOld(join(snapshots, "tiny/manifest.json"), "base.json");
    const sha256 = createHash("sha256").update(token).digest("hex");
    const keys = oldText("keys.json").replace(/"sha256": "\w+"/, `"sha256": "${sha256}"`);
    await writeFile(join(dataDir, "keys.json"), keys, { mode: 0o600 });
    await writeFile(join(dataDir, "daemon.json"), oldText("daemon.json"), { mode: 0o600 });

    let daemon = await start(tcp);
    const source = await daemon.forkd.create("tiny");
    await sh(source, "echo disk > /root/marker; echo memory > /dev/shm/marker; sync");
    await source.branch({ tag: "layer" });
    await source.kill();
    await endDaemon(daemon, "SIGKILL");
    // Before anything is based on it: its id is the digest of its manifest.
    await makeOld(join(snapshots, "layer/manifest.json"), "layer.json");

    // A machine of that version maps a flat image, as one does where no library can be preloaded.
    const script = join(dataDir, "..", "qemu");
    await writeFile(script, '#!/bin/sh\nexec qemu-system-x86_64 "$@"\n', { mode: 0o755 });
    daemon = await start({ ...tcp, FORKD_QEMU_PATH: script });
    const request = { labels: { job: "x" }, env: { A: "1" }, idempotencyKey: "one" };
    const running = await (await asRunner(dataDir)).create("layer", request);
    const paused = await daemon.forkd.create("layer", { ttlMs: 7_200_000 });
    await paused.pause();
    await endDaemon(daemon, "SIGKILL");
    await makeOld(join(sandboxes, running.id, "sandbox.json"), "running.json");
    await makeOld(join(sandboxes, paused.id, "sandbox.json"), "paused.json");
    const state = readdirSync(join(sandboxes, paused.id)).find((name) => name.startsWith("state-")) ?? "";
    await makeOld(join(sandboxes, paused.id, state, "manifest.json"), "state.json");
    await makeOld(join(dataDir, "idempotency.jsonl"), "idempotency.jsonl");

    daemon = await start(tcp);
    const { forkd } = daemon;
    const check = "cat /root/marker /dev/shm/marker";
    assert.equal(await sh(await forkd.sandboxes.get(running.id), `${check}; echo $A`), "disk\nmemory\n1");
    assert.equal((await forkd.sandboxes.get(running.id)).info.owner, "runner");
    const resumed = await forkd.sandboxes.get(paused.id);
    assert.equal(resumed.info.state, "paused");
    await resumed.resume();
    assert.equal(await sh(resumed, check), "disk\nmemory");
    // The kept answer, not another sandbox.
    assert.equal((await (await asRunner(dataDir)).create("layer", request)).id, running.id);

    for (const tag of ["tiny", "layer"]) await forkd.snapshots.info(tag, { verify: true });
    await (await forkd.sandboxes.get(running.id)).branch({ tag: "newer" });
    await forkd.snapshots.compact("layer", "flat");
    for (const tag of ["layer", "newer", "flat"]) {
      assert.equal(await sh(await forkd.create(tag), check), "disk\nmemory");
    }
    await resumed.rewind("layer");
    assert.equal(await sh(resumed, check), "disk\nmemory");
  });
});
