/** The host of a machine that was captured while busy, with the real agent and the real kernel. */
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { setImmediate, setTimeout } from "node:timers/promises";
import { AppError } from "@forkd/contract";
import { until } from "@forkd/test-support";
import { encodeFrame, frameType } from "../../src/agent/wire/frames.ts";
import { KernelClient, type KernelPosition } from "../../src/agent/kernel/client.ts";
import { encodeInput, encodeStart } from "../../src/agent/wire/requests.ts";
import { gate, pythonKernel, RealAgent } from "./support/real-agent.ts";

const context = "default";
const reseedSignal = 41;

function startKernel(agent: RealAgent): Promise<KernelClient> {
  return KernelClient.start(agent.client, { language: "python", argv: ["python3", pythonKernel] });
}

/** Captures the source while it runs an eval that has printed something. Returns the position for a child. */
async function capturedInEval(agent: RealAgent, code: string): Promise<KernelPosition> {
  const source = await startKernel(agent);
  let begun = (): void => undefined;
  const started = new Promise<void>((resolve) => (begun = resolve));
  const answer = assert.rejects(source.evaluate({ code, context, onOutput: () => begun() }), AppError);
  await started;
  const position = await capture(agent, source);
  await agent.client[Symbol.asyncDispose]();
  await answer;
  return position;
}

async function capture(agent: RealAgent, kernel: KernelClient): Promise<KernelPosition> {
  using held = agent.client.hold();
  await held.taken;
  assert.equal(kernel.isSending, false);
  // Snapshots store it as JSON.
  return JSON.parse(JSON.stringify(kernel.position())) as KernelPosition;
}

test("a child of a busy kernel waits for the inherited eval, then works", async () => {
  await using agent = await RealAgent.openRelayed();
  const { wait, open } = gate(agent);
  const position = await capturedInEval(agent, `print('begun')\n${wait}print('inherited')\nx = 2\nx`);
  assert.equal(position.unanswered.length, 1);
  const client = await agent.nextHost();
  const kernel = KernelClient.attach(client, position);
  assert.deepEqual(kernel.position().unanswered, position.unanswered);
  const order: string[] = [];
  const prepared = kernel
    .afterFork(Buffer.alloc(32, 9), { FORKED: "yes" })
    .then(() => order.push("prepared"));
  let output = "";
  const onOutput = (_stream: 1 | 2, bytes: Buffer): void => void (output += bytes.toString());
  const code = "print('own')\n[x, os.environ['FORKED']]";
  const own = kernel
    .evaluate({ code, context, onOutput })
    .then(({ json }) => order.push("own") && json?.parse());
  await kernel.ready;
  await client.ping();
  assert.deepEqual(order, [], "no message overtakes the eval");
  await open();
  assert.deepEqual(await own, [2, "yes"]);
  await prepared;
  assert.deepEqual([order, output, kernel.position().unanswered], [["prepared", "own"], "own\n", []]);
  await kernel[Symbol.asyncDispose]();
});

test("a child interrupts the inherited eval", async () => {
  await using agent = await RealAgent.openRelayed();
  const position = await capturedInEval(agent, "x = 1\nprint(x)\nwhile True: pass");
  const kernel = KernelClient.attach(await agent.nextHost(), position);
  const own = kernel.evaluate({ code: "x + 1", context });
  // An interrupt before the kernel starts the eval has no effect.
  const again = setInterval(() => kernel.interrupt(), 50);
  assert.equal((await own).json?.parse(), 2);
  clearInterval(again);
  await kernel[Symbol.asyncDispose]();
});

test("the agent's signal reseeds the random number generators during the inherited eval", async () => {
  await using agent = await RealAgent.openRelayed();
  const { wait, open } = gate(agent);
  const code = `import random\nrandom.seed(1)\nprint('begun')\n${wait}drawn = random.random()`;
  const position = await capturedInEval(agent, code);
  const client = await agent.nextHost();
  const kernel = KernelClient.attach(client, position);
  await kernel.ready;
  // Sends the signal of AFTER_FORK, which the agent itself refuses outside a VM.
  const leader = (await client.list()).find(({ id }) => id === position.processId);
  assert.ok(leader);
  process.kill(leader.pid, reseedSignal);
  await open();
  const outcome = await kernel.evaluate({ code: "random.seed(1)\ndrawn == random.random()", context });
  assert.equal(outcome.json?.parse(), false);
  await kernel[Symbol.asyncDispose]();
});

