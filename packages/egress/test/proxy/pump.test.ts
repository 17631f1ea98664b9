import assert from "node:assert/strict";
import { once } from "node:events";
import { PassThrough, Writable } from "node:stream";
import test from "node:test";
import { pump } from "../../src/proxy/pump.ts";

const segment = Buffer.alloc(1448, "s");

/** A source, what its sink has received, and whether the source ever had to rest. */
function pumped(): { source: PassThrough; received: () => number; rests: () => number; sink: Writable } {
  const source = new PassThrough({ highWaterMark: 1 << 20 });
  let [bytes, rests] = [0, 0];
  const sink = new Writable({
    highWaterMark: 1 << 20,
    write: (chunk: Buffer, _, done) => {
      bytes += chunk.length;
      done();
    },
  });
  source.on("pause", () => rests++);
  pump(source, sink, () => undefined);
  return { source, sink, received: () => bytes, rests: () => rests };
}

test("pump() lets a fast stream of small chunks gather, and passes all of it on with its end", async () => {
  const { source, sink, received, rests } = pumped();
  const finished = once(sink, "finish");
  for (let i = 0; i < 500; i++) source.write(segment);
  source.end();
  await finished;
  assert.equal(received(), 500 * segment.length);
  assert.ok(rests() > 0);
});

test("pump() does not delay small messages, and large chunks neither", async () => {
  const { source, sink, received, rests } = pumped();
  const finished = once(sink, "finish");
  for (let i = 0; i < 20; i++) source.write(segment);
  for (let i = 0; i < 20; i++) source.write(Buffer.alloc(64 * 1024));
  source.end();
  await finished;
  assert.equal(received(), 20 * segment.length + 20 * 64 * 1024);
  assert.equal(rests(), 0);
});
