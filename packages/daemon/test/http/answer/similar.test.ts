import assert from "node:assert/strict";
import { test } from "node:test";
import { AppError } from "@forkd/contract";
import { Page } from "../../../src/http/answer/page.ts";
import { sandboxId, send, startServer } from "../../support.ts";

const missing = (code: "snapshot_not_found" | "workspace_not_found" | "sandbox_not_found", details: object) =>
  new AppError(code, "Cannot find it", { details: { ...details }, remedy: { action: "list_snapshots" } });

test("an error for a missing name has similar names in its details", async () => {
  await using server = await startServer({
    listSnapshots: () => new Page([{ tag: "python-numpy" }, { tag: "other" }] as never[], undefined),
    listSandboxes: () => [{ id: sandboxId.replace("67", "76") }] as never,
    listWorkspaces: () => {
      throw new Error("broken");
    },
    snapshotInfo: ({ tag }) => {
      throw missing("snapshot_not_found", { tag });
    },
    getSandbox: ({ id }) => {
      throw missing("sandbox_not_found", { id });
    },
    getWorkspace: ({ name }) => {
      throw missing("workspace_not_found", { name });
    },
  });
  const { status, json } = await send(server.socket, "/v1/snapshots/pyhton/info");
  assert.equal(status, 404);
  assert.deepEqual(json.details, { tag: "pyhton", similar: ["python-numpy"] });
  assert.equal(json.remedy.action, "list_snapshots");
  assert.deepEqual((await send(server.socket, "/v1/snapshots/zzz/info")).json.details, { tag: "zzz" });
  const found = await send(server.socket, `/v1/sandboxes/${sandboxId}`);
  assert.deepEqual(found.json.details["similar"], [sandboxId.replace("67", "76")]);
  // A list that fails does not replace the error.
  const other = await send(server.socket, "/v1/workspaces/dev");
  assert.deepEqual([other.status, other.json.details], [404, { name: "dev" }]);
});

test("a caller learns no names of a list that its scope does not cover", async () => {
  await using server = await startServer({
    listKeys: () => [{ name: "deploy" }] as never,
    // A route that a key with the scope "read" may call, with the error of a list that it may not read.
    snapshotInfo: () => {
      throw new AppError("key_not_found", "No key has that name", { details: { name: "deplyo" } });
    },
  });
  const { key } = await server.keys.create({ name: "reader", scope: "read" });
  const asked = (headers: Record<string, string>, where: string) =>
    send(where, "/v1/snapshots/x/info", { headers });
  const refused = await asked({ authorization: `Bearer ${key}` }, server.url);
  assert.deepEqual([refused.json.code, refused.json.details], ["key_not_found", { name: "deplyo" }]);
  const allowed = await asked({}, server.socket);
  assert.deepEqual(allowed.json.details, { name: "deplyo", similar: ["deploy"] });
});
