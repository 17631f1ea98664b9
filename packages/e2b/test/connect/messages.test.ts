import assert from "node:assert/strict";
import { test } from "node:test";
import { rejectsWith } from "@forkd/test-support";
import { keepaliveMs, parseMessage, timeoutMs } from "../../src/connect/messages.ts";
import { inputSchema, startSchema, updateSchema } from "../../src/envd/requests.ts";

const parse = (message: object) => parseMessage(startSchema, Buffer.from(JSON.stringify(message)));
const process = { cmd: "/bin/bash" };

test("parseMessage() fills in what clients leave out, and takes null for absent", () => {
  assert.deepEqual(parse({ process: { ...process, cwd: null, envs: null }, pty: null, unknown: 1 }), {
    process: { cmd: "/bin/bash", args: [], envs: {} },
    stdin: true,
  });
  assert.equal(parse({ process, stdin: false }).stdin, false);
});

test("parseMessage() names the field that is wrong", async () => {
  const wrong: [object, RegExp][] = [
    [{}, /"process"/],
    [{ process: { cmd: "" } }, /"process.cmd"/],
    [{ process: { cmd: "a\0b" } }, /"process.cmd": must not contain NUL/],
    [{ process: { cmd: "a", args: [1] } }, /"process.args.0"/],
    [{ process: { cmd: "a", envs: { "A=B": "c" } } }, /"process.envs.A=B"/],
    [{ process, pty: { size: { rows: 0, cols: 80 } } }, /"pty.size.rows"/],
  ];
  for (const [message, text] of wrong)
    await rejectsWith(
      Promise.resolve().then(() => parse(message)),
      "invalid_request",
      text,
    );
  for (const body of ["{", "[]", "1", "\xff"])
    await rejectsWith(
      Promise.resolve().then(() => parseMessage(startSchema, Buffer.from(body, "latin1"))),
      "invalid_request",
    );
});

test("parseMessage() refuses many small values before it makes them", async () => {
  const refused = (body: string, why: RegExp) =>
    rejectsWith(
      Promise.resolve().then(() => parseMessage(startSchema, Buffer.from(body))),
      "invalid_request",
      why,
    );
  await refused(`{"x":[${"0,".repeat(20_000)}0]}`, /more than 20000 values/);
  await refused(`{"x":${"[".repeat(64)}${"]".repeat(64)}}`, /more than 64 objects/);
  await refused("[".repeat(1_000_000), /more than 64 objects/);
  const args = [`${"[,{".repeat(30_000)}"`, "\\", '\\"[', ...Array.from({ length: 4000 }, () => '"')];
  assert.deepEqual(parse({ process: { ...process, args } }).process.args, args);
});

test("bytes are base64, numbers may be strings", async () => {
  const read = (message: object) => parseMessage(inputSchema, Buffer.from(JSON.stringify(message)));
  const { input, process: selected } = read({ process: { pid: "12" }, input: { stdin: "aGk=" } });
  assert.deepEqual([selected.pid, input.stdin?.toString(), input.pty], [12, "hi", undefined]);
  await rejectsWith(
    Promise.resolve().then(() => read({ process: { pid: 1 }, input: { stdin: "*" } })),
    "invalid_request",
    /base64/,
  );
  const size = { rows: 30, cols: 100 };
  const update = parseMessage(
    updateSchema,
    Buffer.from(JSON.stringify({ process: { pid: 1 }, pty: { size } })),
  );
  assert.deepEqual(update.pty?.size, size);
});

test("timeoutMs() reads the deadline of a call", async () => {
  assert.equal(timeoutMs(undefined), undefined);
  assert.equal(timeoutMs("0"), undefined);
  assert.equal(timeoutMs("60000"), 60_000);
  for (const header of ["", "-1", "1.5", "12345678901", "soon"])
    await rejectsWith(
      Promise.resolve().then(() => timeoutMs(header)),
      "invalid_request",
      /Connect-Timeout-Ms/,
    );
});

test("keepaliveMs() uses the interval of the client", () => {
  assert.equal(keepaliveMs("50"), 50_000);
  for (const header of [undefined, "0", "x"]) assert.equal(keepaliveMs(header), 90_000);
});
