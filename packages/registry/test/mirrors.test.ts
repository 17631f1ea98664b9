/** Mirrors that fail, and what they must not be asked for. */
import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import { rejectsWith } from "@forkd/test-support";
import { digestOf } from "../src/digest.ts";
import { Registries } from "../src/registries.ts";
import { readAll, startLiar } from "./liar.ts";

const blobs = ["first", "second", "third"].map((text) => Buffer.from(text));
const descriptor = (bytes: Buffer) => ({ digest: digestOf(bytes), size: bytes.length });

/** A registry with these blobs and one manifest. */
async function startOrigin(t: TestContext) {
  return await startLiar(t, (request, response) => {
    const found = blobs.find((bytes) => request.url?.endsWith(digestOf(bytes)));
    response.end(found ?? '{"from":"the registry"}');
  });
}

function openAll(t: TestContext, origin: string, mirror: string): Registries {
  const retries = { attempts: 4, firstMs: 1, maxMs: 2 };
  const registries = new Registries({ retries, mirrors: { [origin]: [`http://${mirror}`] } });
  t.after(() => registries[Symbol.dispose]());
  return registries;
}

test("a mirror that fails is asked once, not for every blob and not again and again", async (t) => {
  const origin = await startOrigin(t);
  const mirror = await startLiar(t, (_request, response) => response.writeHead(503).end());
  const registries = openAll(t, origin.address, mirror.address);
  const repository = registries.repository({ registry: origin.address, repository: "x" });
  for (const bytes of blobs) assert.deepEqual(await readAll(repository.readBlob(descriptor(bytes))), bytes);
  await repository.manifest("v1");
  assert.equal(mirror.requests.length, 1);
});

test("a mirror without one blob is still asked for the next", async (t) => {
  const origin = await startOrigin(t);
  const mirror = await startLiar(t, (_request, response) => response.writeHead(404).end());
  const registries = openAll(t, origin.address, mirror.address);
  const repository = registries.repository({ registry: origin.address, repository: "x" });
  for (const bytes of blobs) await readAll(repository.readBlob(descriptor(bytes)));
  assert.equal(mirror.requests.length, blobs.length);
});

test("a client that writes reads from the registry itself", async (t) => {
  const origin = await startOrigin(t);
  const mirror = await startLiar(t, (_request, response) => response.end('{"from":"a mirror"}'));
  const registries = openAll(t, origin.address, mirror.address);
  const place = { registry: origin.address, repository: "x" };
  assert.match(String((await registries.repository(place).manifest("v1")).bytes), /a mirror/);
  const writer = registries.repository(place, "pull,push");
  assert.match(String((await writer.manifest("v1")).bytes), /the registry/);
});

test("the error about damaged bytes names who has sent them", async (t) => {
  const origin = await startOrigin(t);
  const mirror = await startLiar(t, (_request, response) => response.end("FIRST"));
  const registries = openAll(t, origin.address, mirror.address);
  const repository = registries.repository({ registry: origin.address, repository: "x" });
  const [bytes = Buffer.alloc(0)] = blobs;
  await rejectsWith(
    readAll(repository.readBlob(descriptor(bytes))),
    "artifact_corrupt",
    new RegExp(`that ${mirror.address} sends`),
  );
});
