import assert from "node:assert/strict";
import { mkdtemp, readdir, stat } from "node:fs/promises";
import type { IncomingMessage } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { removeTree } from "@forkd/base";
import { AppError } from "@forkd/contract";
import type { Runtime } from "@forkd/runtime";
import { until } from "@forkd/test-support";
import { Uploads } from "../src/templates/uploads.ts";

const upload = () =>
  Object.assign(new PassThrough(), { headers: {} }) as unknown as PassThrough & IncomingMessage;

test("uploads in progress are bounded together, and one that failed leaves nothing", async (t) => {
  const dataDir = await mkdtemp(join(tmpdir(), "forkd-uploads-"));
  t.after(() => removeTree(dataDir));
  const config = { dataDir } as Runtime["config"];
  const uploads = await Uploads.open({ config }, { arrivingBytes: 10 });
  const dir = join(dataDir, "e2b", "uploads");
  const files = () => readdir(dir);
  const hashes = ["a", "b", "c"].map((digit) => digit.repeat(64));
  const [first = "", second = "", third = ""] = hashes;
  const one = upload();
  const taken = uploads.take(first, one);
  one.write("123456");
  await until("the first one has arrived", async () => {
    const [name = ""] = await files();
    return name !== "" && (await stat(join(dir, name))).size === 6;
  });
  const other = upload();
  other.end("123456");
  await assert.rejects(
    uploads.take(second, other),
    (error) => error instanceof AppError && error.code === "capacity_exhausted",
  );
  one.end();
  await taken;
  const last = upload();
  last.end("1234567890");
  await uploads.take(third, last);
  assert.deepEqual((await files()).toSorted(), [first, third]);
});
