import assert from "node:assert/strict";
import { appendFile, readFile, rename, stat, truncate, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { temporaryDirectory } from "@forkd/test-support";
import { MemoryCapture } from "../../src/memory/capture.ts";
import { Mapper, memoryFile, page, pagesOf, readLayer, run, viewCommand } from "./support.ts";

const pages = 4096;

/** Numbers of pages: in memory, in the file, and how many. */
type Segment = { first: number; at: number; count: number; file: number };

/** As the store writes it (docs/spec/memory-view.md). */
async function writeView(
  path: string,
  files: readonly string[],
  segments: readonly Segment[],
): Promise<void> {
  const entries = await Promise.all(
    files.map(async (each) => {
      const { dev, ino, size, mtimeNs } = await stat(each, { bigint: true });
      const entry = Buffer.alloc(40);
      [dev, ino, size, mtimeNs].forEach((number, index) => entry.writeBigUInt64LE(number, index * 8));
      entry.writeUInt32LE(Buffer.byteLength(each), 32);
      return entry;
    }),
  );
  const table = segments.map(({ first, at, count, file }) => {
    const entry = Buffer.alloc(32);
    [first, at, count].forEach((each, index) => entry.writeBigUInt64LE(BigInt(each * page), index * 8));
    entry.writeUInt32LE(file, 24);
    return entry;
  });
  const header = Buffer.alloc(64);
  const rest = Buffer.concat([...entries, ...table, ...files.map((each) => Buffer.from(`${each}\0`))]);
  header.write("FKDMVIEW");
  [1, page].forEach((number, index) => header.writeUInt32LE(number, 8 + index * 4));
  header.writeBigUInt64LE(entries[0]?.readBigUInt64LE(16) ?? 0n, 16);
  header.writeUInt32LE(files.length, 24);
  header.writeUInt32LE(segments.length, 28);
  header.writeBigUInt64LE(BigInt(header.length + rest.length), 32);
  await writeFile(path, Buffer.concat([header, rest]));
}

/** Every third page from one layer file, some pages between them from another, the first and the last too. */
const segments: Segment[] = Array.from({ length: pages / 2 }, (_, index) => ({
  first: index * 2,
  at: 1 + index,
  count: index % 100 === 7 ? 2 : 1,
  file: index % 3 === 0 ? 1 : 2,
}));

async function makeView(
  t: TestContext,
): Promise<{ dir: string; view: string; files: string[]; expected: Buffer }> {
  const dir = await temporaryDirectory(t);
  const base = await memoryFile(join(dir, "memory"), pages);
  const layers = await Promise.all(
    [0x11, 0x22].map(async (byte, index) => {
      const content = Buffer.alloc((pages + 2) * page + 48, byte);
      for (let at = 0; at < content.length - page; at += page) content.writeUInt32LE(at / page, at);
      await writeFile(join(dir, `layer ${index}`), content);
      return join(dir, `layer ${index}`);
    }),
  );
  const files = [base, ...layers];
  const view = join(dir, "view");
  await writeView(view, files, segments);
  const contents = await Promise.all(files.map((each) => readFile(each)));
  const expected = Buffer.from(contents[0] ?? "");
  for (const { first, at, count, file } of segments)
    contents[file]?.copy(expected, first * page, at * page, (at + count) * page);
  return { dir, view, files, expected };
}

/** What the library prints when it ends the process. */
async function refusal(view: string, bytes = pages * page, how = ""): Promise<string> {
  const [program = "", ...args] = viewCommand(view, bytes, how);
  const failed = (await run(program, args).catch((error: unknown) => error)) as {
    code: number;
    stderr: string;
  };
  assert.equal(failed.code, 70);
  return failed.stderr.trim();
}

test("a process has its memory from the files of a view, and a capture finds what it changed", async (t) => {
  const { dir, view, files, expected } = await makeView(t);
  const before = await Promise.all(files.map((each) => readFile(each)));
  const mapper = await Mapper.onView(t, view, pages * page);
  await mapper.dump(join(dir, "dump"));
  assert.ok((await readFile(join(dir, "dump"))).equals(expected));

  await mapper.dirty(0, 1);
  await mapper.dirty(13, 5);
  await mapper.dirty(4095, 1);
  const dirty = [0, 13, 14, 15, 16, 17, 4095];
  await mapper.dump(join(dir, "changed"));
  const changed = await readFile(join(dir, "changed"));
  const layerPath = join(dir, "layer");
  const target = { process: mapper.id, memoryFile: view, isView: true, memoryBytes: pages * page };
  await using capture = await MemoryCapture.arm({ ...target, layerPath, direct: false });
  await capture.take();
  await capture.write();
  const layer = await readLayer(layerPath, dirty.length);
  assert.deepEqual(pagesOf(layer), dirty);
  for (const [index, number] of dirty.entries()) {
    const captured = layer.data.subarray(index * page, (index + 1) * page);
    assert.ok(captured.equals(changed.subarray(number * page, (number + 1) * page)), `page ${number}`);
  }
  for (const [index, path] of files.entries())
    assert.ok((await readFile(path)).equals(before[index] ?? Buffer.alloc(0)), `${path} is unchanged`);
});

test("a capture refuses a process that maps another view", async (t) => {
  const { dir, view, files } = await makeView(t);
  const mapper = await Mapper.onView(t, view, pages * page);
  const other = join(dir, "other");
  await writeView(other, files, segments.slice(1));
  const target = { process: mapper.id, isView: true, memoryBytes: pages * page, direct: false };
  const arm = (memoryFile: string, name: string) =>
    MemoryCapture.arm({ ...target, memoryFile, layerPath: join(dir, name) });
  await assert.rejects(arm(other, "a"), /not mapped as its view says/);
  await truncate(other, 100);
  await assert.rejects(arm(other, "b"), /cannot use the memory view .* its length differs/);
  await assert.rejects(arm(join(dir, "none"), "c"), /cannot find/);
});

test("the library ends a process whose view is damaged or whose files have changed", async (t) => {
  const { dir, view, files } = await makeView(t);
  const [base = "", layer = ""] = files;
  const say = "forkd: cannot use the memory view: ";
  assert.equal(await refusal(join(dir, "none")), `${say}cannot open ${dir}/none: No such file or directory`);
  assert.equal(await refusal(view, pages * page, "shared"), `${say}the VMM maps it in an unknown way`);
  assert.equal(await refusal(view, page), `${say}the VMM maps it in an unknown way`);
  const good = await readFile(view);
  const bad = join(dir, "bad");
  await writeFile(bad, good.subarray(0, good.length - 1));
  assert.equal(await refusal(bad), `${say}its length differs from its header`);
  await writeFile(bad, "");
  assert.equal(await refusal(bad), `${say}cannot read it: Invalid argument`);
  await writeView(bad, files, [{ first: 0, at: pages + 2, count: 1, file: 1 }]);
  assert.equal(await refusal(bad), `${say}a segment ends after its file`);
  await writeView(bad, [layer, base], []);
  assert.equal(await refusal(bad), `${say}its memory size is not possible`);

  await truncate(layer, (pages + 1) * page);
  assert.equal(await refusal(view), `${say}${layer} has changed`);
  await appendFile(layer, Buffer.alloc(page + 48));
  assert.equal(await refusal(view), `${say}${layer} has changed`, "the size is the same, the time is not");
  await rename(layer, `${layer} away`);
  assert.match(await refusal(view), /cannot open .*layer 0: No such file/);
});
