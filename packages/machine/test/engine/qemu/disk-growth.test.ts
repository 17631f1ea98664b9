import assert from "node:assert/strict";
import { appendFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { createDeferred } from "@forkd/base";
import { temporaryDirectory } from "@forkd/test-support";
import { DiskGrowth } from "../../../src/engine/qemu/disk-growth.ts";
import { QmpClient } from "../../../src/engine/qemu/qmp.ts";
import { socketPair } from "../../support.ts";

const mib = 1 << 20;
const crossed = { event: "BLOCK_WRITE_THRESHOLD", data: { "node-name": "top" } };

test("DiskGrowth sees an offset that is crossed as soon as it is set", { timeout: 120_000 }, async (t) => {
  const file = join(await temporaryDirectory(t), "disk");
  await writeFile(file, "");
  const [near, far] = await socketPair(t);
  const qmp = new QmpClient(near);
  const exceeded = createDeferred<string>();
  // As QEMU with a fast writer: the reply and the event arrive together.
  const execute = async (): Promise<unknown> => {
    await appendFile(file, Buffer.alloc(mib, 1));
    const reply = qmp.execute("block-set-write-threshold");
    far.once("data", (line) => {
      const { id } = JSON.parse(String(line)) as { id: number };
      far.write(`${JSON.stringify({ return: {}, id })}\n${JSON.stringify(crossed)}\n`);
    });
    return reply;
  };
  const bytes = 3 * mib;
  const options = {
    bytes,
    reason: "too large",
    execute,
    qmp,
    onExceeded: (why: string) => exceeded.resolve(why),
  };
  using growth = new DiskGrowth(options);
  await growth.watch("top", [file]);
  assert.equal(await exceeded.promise, "too large");
});
