import assert from "node:assert/strict";
import { test } from "node:test";
import { similarIn, similarNames } from "../src/wire/similar.ts";

test("similarNames() finds names with few mistakes, the closest first", () => {
  const tags = ["ds", "python-numpy", "nodejs", "step-1", "step-2", "step-30", "t"];
  const meant = (given: string) => similarNames(given, tags).similar;
  assert.deepEqual(meant("dss"), ["ds"]);
  assert.deepEqual(meant("pyhton"), ["python-numpy"]);
  assert.deepEqual(meant("python"), ["python-numpy"]);
  assert.deepEqual(meant("pyhton-numpy"), ["python-numpy"]);
  assert.deepEqual(meant("NodeJS"), ["nodejs"]);
  assert.deepEqual(meant("node"), ["nodejs"]);
  assert.deepEqual(meant("step-3"), ["step-30", "step-1", "step-2"]);
  for (const far of ["x", "ruby", "postgres", "", "a".repeat(200)]) assert.equal(meant(far), undefined, far);
});

test("similarNames() looks at a bounded number of names", () => {
  function* endless(): Generator<string> {
    for (;;) yield "python-numpy";
  }
  assert.equal(similarNames("pyhton", endless()).similar?.length, 3);
});

test("similarIn() reads only texts", () => {
  assert.deepEqual(similarIn({ similar: ["a", 1, "b"] }), ["a", "b"]);
  for (const details of [{}, { similar: "a" }, { similar: null }]) assert.deepEqual(similarIn(details), []);
});
