#!/usr/bin/env node
// Forks of one warm Node.js, each with its own state. Needs the snapshot: forkd build nodejs
import assert from "node:assert/strict";

// In a checkout the package need not be installed.
const { connect, Sandbox } = await import("forkd").catch(() => import("../../packages/sdk/dist/src/node.js"));

const tag = process.env.FORKD_DEMO_TAG ?? "nodejs";
const forks = 4;
const timed = async (work) => {
  const began = performance.now();
  const result = await work();
  return [result, performance.now() - began];
};

/** The value of code; an exception in the guest fails the demo. */
const value = async (sandbox, code) => {
  const { error, resultJson } = await sandbox.eval(code);
  assert.equal(error ?? undefined, undefined);
  return resultJson;
};

const forkd = await connect();
const vary = Array.from({ length: forks }, (_, index) => ({ values: { text: `fork ${index}` } }));
const [children, forkMs] = await timed(() => forkd.fork(tag, forks, { vary, ttlMs: 600_000 }));
const sandboxes = children.filter((child) => child instanceof Sandbox);
try {
  assert.equal(sandboxes.length, forks, JSON.stringify(children));
  console.log(`${forks} forks in ${(forkMs / 1000).toFixed(2)} s`);

  // In one fork: the same digest in the warm interpreter, and in a process that has to start first.
  const [first] = sandboxes;
  const digest = "require('crypto').createHash('sha256').update('forkd').digest('hex')";
  const [warm, warmMs] = await timed(() => value(first, digest));
  const [cold, coldMs] = await timed(() =>
    first.commands.run(["node", "-p", digest], { check: true, timeoutMs: 120_000 }),
  );
  assert.equal(warm, cold.stdout.trim());
  assert.ok(warmMs < coldMs, `${warmMs} ms warm, ${coldMs} ms in a new process`);
  console.log(`first digest: ${warmMs.toFixed(0)} ms warm, ${coldMs.toFixed(0)} ms in a new process`);

  // Every fork reads its own values, compresses them, and keeps what it has made.
  const work = `
    const { text } = JSON.parse(require("fs").readFileSync("/run/forkd/values.json", "utf8"));
    globalThis.packed = require("zlib").gzipSync(text.repeat(1000));
    packed.length`;
  const sizes = await Promise.all(sandboxes.map((each) => value(each, work)));
  assert.ok(
    sizes.every((size) => size > 20 && size < 1000),
    String(sizes),
  );
  const unpack = "require('zlib').gunzipSync(packed).toString().slice(0, 6)";
  const texts = await Promise.all(sandboxes.map((each) => value(each, unpack)));
  assert.deepEqual(
    texts,
    vary.map(({ values }) => values.text),
  );
  console.log(`each fork kept its own text: ${texts.join(", ")}`);

  const drawn = await Promise.all(
    sandboxes.map((each) => value(each, "[Math.random(), require('crypto').randomUUID()].join(' ')")),
  );
  assert.equal(new Set(drawn).size, forks, drawn.join("\n"));
  console.log("Math.random() and randomUUID() differ in all forks");

  const facts = {
    forks,
    fork_ms: Math.round(forkMs),
    warm_ms: Math.round(warmMs),
    cold_ms: Math.round(coldMs),
    times_faster: Number((coldMs / warmMs).toFixed(1)),
  };
  console.log(JSON.stringify({ recipe: "nodejs", ok: true, facts }));
} finally {
  await Promise.all(sandboxes.map((each) => each.kill()));
}