test("a child skips an answer that a capture split, however long it is", async () => {
  await using agent = await RealAgent.openRelayed();
  const source = await startKernel(agent);
  let position: KernelPosition | undefined;
  for (let tries = 0; position === undefined && tries < 50; tries++) {
    let answered = false;
    const outcome = source.evaluate({ code: "y = 7\n'x' * (3 << 20)", context });
    const settled = outcome.then(
      () => (answered = true),
      () => (answered = true),
    );
    while (!answered && position === undefined) {
      const now = source.position();
      if (now.unanswered.length === 0) position = now;
      else await setImmediate();
    }
    if (position) await agent.client[Symbol.asyncDispose]();
    await settled;
  }
  assert.ok(position, "no capture split an answer");
  const kernel = KernelClient.attach(await agent.nextHost(), position);
  assert.equal((await kernel.evaluate({ code: "y", context })).json?.parse(), 7);
  await kernel[Symbol.asyncDispose]();
});

test("position() does not include messages that are not sent", async () => {
  await using agent = await RealAgent.openRelayed();
  const kernel = await startKernel(agent);
  const held = agent.client.hold();
  await held.taken;
  const first = kernel.evaluate({ code: "1", context });
  assert.deepEqual([kernel.isSending, kernel.position().unanswered], [false, []]);
  held[Symbol.dispose]();
  assert.equal((await first).json?.parse(), 1);
  const long = kernel.evaluate({ code: `len("${"z".repeat(1_000_000)}")`, context });
  const again = agent.client.hold();
  await again.taken;
  assert.equal(kernel.isSending, true);
  again[Symbol.dispose]();
  assert.equal((await long).json?.parse(), 1_000_000);
  assert.deepEqual([kernel.isSending, kernel.position().unanswered], [false, []]);
  await kernel[Symbol.asyncDispose]();
});

test("answers to requests of the previous host do not reach the next one", async () => {
  await using agent = await RealAgent.openRelayed();
  for (let round = 0; round < 10; round++) {
    const { client } = agent;
    const asked = [
      client.sync(),
      client.list(),
      client.start({ argv: ["sh", "-c", "echo x; sleep 0.01; echo y"] }).exit,
      client.start({ kind: "read", path: "/etc/passwd" }).exit,
      client.start({ kind: "write", path: join(agent.directory, "cut"), stdin: true }).exit,
    ];
    const settled = Promise.allSettled(asked);
    const whole = encodeStart(5, { argv: ["touch", join(agent.directory, "made")], label: "x" }, 0);
    const frames = [whole, encodeInput(6, 0, Buffer.alloc(5000, 1)), encodeFrame(frameType.sync, 7)];
    const frame = frames[round % frames.length]!;
    const next = await agent.nextHost(frame.subarray(0, Math.floor((frame.length * (round + 1)) / 12)));
    await client[Symbol.asyncDispose]();
    await settled;
    await next.ready;
    for (const until = Date.now() + 30; Date.now() < until; await setTimeout(1)) await next.ping();
    // The agent has killed it at HELLO; a busy host runs its end later.
    await until("the cut write has ended", async () =>
      (await next.list()).every(({ kind, finished }) => kind !== "write" || finished),
    );
  }
});

test("hold() delays frames until the last release and keeps their order", async () => {
  await using agent = await RealAgent.openRelayed();
  const { client } = agent;
  const cat = client.start({ argv: ["cat"], stdin: true });
  await cat.started;
  const [one, two] = [client.hold(), client.hold()];
  await Promise.all([one.taken, setImmediate()]);
  const wrote = Promise.all([
    cat.write(Buffer.from("a".repeat(100_000))),
    cat.write(Buffer.from("b")),
    cat.end(),
  ]);
  let isAnswered = false;
  const ping = client.ping().then(() => (isAnswered = true));
  one[Symbol.dispose]();
  one[Symbol.dispose]();
  await setTimeout(30);
  assert.equal(isAnswered, false, "the second hold still counts");
  two[Symbol.dispose]();
  await Promise.all([wrote, ping]);
  let output = "";
  for await (const { bytes } of cat.output) output += bytes.toString();
  assert.equal(output, `${"a".repeat(100_000)}b`);
});
