import assert from "node:assert/strict";
import { test } from "node:test";
import { JsonText } from "@forkd/base";
import type { FileEntry } from "@forkd/contract";
import { post, sandboxId, send, startServer } from "../../support.ts";

const path = `/v1/sandboxes/${sandboxId}`;
const evaluated = {
  result: "[1]",
  stdout: "",
  stderr: "",
  error: null,
  traceback: null,
  error_info: null,
  results: [],
  exit_code: 0,
  interrupted: false,
  timed_out: false,
  truncated: false,
  restarted: false,
  language: "python" as const,
  context: "default",
  duration_ms: 1,
};

/** A text that fails the test if something parses it. */
class Unparsed extends JsonText {
  override parse(): unknown {
    throw new Error("The daemon parsed the JSON of a guest");
  }
}

test("the JSON of an eval is copied into the answer, unparsed", async () => {
  const result_json = new Unparsed("[1,   {}]");
  await using server = await startServer({ eval: () => ({ ...evaluated, result_json }) });
  const { status, text, json } = await post(server.socket, `${path}/eval`, { code: "x" });
  assert.equal(status, 200);
  assert.ok(text.includes('"result_json":[1,   {}]'), text);
  assert.deepEqual(json.result_json, [1, {}]);
});

test("the JSON of a streamed eval is copied into its line, unparsed", async () => {
  const result = { ...evaluated, result_json: new Unparsed('"a"') };
  async function* lines() {
    yield { type: "result" as const, result };
  }
  await using server = await startServer({ eval: () => lines() });
  const { text } = await post(server.socket, `${path}/eval`, { code: "x", stream: true });
  assert.equal(JSON.parse(text).result.result_json, "a");
});

test("a long list is encoded in several turns of the event loop", async () => {
  const entries = Array.from({ length: 10_500 }, (_, index): FileEntry => {
    const name = `é${index}`;
    return { name, path: `/${name}`, type: "file", size: 0, mode: "0644", mtime_unix: 0, uid: 0, gid: 0 };
  });
  let turns = 0;
  let isDone = false;
  const count = () => {
    turns++;
    if (!isDone) setImmediate(count);
  };
  await using server = await startServer({
    listFiles: () => {
      turns = 0;
      setImmediate(count);
      return entries;
    },
  });
  const { status, headers, text, json } = await send(server.socket, `${path}/files/list?path=/`);
  isDone = true;
  assert.equal(status, 200);
  assert.equal(Number(headers["content-length"]), Buffer.byteLength(text));
  assert.deepEqual(json, entries);
  assert.ok(turns >= 10, `${turns} turns`);
});

for (const { size, chars, encodings } of [
  { size: "small", chars: 400, encodings: 1 },
  { size: "large", chars: 4000, encodings: 2 },
]) {
  test(`a ${size} list of 500 sandboxes is encoded ${encodings === 1 ? "once" : "twice"}`, async () => {
    let encoded = 0;
    const labels = { note: "é".repeat(chars / 2) };
    const entries = Array.from({ length: 500 }, (_, index) => ({
      toJSON: () => {
        encoded++;
        return { id: `sb-${index}`, labels };
      },
    }));
    await using server = await startServer({ listSandboxes: () => entries as never });
    const { status, headers, text, json } = await send(server.socket, "/v1/sandboxes");
    assert.equal(status, 200);
    assert.equal(encoded, encodings * entries.length);
    assert.equal(Number(headers["content-length"]), Buffer.byteLength(text));
    assert.deepEqual(
      json,
      entries.map((_, index) => ({ id: `sb-${index}`, labels })),
    );
  });
}

test("memory that an answer uses is released when it is encoded, and when its handler fails", async () => {
  const released: string[] = [];
  const held = (name: string): Disposable => ({ [Symbol.dispose]: () => void released.push(name) });
  await using server = await startServer({
    listContexts: (_input, { untilAnswered }) => {
      untilAnswered?.(held("answered"));
      return [];
    },
    listExecs: (_input, { untilAnswered }) => {
      untilAnswered?.(held("failed"));
      throw new Error("no");
    },
  });
  assert.equal((await send(server.socket, `${path}/contexts`)).status, 200);
  assert.equal((await send(server.socket, `${path}/execs`)).status, 500);
  assert.deepEqual(released, ["answered", "failed"]);
});
