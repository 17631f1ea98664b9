import assert from "node:assert/strict";
import { test } from "node:test";
import { ObjectCollector } from "../../src/audit/objects.ts";

function found(path: string, input: Record<string, unknown>) {
  const collector = new ObjectCollector(path);
  collector.input(input);
  return collector.all();
}

test("the audit log names where a snapshot is sent to and whose keys are trusted", () => {
  assert.deepEqual(found("/v1/hub/push", { tag: "py", reference: "ghcr.io/team/py:v1" }), {
    snapshots: ["py"],
    references: ["ghcr.io/team/py:v1"],
  });
  assert.deepEqual(found("/v1/hub/trust", { repository: "ghcr.io/team/*" }), {
    references: ["ghcr.io/team/*"],
  });
  assert.deepEqual(found("/v1/hub/search", { registry: "ghcr.io" }), { references: ["ghcr.io"] });
  assert.equal(found("/v1/other", { reference: "ghcr.io/x" }), undefined);
});

test("secrets in URLs are not part of it", () => {
  const cases: [string, string][] = [
    ["https://bucket.example.com/a.tar?X-Amz-Signature=s3cret", "https://bucket.example.com/a.tar"],
    ["https://bucket.example.com/a.tar#s3cret", "https://bucket.example.com/a.tar"],
    ["HTTPS://me:s3cret@bucket.example.com/a@b", "HTTPS://bucket.example.com/a@b"],
    [`ghcr.io/${"a".repeat(2000)}`, `ghcr.io/${"a".repeat(1016)}`],
  ];
  for (const [reference, expected] of cases)
    assert.deepEqual(found("/v1/hub/pull", { reference }), { references: [expected] });
});
