import assert from "node:assert/strict";
import { test } from "node:test";
import { AppError, parseRemedy, remedyActions, type Remedy } from "@forkd/contract";
import { ForkError, remedyText } from "../src/index.ts";
import { fromAnswer } from "../src/errors.ts";

const values = {
  ...{ text: "Do it.", tag: "py", id: "sb-1", ids: ["sb-1", "sb-2"], name: "dev", mode: "full" },
  ...{ registry: "hub.example.com", repository: "hub.example.com/py", reference: "hub.example.com/py:1" },
  ...{ setting: "data_dir", to: "/b", from: "/a", packages: ["tar"], url: "https://h", port: "80" },
};

test("remedyText() is one sentence for every action, without commands or routes", () => {
  const bare: Remedy[] = [{ action: "fork_another" }, { action: "free_disk" }, { action: "show_logs" }];
  bare.push({ action: "retry_later" }, { action: "kill_some" }, { action: "install", packages: ["tar"] });
  const all = remedyActions.map((action) => {
    const remedy = parseRemedy({ ...values, action });
    assert.ok(remedy?.action === action, action);
    return remedy;
  });
  for (const remedy of [...all, ...bare]) {
    const text = remedyText(new AppError("internal", "No", { remedy })) ?? "";
    assert.match(text, /^[A-Z].*[a-zA-Z0-9)`]\.$/, text);
    assert.doesNotMatch(text, /\/v1\/|undefined|forkd [a-z]|--[a-z]/, text);
  }
  assert.equal(remedyText(new AppError("internal", "No")), undefined);
});

test("errors of the daemon keep their remedy", () => {
  const remedy = { action: "list_snapshots", text: "GET /v1/snapshots lists the snapshots." };
  const body = { error: "No", code: "snapshot_not_found", details: {}, remedy };
  const text = "Call `forkd.snapshots.list()` to list snapshots.";
  assert.equal(remedyText(fromAnswer(404, JSON.stringify(body))), text);
  const child = new ForkError({ ...body, index: 0 });
  assert.deepEqual([child.name, remedyText(child)], ["ForkError", text]);
});

test("errors of a daemon without remedies, or with others, are understood", () => {
  const body = { error: "No", code: "snapshot_not_found", details: {} };
  assert.equal(fromAnswer(404, JSON.stringify(body)).remedy, undefined);
  const later = { ...body, remedy: { action: "from_the_future", text: "Do it." } };
  assert.deepEqual(fromAnswer(404, JSON.stringify(later)).remedy, { action: "advice", text: "Do it." });
});
