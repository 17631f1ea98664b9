import assert from "node:assert/strict";
import http, { type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after, before, test } from "node:test";
import { until } from "@forkd/test-support";
import { asciiJson } from "../../src/interpreter/ascii-json.ts";
import { LineWriter } from "../../src/interpreter/lines.ts";

let write: (outgoing: ServerResponse) => Promise<void>;
const server = http.createServer((_incoming, outgoing) => void write(outgoing).then(() => outgoing.end()));
before(() => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve)));
after(() => server.close());

async function linesOf(work: (lines: LineWriter) => Promise<void>, keepaliveMs = 60_000): Promise<object[]> {
  write = async (outgoing) => {
    using lines = new LineWriter(outgoing, keepaliveMs);
    await work(lines);
    await lines.finish();
  };
  const answer = await fetch(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const text = await answer.text();
  // eslint-disable-next-line no-control-regex
  assert.match(text, /^[\x20-\x7e\n]*$/, "only ASCII");
  return text
    .split("\n")
    .slice(0, -1)
    .map((line) => JSON.parse(line) as object);
}

test("asciiJson() escapes everything beyond ASCII and loses nothing", () => {
  const value = { text: "ü \u2028\u2029\u0085 \u{1f600} \ud800 \u007f" };
  const json = asciiJson(value);
  assert.match(json, /^[\x20-\x7e]*$/);
  assert.deepEqual(JSON.parse(json), value);
});

test("output of one moment is one line; a character in two pieces is one character", async () => {
  const euro = Buffer.from("€");
  const lines = await linesOf(async (out) => {
    await out.output("stdout", Buffer.from("a\n"));
    await out.output("stdout", Buffer.concat([Buffer.from("b"), euro.subarray(0, 1)]));
    await out.output("stdout", euro.subarray(1));
    await out.output("stderr", Buffer.from([0xff]));
    await out.line({ type: "result" });
  });
  assert.deepEqual(
    lines.map((line) => ({ ...line, timestamp: undefined })),
    [
      { type: "stdout", text: "a\nb€", timestamp: undefined },
      { type: "stderr", text: "\ufffd", timestamp: undefined },
      { type: "result", timestamp: undefined },
    ],
  );
  assert.equal(typeof (lines[0] as { timestamp: unknown }).timestamp, "number");
});

test("an incomplete character at the end is not lost", async () => {
  const lines = await linesOf((out) => out.output("stdout", Buffer.from("€").subarray(0, 2)));
  assert.equal((lines[0] as { text: string }).text, "\ufffd");
});

test("a silent execution sends keepalives, never blank lines", async () => {
  let count = 0;
  const lines = await linesOf(async () => {
    await until("some time has passed", () => ++count > 10);
  }, 5);
  assert.ok(lines.length > 0);
  for (const line of lines) assert.deepEqual(line, { type: "keepalive" });
});
