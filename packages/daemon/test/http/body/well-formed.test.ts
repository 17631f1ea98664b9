import assert from "node:assert/strict";
import { test } from "node:test";
import { post, sandboxId, send, startServer } from "../../support.ts";

const execPath = `/v1/sandboxes/${sandboxId}/exec`;
const result = {
  exec_id: 1,
  stdout: "",
  stderr: "",
  exit_code: 0,
  timed_out: false,
  truncated: false,
  duration_ms: 0,
};

for (const [what, path, body, field] of [
  ["a label", "/v1/sandboxes", '{"snapshot_tag":"t","labels":{"a":"\\ud800"}}', "labels.a"],
  ["a variable", execPath, '{"args":["x"],"env":{"A":"x\\uDC00y"}}', "env.A"],
  ["an argument", execPath, '{"args":["\\uD83D"]}', "args.0"],
  ["a name", execPath, '{"args":["x"],"env":{"\\udfff":"1"}}', "env.�"],
] as const) {
  test(`half of a surrogate pair in ${what} is refused`, async () => {
    await using server = await startServer({ exec: () => result });
    const { status, json } = await send(server.socket, path, { method: "POST", body });
    assert.deepEqual([status, json.code, json.details.issues[0].path], [400, "invalid_request", field]);
    assert.match(json.error, /Unicode text/);
  });
}

for (const [what, path, body] of [
  ["env", execPath, '{"args":["x"],"env":{"__proto__":"x"}}'],
  ["env, escaped", execPath, '{"args":["x"],"env":{"\\u005f_proto__":"x"}}'],
  ["labels, with an object", "/v1/sandboxes", '{"snapshot_tag":"t","labels":{"__proto__":{"a":"b"}}}'],
  ["the body", execPath, '{"args":["x"],"__proto__":{"stdin":"y"}}'],
] as const) {
  test(`the name __proto__ in ${what} is refused`, async () => {
    await using server = await startServer({ exec: () => result });
    const { status, json } = await send(server.socket, path, { method: "POST", body });
    assert.deepEqual([status, json.code], [400, "invalid_request"]);
    assert.match(json.error, /__proto__: is not an allowed name/);
  });
}

test("the name __proto__ in a query is refused", async () => {
  await using server = await startServer({ listSandboxes: () => [] });
  const { status, json } = await send(server.socket, "/v1/sandboxes?__proto__=x");
  assert.deepEqual([status, json.code], [400, "invalid_request"]);
  assert.match(json.error, /__proto__: is not an allowed name/);
});

test("escaped pairs and texts that mention __proto__ are accepted", async () => {
  const seen: unknown[] = [];
  await using server = await startServer({ exec: ({ args }) => (seen.push(args), result) });
  const body = '{"args":["\\ud83d\\ude00","__proto__","\\u0041"]}';
  assert.equal((await send(server.socket, execPath, { method: "POST", body })).status, 200);
  assert.equal((await post(server.socket, execPath, { args: ["😀"] })).status, 200);
  assert.deepEqual(seen, [["😀", "__proto__", "A"], ["😀"]]);
});
