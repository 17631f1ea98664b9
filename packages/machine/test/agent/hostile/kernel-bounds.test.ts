/** A kernel that forges messages: every type, oversized, deep, endless and with lying lengths. */
import assert from "node:assert/strict";
import { test } from "node:test";
import { AppError } from "@forkd/contract";
import { kernelBounds } from "../../../src/agent/bounds.ts";
import { FakeGuest, u32, u8 } from "../support/fake-guest.ts";
import { FakeKernel, kernelMessage, kernelValue } from "../support/hostile-stream.ts";

const context = "default";
const mib = 1024 * 1024;

function claim(type: string, bytes: number): Buffer {
  return Buffer.concat([Buffer.from(type), u32(bytes)]);
}

const { valueTextBytes, valueJsonBytes, valueWholeBytes, valueCountBytes } = kernelBounds;
const valueLimit = 13 + valueTextBytes + valueJsonBytes + valueWholeBytes + valueCountBytes;

for (const [what, claimed] of [
  ["a value that claims too many bytes", claim("V", valueLimit + 1)],
  ["a version that claims too many bytes", claim("Y", kernelBounds.readyBytes + 1)],
  ["a refusal that claims too many bytes", claim("Z", kernelBounds.cannotBytes + 1)],
  ["an answer that claims too many bytes", claim("A", kernelBounds.messageBytes + 1)],
  ["a message of unknown type", claim("?", 4)],
  ["an answer too short for an id", claim("A", 3)],
] as const) {
  test(`${what} ends the kernel before its payload arrives`, async () => {
    await using guest = await FakeGuest.ready();
    const kernel = await FakeKernel.start(guest);
    const outcome = kernel.client.evaluate({ code: "1", context });
    await kernel.asked();
    await kernel.control.send(claimed);
    await assert.rejects(outcome, { code: "kernel_failed", message: /garbage/ });
    assert.equal(guest.client.isClosed, false, "only the kernel is lost");
  });
}

for (const [what, text, json] of [
  ["text", Buffer.alloc(kernelBounds.valueTextBytes + 1), ""],
  ["JSON", "", Buffer.alloc(kernelBounds.valueJsonBytes + 1, " ")],
] as const) {
  test(`a value with too much ${what} ends the kernel`, async () => {
    await using guest = await FakeGuest.ready();
    const kernel = await FakeKernel.start(guest);
    const outcome = kernel.client.evaluate({ code: "1", context });
    const sending = kernel.control.send(kernelValue(await kernel.asked(), 0, text, json));
    await assert.rejects(outcome, { code: "kernel_failed", message: /garbage: value with a text of/ });
    await sending;
  });
}

test("a value of a million objects is passed on without being parsed", async (t) => {
  await using guest = await FakeGuest.ready();
  const kernel = await FakeKernel.start(guest);
  const outcome = kernel.client.evaluate({ code: "1", context });
  const json = `[${"{},".repeat(1_000_000)}{}]`;
  const id = await kernel.asked();
  const parse = t.mock.method(JSON, "parse");
  await kernel.control.send(kernelValue(id, 0, "", json));
  assert.equal((await outcome).json?.text, json);
  assert.equal(parse.mock.callCount(), 0);
});

for (const [what, json] of [
  ["open", "[".repeat(kernelBounds.valueJsonBytes)],
  ["closed", "[".repeat(2 * mib) + "]".repeat(2 * mib)],
] as const) {
  test(`a value of a million levels, ${what}, loses its JSON and nothing else`, async () => {
    await using guest = await FakeGuest.ready();
    const kernel = await FakeKernel.start(guest);
    const outcome = kernel.client.evaluate({ code: "1", context });
    await kernel.control.send(kernelValue(await kernel.asked(), 0, "deep", json));
    assert.deepEqual(await outcome, { status: "value", text: "deep", isJsonCut: true, timedOut: false });
    assert.equal(kernel.client.dead, undefined);
  });
}

for (const [what, value] of [
  ["short", "1"],
  ["long", `"${"x".repeat(mib)}"`],
] as const) {
  test(`a ${what} value that closes the JSON of the answer and adds fields ends the kernel`, async () => {
    await using guest = await FakeGuest.ready();
    const kernel = await FakeKernel.start(guest);
    const outcome = kernel.client.evaluate({ code: "1", context });
    await kernel.control.send(kernelValue(await kernel.asked(), 0, "", `${value},"stdout":"forged"`));
    await assert.rejects(outcome, { code: "kernel_failed", message: /invalid JSON/ });
    assert.notEqual(kernel.client.dead, undefined);
  });
}

for (const [what, json] of [
  ["many members", `{"name":"E",${'"x":1,'.repeat(100_000)}"value":""}`],
  ["many levels", `{"name":"E","value":${"[".repeat(100_000)}`],
  ["many bytes", `{"name":"E","value":"${"x".repeat(kernelBounds.errorJsonBytes)}"}`],
] as const) {
  test(`an error with ${what} is not parsed`, async (t) => {
    await using guest = await FakeGuest.ready();
    const kernel = await FakeKernel.start(guest);
    const outcome = kernel.client.evaluate({ code: "1", context });
    const id = await kernel.asked();
    const parse = t.mock.method(JSON, "parse");
    await kernel.control.send(kernelValue(id, 2, "Traceback\nE: x", json));
    assert.deepEqual(await outcome, { status: "error", text: "Traceback\nE: x", timedOut: false });
    assert.equal(parse.mock.callCount(), 0);
  });
}

