import assert from "node:assert/strict";
import { test } from "node:test";
import {
  buildEventSchema,
  evalEventSchema,
  execEventSchema,
  AppError,
  errorBodySchema,
  fromErrorBody,
  httpRemedy,
  parseRemedy,
  routes,
  toErrorBody,
} from "../src/index.ts";
import { remedyActions, type Remedy, type RemedyAction } from "../src/wire/remedies.ts";

const values = {
  ...{ text: "Do it.", tag: "py", id: "sb-1", ids: ["sb-1", "sb-2"], name: "dev", mode: "full" },
  ...{ registry: "hub.example.com", repository: "hub.example.com/py", reference: "hub.example.com/py:1" },
  ...{ setting: "data_dir", to: "/b", from: "/a", packages: ["tar"], url: "https://h", port: "80" },
};

function sampleRemedy(action: RemedyAction): Remedy {
  const remedy = parseRemedy({ ...values, action });
  assert.ok(remedy?.action === action, action);
  return remedy;
}

test("a remedy crosses the wire as data, with words for HTTP beside it", () => {
  for (const action of remedyActions) {
    const remedy = sampleRemedy(action);
    const error = new AppError("internal", "No", { remedy });
    const body = errorBodySchema.parse(JSON.parse(JSON.stringify(toErrorBody(error))));
    assert.deepEqual(body.remedy, { ...remedy, text: httpRemedy(remedy) });
    for (const schema of [buildEventSchema, evalEventSchema, execEventSchema])
      assert.deepEqual(schema.parse({ type: "error", ...body }), { type: "error", ...body });
    assert.deepEqual(fromErrorBody(body).remedy, remedy);
    assert.equal(fromErrorBody(body).message, "No");
  }
});

test("an error without a remedy has none on the wire", () => {
  const error = new AppError("internal", "No");
  assert.equal("remedy" in error, false);
  assert.equal("remedy" in toErrorBody(error), false);
  assert.equal(fromErrorBody({ error: "No", code: "internal", details: {} }).remedy, undefined);
});

test("parseRemedy() takes an unknown action, or one with other parameters, as advice", () => {
  const advice = { action: "advice", text: "Do it." };
  for (const action of ["from_the_future", "toString", "__proto__", "resume"]) {
    assert.deepEqual(parseRemedy({ action, text: "Do it." }), advice, action);
    assert.equal(parseRemedy({ action }), undefined, action);
  }
  assert.deepEqual(parseRemedy({ action: "install", packages: [1], text: "Do it." }), advice);
  assert.deepEqual(parseRemedy({ action: "resume", id: "sb-1", more: 1 }), { action: "resume", id: "sb-1" });
  for (const value of [undefined, null, "text", 1, {}, []]) assert.equal(parseRemedy(value), undefined);
});

test("httpRemedy() is one sentence for every action, about routes that exist", () => {
  const calls = Object.values(routes).map(
    ({ method, path }) => new RegExp(`^${method.toUpperCase()} ${path.replaceAll(/\{\w+\}/g, "[^/]+")}$`),
  );
  const bare: Remedy[] = [{ action: "retry_later" }, { action: "kill_some" }, { action: "pause_some" }];
  bare.push({ action: "free_disk" }, { action: "install", packages: ["tar"] }, { action: "show_logs" });
  for (const remedy of [...remedyActions.map((action) => sampleRemedy(action)), ...bare]) {
    const text = httpRemedy(remedy);
    assert.match(text, /^[A-Z].*[a-zA-Z0-9)`"}]\.$/, text);
    assert.doesNotMatch(text, /forkd [a-z]|--[a-z]|FORKD_|undefined/, text);
    for (const [, call] of text.matchAll(/\b((?:GET|POST|DELETE) \/[\w/{}-]*)/g)) {
      assert.ok(
        calls.some((each) => each.test(call ?? "")),
        text,
      );
    }
  }
});
