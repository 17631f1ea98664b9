/** Snapshots that travel: packed by one daemon, unpacked by another, forked there. */
import "../support/orphans.ts";
import assert from "node:assert/strict";
import { execFile } from "node:child_process";
import { createHash } from "node:crypto";
import { readdirSync, statSync } from "node:fs";
import { readFile, truncate } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import { rejectsWith } from "@forkd/test-support";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { cliPath } from "../support/places.ts";
import { sh } from "../support/sandboxes.ts";

const execFileAsync = promisify(execFile);

let here: TestDaemon;
let there: TestDaemon;
before(async () => {
  here = await startDaemon({ snapshots: ["tiny"] });
  there = await startDaemon();
});
after(async () => {
  await here[Symbol.asyncDispose]();
  await there[Symbol.asyncDispose]();
});

async function forkdCli(daemon: TestDaemon, ...args: string[]): Promise<string> {
  const { stdout } = await execFileAsync(process.execPath, [cliPath, ...args], { env: daemon.env });
  return stdout;
}

/** Time, random bytes, identity, name and the mark, one per line. */
const facts = "date +%s; head -c 16 /dev/urandom | sha256sum; cat /etc/machine-id; hostname; cat /root/mark";

test("a branch is packed here, unpacked there, and its children have their own clock, entropy and identity", async () => {
  await here.forkd.snapshots.derive({ from: "tiny", tag: "marked", command: "echo yes > /root/mark" });
  const file = join(here.dir, "marked.tar");
  const packed = JSON.parse(await forkdCli(here, "pack", "marked", "-o", file, "--json")) as Record<
    string,
    unknown
  >;
  assert.equal(packed["archive_bytes"], statSync(file).size);
  assert.equal(packed["snapshots"], 2);
  const { stdout: tag } = await execFileAsync(process.execPath, [cliPath, "unpack", file], {
    env: there.env,
  });
  assert.equal(tag, "marked\n");
  const [original, copy] = await Promise.all(
    [here, there].map(({ forkd }) => forkd.snapshots.info("marked")),
  );
  assert.equal(copy?.id, original?.id);
  assert.deepEqual(copy?.ancestors, ["tiny"]);

  const result = await there.forkd.fork("marked", 2);
  const children = result.map((child) => ("code" in child ? assert.fail(child.message) : child));
  const seen = await Promise.all(children.map(async (child) => (await sh(child, facts)).split("\n")));
  for (const [time, , , , mark] of seen) {
    assert.ok(Math.abs(Number(time) - Date.now() / 1000) < 120, `the clock is ${time}`);
    assert.equal(mark, "yes");
  }
  for (const index of [1, 2, 3]) assert.notEqual(seen[0]?.[index], seen[1]?.[index]);
  await Promise.all(children.map((child) => child.kill()));

  const again = join(there.dir, "again.tar");
  await forkdCli(there, "pack", "marked", "-o", again);
  assert.equal(await sha256(again), await sha256(file));
  await assert.rejects(forkdCli(there, "pack", "marked", "-o", again), /exists/);
});

async function sha256(path: string): Promise<string> {
  return createHash("sha256")
    .update(await readFile(path))
    .digest("hex");
}

test("what is damaged or taken is refused with its name, and nothing stays", async () => {
  const { snapshots } = here.forkd;
  const file = join(here.dir, "tiny.tar");
  const seen: string[] = [];
  const packed = await snapshots.pack("tiny", {
    level: 1,
    onProgress: ({ phase }) => void seen.push(phase),
  });
  assert.ok(seen.includes("pack"));
  await forkdCli(here, "pack", "tiny", "--level", "1", "-o", file);
  const before = readdirSync(join(there.dataDir, "snapshots"));
  await truncate(file, packed.archiveBytes - 5000);
  const broken = await readFile(file);
  await rejectsWith(
    there.forkd.snapshots.unpack(broken, { tag: "broken" }),
    "invalid_archive",
    /it ends after/,
  );
  await assert.rejects(forkdCli(there, "unpack", file, "--tag", "broken"), /it ends after/);
  assert.deepEqual(readdirSync(join(there.dataDir, "snapshots")), before);

  let bytes = 0;
  for await (const chunk of snapshots.archive("tiny", { level: 1 })) bytes += chunk.length;
  assert.equal(bytes, packed.archiveBytes);
  await rejectsWith(
    there.forkd.snapshots.unpack(snapshots.archive("tiny", { level: 1 }), { tag: "marked" }),
    "snapshot_exists",
    /another one has the tag/,
  );
  const unpacked = await there.forkd.snapshots.unpack(snapshots.archive("tiny", { level: 1 }));
  assert.deepEqual(
    unpacked.chain.map(({ tag, existed }) => [tag, existed]),
    [["tiny", true]],
  );
});
