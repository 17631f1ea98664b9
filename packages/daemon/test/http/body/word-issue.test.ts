import assert from "node:assert/strict";
import { test } from "node:test";
import { post, sandboxId, send, startServer } from "../../support.ts";

test("an invalid request is refused in plain words", async () => {
  await using server = await startServer({});
  const refused = async (path: string, body: unknown) => {
    const answer = await post(server.socket, path, body);
    assert.equal(answer.status, 400, path);
    return answer.json.error as string;
  };
  const fork = (body: object) => refused("/v1/sandboxes", { snapshot_tag: "py", ...body });
  assert.equal(await refused("/v1/sandboxes", {}), "Invalid request: snapshot_tag: is required");
  assert.equal(await fork({ n: "3" }), "Invalid request: n: must be a number");
  assert.equal(await fork({ n: 1.5 }), "Invalid request: n: must be a whole number");
  assert.equal(await fork({ n: 0 }), "Invalid request: n: must be 1 to 1000");
  assert.equal(
    await fork({ env: { "A=B": "1" } }),
    "Invalid request: env.A=B: is not a valid name: use letters, digits and underscores, and do not begin with a digit",
  );
  assert.match(
    await fork({ labels: { "a b": "1" } }),
    /^Invalid request: labels\.a b: is not a valid name: use 1 to 63 letters, digits, dots, /,
  );
  assert.equal(await fork({ on_timeout: "explode" }), "Invalid request: on_timeout: must be kill or pause");
  const exec = await refused(`/v1/sandboxes/${sandboxId}/exec`, { args: [] });
  assert.equal(exec, "Invalid request: args: must name a program");
  const mkdir = await refused(`/v1/sandboxes/${sandboxId}/files/mkdir`, { path: "" });
  assert.match(mkdir, /^Invalid request: path: must not be empty/);
  const attach = await send(server.socket, `/v1/sandboxes/${sandboxId}/execs/x/stream`);
  assert.equal(attach.json.error, "Invalid request: exec_id: must be a number");
  const query = await post(server.socket, "/v1/sandboxes?n=3", { snapshot_tag: "py" });
  assert.equal(query.json.error, "Invalid request: n: belongs in the JSON body, not the query");
  const stat = await send(server.socket, `/v1/sandboxes/${sandboxId}/files/stat?path=/x&follow=yes`);
  assert.match(stat.json.error as string, /^Invalid request: follow: must be true or false/);
});
