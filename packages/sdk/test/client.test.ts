import assert from "node:assert/strict";
import { readdir, readFile } from "node:fs/promises";
import { test } from "node:test";
import { routes, type Route } from "@forkd/contract";
import { requestFor, splitLines } from "../src/client.ts";
import { fromBase64, OutputBuffer, outputBytes, toBase64 } from "../src/output.ts";

test("requestFor() puts path parameters into the path and the rest into query or body", () => {
  assert.deepEqual(requestFor(routes.removeSnapshot, { tag: "a b", force: "true" }), {
    method: "DELETE",
    path: "/v1/snapshots/a%20b?force=true",
    headers: {},
  });
  assert.deepEqual(requestFor(routes.exec, { id: "x", args: ["ls"], cwd: undefined }), {
    method: "POST",
    path: "/v1/sandboxes/x/exec",
    headers: { "content-type": "application/json" },
    body: '{"args":["ls"]}',
  });
  assert.deepEqual(requestFor(routes.writeFile, { id: "x", path: "/a&b", append: true }, "text"), {
    method: "PUT",
    path: "/v1/sandboxes/x/files?path=%2Fa%26b&append=true",
    headers: { "content-type": "application/octet-stream" },
    body: "text",
  });
});

test("requestFor() replaces every parameter of every path", () => {
  const input = { id: "i", tag: "t", name: "n", exec_id: 1, eval_id: "e", port: 80 };
  for (const route of Object.values<Route>(routes))
    assert.ok(!/[{}]|undefined/.test(requestFor(route, input).path));
});

async function* pieces(bytes: Uint8Array, size: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size);
}

test("splitLines() joins lines and characters across chunks", async () => {
  const text = '{"a":"é€😀"}\n\n{"b":2}\n';
  for (const size of [1, 2, 3, 7, 100]) {
    const lines = [];
    for await (const line of splitLines(pieces(new TextEncoder().encode(text), size))) lines.push(line);
    assert.deepEqual(lines, ['{"a":"é€😀"}', '{"b":2}']);
  }
});

test("splitLines() throws when the text ends in the middle of a line", async () => {
  const lines = splitLines(pieces(new TextEncoder().encode('{"a":1}\n{"b"'), 4));
  assert.equal((await lines.next()).value, '{"a":1}');
  await assert.rejects(lines.next(), { code: "daemon_unreachable" });
});

test("toBase64() and fromBase64() round-trip every byte", () => {
  const bytes = Uint8Array.from({ length: 70_000 }, (_, n) => n % 256);
  assert.deepEqual(fromBase64(toBase64(bytes)), bytes);
  assert.deepEqual(outputBytes({ data: "é", encoding: "utf8" }), Uint8Array.of(0xc3, 0xa9));
});

test("OutputBuffer keeps the first part and reports that it is truncated", () => {
  const buffer = new OutputBuffer();
  buffer.push(new Uint8Array(8 * 1024 * 1024 - 1).fill(97));
  assert.equal(buffer.truncated, false);
  buffer.push(Uint8Array.of(98, 99));
  buffer.push(Uint8Array.of(100));
  assert.equal(buffer.truncated, true);
  assert.equal(buffer.toString().slice(-2), "ab");
});

test("only node.ts imports from Node", async () => {
  const dir = new URL("../src/", import.meta.url);
  for (const file of (await readdir(dir)).filter((name) => name.endsWith(".js") && name !== "node.js")) {
    const code = await readFile(new URL(file, dir), "utf8");
    assert.doesNotMatch(code, /from "node:|from "\.\/node\.js"|\bBuffer\b|\bprocess\./, file);
  }
});
