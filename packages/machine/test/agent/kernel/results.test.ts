/** Results of evals: messages, the guest's Python kernel under the guest's agent, and evals that a branch carries. */
import assert from "node:assert/strict";
import { test } from "node:test";
import type { AgentClient } from "../../../src/agent/client.ts";
import { kernelBounds } from "../../../src/agent/bounds.ts";
import { KernelClient } from "../../../src/agent/kernel/client.ts";
import { checkDisplay, decodeDisplay, type KernelDisplay } from "../../../src/agent/kernel/display.ts";
import { KernelGarbage } from "../../../src/agent/kernel/garbage.ts";
import {
  encodeEval,
  encodeNewContext,
  encodeRehearse,
  encodeWarmed,
  protocolOf,
} from "../../../src/agent/kernel/messages.ts";
import { gate, pythonKernel, RealAgent } from "../support/real-agent.ts";
import { u32, u8 } from "../support/fake-guest.ts";

const context = "default";

function startKernel(client: AgentClient): Promise<KernelClient> {
  return KernelClient.start(client, { language: "python", argv: ["python3", pythonKernel] });
}

function result(flags: number, cut: number, ...forms: [number, Buffer | string][]): Buffer {
  const parts = forms.flatMap(([form, bytes]) => [
    u8(form),
    u32(Buffer.byteLength(bytes)),
    Buffer.from(bytes),
  ]);
  return Buffer.concat([u8(flags), u8(cut & 255), u8(cut >> 8), ...parts]);
}

test("messages of protocol 3 have the bytes of the specification", () => {
  assert.equal(
    encodeEval(1, "ab", "x", { A: "b" }).toString("hex"),
    "5811000000010000000200616204000000413d620078",
  );
  const made = encodeNewContext(2, "c", { replace: true, cwd: "/d", env: { A: "" } });
  assert.equal(made.toString("hex"), "4e0f0000000200000001010063" + "02002f64413d00");
  assert.equal(encodeWarmed(3, "").toString("hex"), "570400000003000000");
  assert.equal(encodeWarmed(3, "a").toString("hex"), "57050000000300000061");
  assert.equal(encodeRehearse(3, { A: "" }).toString("hex"), "500700000003000000413d00");
  const versions = [
    "python 3.11.2",
    "python 3.11.2; protocol=3",
    "node 18.1.0; openssl=not-reseeded; protocol=3",
  ];
  assert.deepEqual(versions.map(protocolOf), [2, 3, 3]);
});

test("a result has its forms: text, base64 of files, and JSON as text", () => {
  const decoded = decodeDisplay(
    result(1, 0x102, [1, "ü"], [7, Buffer.from([0, 255])], [10, "[1]"], [11, '{"a":[]}']),
  );
  assert.deepEqual(
    [decoded.isMain, decoded.cut, decoded.forms.text, decoded.forms.png, decoded.forms.json?.text],
    [true, ["html", "pdf"], "ü", "AP8=", "[1]"],
  );
  assert.equal(decoded.forms.data?.text, '{"a":[]}');
  assert.deepEqual(decodeDisplay(result(0, 0)).forms, {});
});

for (const [what, bytes] of [
  ["no header", Buffer.from([0, 0])],
  ["an unknown form", result(0, 0, [14, ""])],
  ["a form of number 0", result(0, 0, [0, ""])],
  ["a form twice", result(0, 0, [1, "a"], [1, "a"])],
  ["a form that is cut", result(0, 0, [1, "abc"]).subarray(0, -1)],
  ["a header that is cut", result(0, 0, [1, ""]).subarray(0, -1)],
  ["invalid JSON", result(0, 0, [10, "[1"])],
  ["data that is not an object", result(0, 0, [11, "[]"])],
] as const)
  test(`a result with ${what} is refused`, () => assert.throws(() => decodeDisplay(bytes), KernelGarbage));

test("JSON of a result that is too deep is left out and named; long JSON is checked in turns", async () => {
  const deep = `${"[".repeat(2000)}${"]".repeat(2000)}`;
  const short = decodeDisplay(result(0, 0, [1, "a"], [10, deep]));
  assert.deepEqual([short.cut, short.forms.json], [["json"], undefined]);
  const long = decodeDisplay(result(0, 0, [10, `[${"1,".repeat(100_000)}1]`]));
  assert.equal((await checkDisplay(long)).forms.json?.text.length, 200_003);
  await assert.rejects(
    checkDisplay(decodeDisplay(result(0, 0, [10, `[${"1,".repeat(100_000)}`]))),
    KernelGarbage,
  );
});

test("results arrive between the output before and after them", async () => {
  await using agent = await RealAgent.open();
  await using kernel = await startKernel(agent.client);
  const seen: string[] = [];
  const outcome = await kernel.evaluate({
    code: "for i in range(20):\n    print('before', i)\n    display(i)\n    print('after', i)\n'value'",
    context,
    onOutput: (_stream, bytes) => void seen.push(bytes.toString()),
    onDisplay: (display) => void seen.push(`<${(display as KernelDisplay).forms.text ?? ""}>`),
  });
  const text = seen.join("");
  for (let i = 0; i < 20; i++) assert.ok(text.indexOf(`before ${i}\n`) < text.indexOf(`<${i}>`), text);
  assert.deepEqual([outcome.text, outcome.executionCount, outcome.droppedResults], ["'value'", 1, undefined]);
});

