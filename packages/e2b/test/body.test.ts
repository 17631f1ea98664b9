import assert from "node:assert/strict";
import type { IncomingMessage } from "node:http";
import { Readable } from "node:stream";
import { test } from "node:test";
import { AppError } from "@forkd/contract";
import { readBody } from "../src/http/body.ts";

const mib = 1024 * 1024;
const piece = Buffer.alloc(mib);

/** `count` MiB; the end comes when `end` is called. */
function bodyOf(count: number): { incoming: IncomingMessage; end: () => void } {
  const body = new Readable({ read: () => undefined });
  for (let at = 0; at < count; at++) body.push(piece);
  return {
    incoming: Object.assign(body, { headers: {} }) as unknown as IncomingMessage,
    end: () => body.push(null),
  };
}

const refusedAs = (code: string) => (error: unknown) => error instanceof AppError && error.code === code;

test("readBody() does not wait for ever for the rest of a body", async () => {
  await assert.rejects(readBody(bodyOf(0).incoming, mib, 1), refusedAs("invalid_request"));
});

test("readBody() bounds one body, and all bodies that are being read together", async () => {
  await assert.rejects(readBody(bodyOf(3).incoming, 2 * mib), refusedAs("body_too_large"));
  const open = Array.from({ length: 8 }, () => bodyOf(32));
  const reads = open.map(({ incoming }) => readBody(incoming, 32 * mib));
  const more = bodyOf(1);
  more.end();
  await assert.rejects(readBody(more.incoming, mib), refusedAs("capacity_exhausted"));
  for (const { end } of open) end();
  assert.deepEqual(new Set((await Promise.all(reads)).map(({ length }) => length)), new Set([32 * mib]));
  const after = bodyOf(1);
  after.end();
  assert.equal((await readBody(after.incoming, mib)).length, mib);
});
