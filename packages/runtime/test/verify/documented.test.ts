import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { hazardIds } from "@forkd/contract";

// From dist/test/verify.
const repository = fileURLToPath(new URL("../../../../..", import.meta.url));
const page = join(repository, "docs/guide/fork-safety.md");

type Row = { id: string; code: string; test: string };

async function rows(): Promise<Row[]> {
  const table = /<!-- hazards -->([^]*?)<!-- end -->/.exec(await readFile(page, "utf8"))?.[1] ?? "";
  const lines = table.split("\n").filter((line) => line.startsWith("| `"));
  return lines.map((line) => {
    const cells = line.split(" | ").map((cell) => cell.replace(/^\| | *\|?$/g, "").trim());
    assert.equal(cells.length, 6, line);
    assert.ok(
      cells.every((cell) => cell !== ""),
      line,
    );
    const [id = "", , , code = "", , named = ""] = cells;
    return { id: id.replaceAll("`", ""), code: code.replaceAll("`", ""), test: named };
  });
}

test("the table of hazards has every hazard, in the order of the code", async () => {
  assert.deepEqual(
    (await rows()).map(({ id }) => id),
    hazardIds,
  );
});

test("the table of hazards names code and tests that exist", async () => {
  for (const { id, code, test: named } of await rows()) {
    assert.ok((await readFile(join(repository, code), "utf8")).length > 0, id);
    const [, file = "", title = ""] = /^`([^`]+)`: "(.+)"$/.exec(named) ?? [];
    assert.ok(title !== "", `${id}: ${named}`);
    const text = await readFile(join(repository, file), "utf8");
    assert.ok(text.includes(title), `${file} has no test "${title}" (${id})`);
  }
});
