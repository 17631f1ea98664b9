import assert from "node:assert/strict";
import { test } from "node:test";
import { cutText, wrapText } from "../../src/terminal/fit-table.ts";
import { shortId, shortIds } from "../../src/terminal/short-id.ts";
import { renderTable, type Column } from "../../src/terminal/table.ts";

type Row = { name: string; size: string; note: string };
const columns: readonly Column<Row>[] = [
  { title: "NAME", value: ({ name }) => name },
  { title: "EMPTY", value: () => "-" },
  { title: "SIZE", value: ({ size }) => size, align: "right", drop: 1 },
  { title: "NOTE", value: ({ note }) => note },
];
const row: Row = { name: "a-long-name", size: "12 MiB", note: "a note that is long" };

test("renderTable() leaves out empty columns, then columns by rank, then cuts the last column", () => {
  const at = (width: number) => renderTable(columns, [row], { width });
  assert.equal(at(80), renderTable(columns, [row]));
  assert.equal(at(40), "NAME           SIZE  NOTE\na-long-name  12 MiB  a note that is long\n");
  assert.equal(at(39), "NAME         NOTE\na-long-name  a note that is long\n");
  assert.equal(at(30), "NAME         NOTE\na-long-name  a note that is l…\n");
  assert.equal(at(18), "NAME      NOTE\na-long-…  a note …\n");
});

test("renderTable() puts long text below its row if the table is too wide", () => {
  const withText = columns.map((column) =>
    column.title === "NOTE" ? { ...column, below: true as const } : column,
  );
  const note = "one two three four five six seven";
  assert.equal(
    renderTable(
      withText,
      [
        { ...row, note },
        { ...row, note: "-" },
      ],
      { width: 30 },
    ),
    "NAME           SIZE\na-long-name  12 MiB\n    one two three four five\n    six seven\na-long-name  12 MiB\n",
  );
});

test("renderTable() is never wider than asked where cells can be cut", () => {
  for (let width = 18; width < 60; width += 1)
    for (const line of renderTable(columns, [row], { width }).split("\n"))
      assert.ok(line.length <= width, `${width}: ${line}`);
});

test("renderTable() shortens ids to unique prefixes only if asked", () => {
  const ids = ["sb-0123456789abcdef01234567", "sb-0123456700000000ffffffff", "sb-ffff00000000000000000000"];
  const idColumns: readonly Column<string>[] = [{ title: "ID", value: (id) => id, id: true }];
  assert.equal(renderTable(idColumns, ids), `ID\n${ids.join("\n")}\n`);
  assert.equal(
    renderTable(idColumns, ids, { shortIds: true }),
    "ID\nsb-012345678\nsb-012345670\nsb-ffff00000\n",
  );
  assert.deepEqual([...shortIds([ids[2] ?? ""]).values()], ["sb-ffff0000"]);
  assert.equal(shortId(ids[0] ?? ""), "sb-01234567");
  assert.deepEqual(shortIds([]), new Map());
});

test("cutText() and wrapText() count characters, not halves of them", () => {
  assert.equal(cutText("😀😀😀", 3), "😀😀😀");
  assert.equal(cutText("😀😀😀", 2), "😀…");
  assert.deepEqual(wrapText("aa bbbbb c", 4), ["aa", "bbbb", "b c"]);
  assert.deepEqual(wrapText("", 4), []);
});
