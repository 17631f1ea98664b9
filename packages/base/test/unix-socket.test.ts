import assert from "node:assert/strict";
import { rename, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import { join } from "node:path";
import { test } from "node:test";
import { temporaryDirectory } from "@forkd/test-support";
import { probeSocket } from "../src/unix-socket.ts";

test("probeSocket() says whether a process listens on a path", async (t) => {
  const dir = await temporaryDirectory(t);
  const path = join(dir, "a.sock");
  assert.equal(await probeSocket(path), "absent");
  assert.equal(await probeSocket(join(dir, "none", "a.sock")), "absent");

  const server = createServer((socket) => socket.destroy());
  await new Promise<void>((resolve) => server.listen({ path }, resolve));
  assert.equal(await probeSocket(path), "answers");

  // close() removes the file under the name that it was bound to.
  const left = join(dir, "left.sock");
  await rename(path, left);
  await new Promise<void>((resolve) => server.close(() => resolve()));
  assert.equal(await probeSocket(left), "stale");
});

test("probeSocket() calls a file that is not a socket stale, and a file as a directory absent", async (t) => {
  const dir = await temporaryDirectory(t);
  const file = join(dir, "file");
  await writeFile(file, "");
  assert.equal(await probeSocket(file), "stale");
  assert.equal(await probeSocket(join(file, "a.sock")), "absent");
});
