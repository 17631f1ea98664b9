import assert from "node:assert/strict";
import { test } from "node:test";
import { parseRemedy, remedyActions, type Remedy } from "@forkd/contract";
import { findVerb } from "../../src/verbs.ts";
import { checkRemedy, cliRemedy, remedyOf } from "../../src/terminal/remedies.ts";

const values = {
  ...{ text: "Do it.", tag: "py", id: "sb-1", ids: ["sb-1", "sb-2"], name: "dev", mode: "full" },
  ...{ registry: "hub.example.com", repository: "hub.example.com/py", reference: "hub.example.com/py:1" },
  ...{ setting: "data_dir", to: "/b", from: "/a", packages: ["tar"], url: "https://h", port: "80" },
};

test("cliRemedy() is one sentence for every action, about verbs that exist", () => {
  const bare: Remedy[] = [{ action: "fork_another" }, { action: "free_disk" }, { action: "show_logs" }];
  bare.push({ action: "retry_later" }, { action: "kill_some" }, { action: "install", packages: ["tar"] });
  const all = remedyActions.map((action) => {
    const remedy = parseRemedy({ ...values, action });
    assert.ok(remedy?.action === action, action);
    return remedy;
  });
  for (const remedy of [...all, ...bare]) {
    const text = cliRemedy(remedy);
    assert.match(text, /^[A-Z].*[a-zA-Z`]\.$/, text);
    assert.doesNotMatch(text, /\/v1\/|undefined|forkd\./, text);
    for (const [, verb] of text.matchAll(/`forkd ([a-z-]+)/g)) assert.ok(findVerb(verb), text);
  }
});

test("remedyOf() has the remedy of the error, or else the one of its code", () => {
  const body = { error: "No", code: "snapshot_not_found", details: {} };
  assert.equal(remedyOf(body), "Run `forkd images` to list snapshots.");
  const remedy = { action: "resume", id: "sb-1", text: "POST /v1/sandboxes/sb-1/resume resumes it." };
  assert.equal(remedyOf({ ...body, remedy }), "Run `forkd resume sb-1` to resume it.");
  const later = { action: "from_the_future", text: "Do it." };
  assert.equal(remedyOf({ ...body, remedy: later }), "Do it.");
  assert.equal(remedyOf({ ...body, code: "guest_refused" }), undefined);
  assert.equal(remedyOf({ ...body, code: "toString" }), undefined);
});

test("checkRemedy() words the data of a check, and keeps the text of one without", () => {
  const check = { name: "leftovers", outcome: "warn", detail: "1" } as const;
  const remedy = "POST /v1/cleanup removes it.";
  assert.equal(
    checkRemedy({ ...check, remedy, remedy_data: { action: "clean_up" } }),
    "Run `forkd cleanup` to remove it.",
  );
  assert.equal(checkRemedy({ ...check, remedy, remedy_data: { action: "from_the_future" } }), remedy);
  assert.equal(checkRemedy({ ...check, remedy: "Do it." }), "Do it.");
  assert.equal(checkRemedy(check), undefined);
});
