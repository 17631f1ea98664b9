/** Temporary directories, errors and sockets in tests. */
import assert from "node:assert/strict";
import { once } from "node:events";
import { mkdtemp, rm } from "node:fs/promises";
import { connect, createServer, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { AppError, type ErrorCode } from "@forkd/contract";

/** A directory that is gone after the test. */
export async function temporaryDirectory(t: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "forkd-machine-"));
  t.after(() => rm(path, { recursive: true, force: true }));
  return path;
}

export async function rejectsWith(work: Promise<unknown>, code: ErrorCode, message: RegExp): Promise<void> {
  await assert.rejects(work, (error) => {
    assert.ok(error instanceof AppError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
    return true;
  });
}

/** Two ends of a unix socket, gone after the test. */
export async function socketPair(t: TestContext): Promise<[Socket, Socket]> {
  const path = join(await temporaryDirectory(t), "socket");
  const server = createServer();
  server.listen(path);
  await once(server, "listening");
  const accepted = once(server, "connection");
  const near = connect(path);
  const [far] = (await accepted) as [Socket];
  server.close();
  t.after(() => {
    near.destroy();
    far.destroy();
  });
  return [near, far];
}
