import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { test } from "node:test";
import { rejectsWith } from "@forkd/test-support";
import { uploadedParts } from "../../src/envd/multipart.ts";

async function form(parts: [string, string, string][]): Promise<{ body: Buffer; type: string }> {
  const data = new FormData();
  for (const [field, name, content] of parts) data.append(field, new Blob([content]), name);
  const request = new Request("http://guest", { method: "POST", body: data });
  const type = request.headers.get("content-type") ?? "";
  return { body: Buffer.from(await request.arrayBuffer()), type };
}

async function files(body: Iterable<Uint8Array>, type: string): Promise<[string | undefined, string][]> {
  const all: [string | undefined, string][] = [];
  for await (const { filename, content } of uploadedParts(Readable.from(body, { objectMode: false }), type)) {
    const pieces: Buffer[] = [];
    for await (const piece of content as AsyncIterable<Buffer>) pieces.push(piece);
    all.push([filename, Buffer.concat(pieces).toString()]);
  }
  return all;
}

test("uploadedParts() gives files in order, with their whole path, however the body is cut", async () => {
  const big = "x".repeat(300_000);
  const { body, type } = await form([
    ["file", "/home/user/a b.txt", "one"],
    ["other", "ignored", "no"],
    ["file", "../ü.txt", big],
    ["file", "empty", ""],
  ]);
  const expected = [
    ["/home/user/a b.txt", "one"],
    ["../ü.txt", big],
    ["empty", ""],
  ];
  for (const size of [1000, 65_536, body.length]) {
    const pieces: Buffer[] = [];
    for (let at = 0; at < body.length; at += size) pieces.push(body.subarray(at, at + size));
    assert.deepEqual(await files(pieces, type), expected);
  }
});

test("uploadedParts() refuses a body that is cut or has no boundary", async () => {
  const { body, type } = await form([["file", "a", "content"]]);
  await rejectsWith(files([body.subarray(0, -30)], type), "invalid_request", /form/);
  await rejectsWith(files([body], "multipart/form-data"), "invalid_request", /[Bb]oundary/);
});

test("uploadedParts() ends a file whose body fails in the middle of it", async () => {
  const { body, type } = await form([["file", "a", "x".repeat(300_000)]]);
  function* failing(): Generator<Buffer> {
    yield body.subarray(0, 200_000);
    throw new Error("incorrect header check");
  }
  const late = new Promise<never>((_, reject) => {
    setTimeout(() => reject(new Error("it waits for the rest")), 10_000).unref();
  });
  await rejectsWith(
    Promise.race([files(failing(), type), late]),
    "invalid_request",
    /incorrect header check/,
  );
});