test("a result without room is left out and counted, and the eval succeeds", async () => {
  await using agent = await RealAgent.open();
  await using kernel = await startKernel(agent.client);
  const displays: unknown[] = [];
  const outcome = await kernel.evaluate({
    code:
      "class H:\n def __init__(self, n): self.n = n\n def _repr_html_(self): return 'x' * self.n\n" +
      "display(H(10)); display(H(200_000)); display(H(10))\n1",
    context,
    onDisplay: (display) => displays.push(display),
    hold: (bytes) => {
      if (bytes > 50_000) throw new Error("no room");
    },
  });
  assert.deepEqual([displays.length, outcome.droppedResults, outcome.text], [2, 1, "1"]);
});

test("code that forges more results than an eval may have loses its kernel", async () => {
  await using agent = await RealAgent.open();
  await using kernel = await startKernel(agent.client);
  const code = `
import os, struct, sys
frame = sys._getframe()
while "ident" not in frame.f_locals: frame = frame.f_back
message = struct.pack("<BIIBH", 79, 7, frame.f_locals["ident"], 0, 0)
for _ in range(${kernelBounds.displays + 2}): os.write(sys.modules["forkd_wire"].control, message)
`;
  const refused = { code: "kernel_failed", message: /garbage: too many results/ };
  await assert.rejects(kernel.evaluate({ code, context }), refused);
});

test("an eval that a snapshot carried can be followed: output since, results, value; and again at its end", async () => {
  await using agent = await RealAgent.open();
  const first = await startKernel(agent.client);
  const { wait, open } = gate(agent);
  const code = `print('before')\n${wait}print('after')\ndisplay('shown')\n41 + 1`;
  let started = (): void => undefined;
  const running = new Promise<void>((resolve) => (started = resolve));
  const old = first.evaluate({ code, context: "work", onOutput: () => started() });
  old.catch(() => undefined);
  await running;
  const position = first.position();
  assert.deepEqual(position.running, { id: position.unanswered[0], context: "work" });
  const version = await first.ready;
  await first.leave();
  await using second = KernelClient.attach(agent.client, position, { version });
  const id = position.running?.id ?? 0;
  assert.deepEqual(
    second.evals.map((each) => [each.id, each.context, each.isFinished, each.isFollowed]),
    [[id, "work", false, false]],
  );
  await open();
  const read = async () => {
    const seen: string[] = [];
    const outcome = await second.follow(id, {
      onOutput: (_stream, bytes) => void seen.push(bytes.toString()),
      onDisplay: (display) => void seen.push((display as KernelDisplay).forms.text ?? ""),
    });
    return [...seen, outcome.text];
  };
  assert.deepEqual(await read(), ["after\n", "'shown'", "42"]);
  assert.deepEqual([second.evals[0]?.isFinished, second.evals[0]?.isFollowed], [true, false]);
  // What a reader has had is not given again; the value is.
  assert.deepEqual(await read(), ["42"]);
  await second.evaluate({ code: "1", context });
  assert.deepEqual(second.evals, []);
  await assert.rejects(second.follow(id, {}), { code: "wrong_state" });
});

test("an eval that no call follows keeps its last output, and a reader that leaves does not end it", async () => {
  await using agent = await RealAgent.open();
  const first = await startKernel(agent.client);
  const { wait, open } = gate(agent);
  const old = first.evaluate({
    code: `print('go')\n${wait}print('x' * 3_000_000)\nprint('end')\n1`,
    context,
  });
  old.catch(() => undefined);
  await agent.client.ping();
  const position = first.position();
  await first.leave();
  await using second = KernelClient.attach(agent.client, position, { version: await first.ready });
  const id = position.unanswered[0] ?? 0;
  const gone = new AbortController();
  const left = second.follow(id, {}, gone.signal);
  gone.abort();
  await assert.rejects(left, { code: "cancelled" });
  await open();
  // The next eval waits for the one in progress.
  const next = second.evaluate({ code: "2", context });
  let output = "";
  const outcome = await second.follow(id, {
    onOutput: (_stream, bytes) => void (output += bytes.toString()),
  });
  assert.ok(output.endsWith("end\n"));
  assert.equal(outcome.text, "1");
  assert.equal((await next).text, "2");
});

test("contexts are made with a directory and variables, once, and restarted", async () => {
  await using agent = await RealAgent.open();
  await using kernel = await startKernel(agent.client);
  await kernel.evaluate({ code: "base = 1", context });
  await kernel.warmed();
  assert.equal(await kernel.newContext("a", { cwd: agent.directory, env: { V: "1" } }), agent.directory);
  const facts = "import os\n[base, os.getcwd(), os.environ['V'], os.environ.get('W')]";
  const read = async (env = {}) => (await kernel.evaluate({ code: facts, context: "a", env })).json?.parse();
  assert.deepEqual(await read({ W: "2" }), [1, agent.directory, "1", "2"]);
  assert.deepEqual(await read(), [1, agent.directory, "1", null]);
  await assert.rejects(kernel.newContext("a", {}), { code: "guest_refused", message: /exists/ });
  await kernel.evaluate({ code: "base = 5\nos.chdir('/')", context: "a" });
  assert.equal(await kernel.newContext("a", { replace: true }), agent.directory);
  assert.deepEqual(await read(), [1, agent.directory, "1", null]);
  const listed = (await kernel.contexts()).find(({ name }) => name === "a");
  assert.equal(listed?.cwd, agent.directory);
});

test("what needs protocol 3 is refused for a kernel of an older snapshot", async () => {
  await using agent = await RealAgent.open();
  const first = await startKernel(agent.client);
  const position = first.position();
  await first.leave();
  await using old = KernelClient.attach(agent.client, position, { version: "python 3.11.2" });
  const unsupported = { code: "unsupported", message: /too old/ };
  await assert.rejects(old.evaluate({ code: "1", context, env: { A: "b" } }), unsupported);
  await assert.rejects(old.newContext("a", {}), unsupported);
  assert.equal((await old.evaluate({ code: "1 + 1", context })).text, "2");
});