test("an error with half of a surrogate pair becomes Unicode text", async () => {
  await using guest = await FakeGuest.ready();
  const kernel = await FakeKernel.start(guest);
  const outcome = kernel.client.evaluate({ code: "1", context });
  await kernel.control.send(
    kernelValue(await kernel.asked(), 2, "", '{"name":"E\\ud800","value":"\\udc00v"}'),
  );
  assert.deepEqual((await outcome).error, { name: "E�", value: "�v", frames: [] });
});

for (const [what, names] of [
  ["empty names", Buffer.alloc(kernelBounds.doneBytes)],
  ["a name that is too long", Buffer.from(`${"n".repeat(65)}\0`)],
  ["a name with a control character", Buffer.from("a\u001b[31m\0")],
  ["a name without an end", Buffer.from("ok\0rest")],
] as const) {
  test(`a list of contexts with ${what} ends the kernel`, async () => {
    await using guest = await FakeGuest.ready();
    const kernel = await FakeKernel.start(guest);
    const contexts = kernel.client.contexts();
    await kernel.control.send(kernelMessage("A", u32(await kernel.asked()), names));
    await assert.rejects(contexts, { code: "kernel_failed", message: /garbage: name/ });
  });
}

test("a list of too many contexts fails its call and keeps the kernel", async () => {
  await using guest = await FakeGuest.ready();
  const kernel = await FakeKernel.start(guest);
  for (const names of [
    Buffer.from("n\0".repeat(kernelBounds.contexts + 1)),
    Buffer.alloc(2 * mib, "name\0"),
  ]) {
    const contexts = kernel.client.contexts();
    const refused = assert.rejects(contexts, (error: AppError) => {
      assert.deepEqual([error.code, error.details["errno"]], ["guest_refused", "EOVERFLOW"]);
      return true;
    });
    await kernel.control.send(kernelMessage("A", u32(await kernel.asked()), names));
    await refused;
  }
  const contexts = kernel.client.contexts();
  await kernel.control.send(kernelMessage("A", u32(await kernel.asked()), Buffer.from("default\0")));
  assert.deepEqual(await contexts, [{ name: "default" }]);
});

test("a value without room is dropped while it arrives; the next eval works", async () => {
  await using guest = await FakeGuest.ready();
  const kernel = await FakeKernel.start(guest);
  const full = new AppError("capacity_exhausted", "full");
  let held = 0;
  const hold = (bytes: number): void => {
    if (held + bytes > mib) throw full;
    held += bytes;
  };
  const outcome = kernel.client.evaluate({ code: "1", context, hold });
  const refused = assert.rejects(outcome, full);
  await kernel.control.send(kernelValue(await kernel.asked(), 0, Buffer.alloc(4 * mib, "x"), ""));
  await refused;
  assert.ok(held <= mib);
  const next = kernel.client.evaluate({ code: "2", context, hold: () => undefined });
  await kernel.control.send(kernelValue(await kernel.asked(), 0, "2", "2"));
  assert.equal((await next).json?.text, "2");
});

test("hold() sees at least the bytes of the value", async () => {
  await using guest = await FakeGuest.ready();
  const kernel = await FakeKernel.start(guest);
  let held = 0;
  const outcome = kernel.client.evaluate({ code: "1", context, hold: (bytes) => void (held += bytes) });
  const message = kernelValue(await kernel.asked(), 0, Buffer.alloc(mib, "x"), "");
  await kernel.control.send(message, 1000);
  await outcome;
  assert.ok(held >= mib && held <= message.length, `${held} bytes`);
});

test("a large answer to no message is not kept and ends the kernel", async () => {
  await using guest = await FakeGuest.ready();
  const kernel = await FakeKernel.start(guest);
  const ended = kernel.client.ended;
  await kernel.control.send(kernelValue(4711, 0, Buffer.alloc(4 * mib), ""));
  assert.match((await ended).message, /garbage: answer to 4711, which is not pending/);
});

test("a flag without the length that it announces ends the kernel, and an unknown flag too", async () => {
  for (const status of [0x10, 0x40, 0x84]) {
    await using guest = await FakeGuest.ready();
    const kernel = await FakeKernel.start(guest);
    const outcome = kernel.client.evaluate({ code: "1", context });
    await kernel.control.send(kernelValue(await kernel.asked(), status, "", ""));
    await assert.rejects(outcome, { code: "kernel_failed", message: /garbage: value/ });
  }
});

test("lengths inside a value that do not fit end the kernel", async () => {
  for (const [text, json] of [
    [0xffff_ffff, 0],
    [0, 0xffff_ffff],
    [1, 0],
  ] as const) {
    await using guest = await FakeGuest.ready();
    const kernel = await FakeKernel.start(guest);
    const outcome = kernel.client.evaluate({ code: "1", context });
    const parts = [u32(await kernel.asked()), u8(0), u32(text), u32(json)];
    await kernel.control.send(kernelMessage("V", ...parts));
    await assert.rejects(outcome, { code: "kernel_failed", message: /garbage: value/ });
  }
});
