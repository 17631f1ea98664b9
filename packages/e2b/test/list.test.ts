import assert from "node:assert/strict";
import { test } from "node:test";
import { filterOf, pageOf } from "../src/control/list.ts";
import { rejectsAs } from "./rejects-as.ts";

/** As both official clients encode it, after the query of the request was decoded. */
function encoded(metadata: Record<string, string>): string {
  const pairs = Object.entries(metadata).map(([name, value]): [string, string] => [
    encodeURIComponent(name),
    encodeURIComponent(value),
  ]);
  return new URLSearchParams(pairs).toString();
}

test("filterOf() decodes what clients encode twice", () => {
  const metadata = { user: "a b", "k=&%": "v=&%25", snow: "☃", empty: "" };
  assert.deepEqual(Object.fromEntries(filterOf(encoded(metadata))), metadata);
  assert.deepEqual(filterOf(null).size, 0);
  assert.deepEqual(Object.fromEntries(filterOf("user=abc")), { user: "abc" });
  rejectsAs("invalid_request", /not percent-encoded UTF-8/, () => filterOf("a=%25E0"));
});

test("pageOf() continues after the last entry of a page, also if that no longer exists", () => {
  const query = (fields: Record<string, string>) => new URLSearchParams(fields);
  const keyOf = (each: string) => each;
  const first = pageOf(["a", "b", "c"], query({ limit: "2" }), { keyOf });
  assert.deepEqual(first.items, ["a", "b"]);
  const nextToken = first.next ?? assert.fail("no token");
  const second = pageOf(["a", "c", "d"], query({ nextToken }), { keyOf });
  assert.deepEqual(second, { items: ["c", "d"], next: undefined });
  const down = pageOf(["c", "a"], query({ nextToken }), { keyOf, descending: true });
  assert.deepEqual(down.items, ["a"]);
  for (const limit of ["0", "-1", "1.5", "x", "1001"])
    rejectsAs("invalid_request", /limit/, () => pageOf([], query({ limit }), { keyOf }));
});
