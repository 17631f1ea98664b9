import assert from "node:assert/strict";
import { test } from "node:test";
import {
  clean,
  cleanJson,
  cleanLines,
  formatAge,
  formatBytes,
  formatSeconds,
  renderTable,
} from "../../src/terminal/table.ts";

test("renderTable() aligns columns and writes no blanks at line ends", () => {
  const columns = [
    { title: "NAME", value: (row: { name: string; size: number }) => row.name },
    {
      title: "SIZE",
      value: (row: { name: string; size: number }) => String(row.size),
      align: "right" as const,
    },
    { title: "END", value: () => "" },
  ];
  const text = renderTable(columns, [
    { name: "a", size: 5 },
    { name: "longer", size: 12_345 },
  ]);
  assert.equal(text, "NAME     SIZE  END\na           5\nlonger  12345\n");
});

test("renderTable() replaces control characters", () => {
  assert.equal(
    renderTable([{ title: "T", value: (row: string) => row }], ["a\u001b[31m\nb"]),
    "T\na [31m b\n",
  );
});

test("clean() marks characters that change how a text is shown", () => {
  // direction, zero width, byte order mark, tag, line separator, half of a surrogate pair
  for (const character of ["\u202e", "\u2066", "\u200b", "\ufeff", "\u{e0041}", "\u2028", "\ud800"]) {
    assert.equal(clean(`a${character}b`), "a\ufffdb", JSON.stringify(character));
    assert.equal(cleanLines(`a${character}\nb`), "a\ufffd\nb", JSON.stringify(character));
  }
  assert.equal(clean("é 😀 中 \u05d0"), "é 😀 中 \u05d0");
});

test("cleanJson() writes the same value without characters that control a terminal", () => {
  const value = { "a\u202e": "\u009b2J\u007f\u{e0041}\u2028 é😀\n" };
  const json = cleanJson(JSON.stringify(value, null, 2));
  assert.deepEqual(JSON.parse(json), value);
  assert.doesNotMatch(json, /[^\P{Cc}\n]|\p{Cf}|\u2028/u);
  assert.match(json, /é😀/);
});

test("renderTable() shows the titles of an empty list", () => {
  assert.equal(renderTable([{ title: "ID", value: () => "" }], []), "ID\n");
});

test("formatBytes(), formatSeconds() and formatAge() use short forms", () => {
  assert.equal(formatBytes(0), "0 B");
  assert.equal(formatBytes(1536), "1.5 KiB");
  assert.equal(formatBytes(512 * 1024 ** 2), "512 MiB");
  assert.equal(formatSeconds(59.9), "59s");
  assert.equal(formatSeconds(3600), "60m");
  assert.equal(formatSeconds(200_000), "2d");
  assert.equal(formatAge(1000, 1_060_000), "60s ago");
});
