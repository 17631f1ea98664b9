/** For tests: a process with guest memory, the helper without its wrapper, and layer files. */
import assert from "node:assert/strict";
import { execFile, spawn, type ChildProcess, type ChildProcessByStdio } from "node:child_process";
import { once } from "node:events";
import { mkdtemp, open, readdir, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import type { Readable, Writable } from "node:stream";
import type { TestContext } from "node:test";
import { promisify } from "node:util";
import { nativeTool } from "@forkd/base";
import { identify, type ProcessId } from "../../src/host/procfs.ts";

export const page = 4096;
export const tool = nativeTool("forkd-pages");

async function end(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGKILL");
  await once(child, "exit");
}

/** A program that answers each line with a line; ended after the test. */
export class Talker {
  readonly child: ChildProcessByStdio<Writable, Readable, null>;
  #lines: AsyncIterator<string>;

  constructor(t: TestContext, program: string, args: readonly string[], uid?: number) {
    this.child = spawn(program, args, {
      stdio: ["pipe", "pipe", "ignore"],
      ...(uid !== undefined && { uid, gid: uid }),
    });
    this.child.stdin.on("error", () => undefined);
    this.#lines = createInterface({ input: this.child.stdout })[Symbol.asyncIterator]();
    t.after(() => end(this.child));
  }

  async line(): Promise<string | undefined> {
    const next = await this.#lines.next();
    return next.done ? undefined : next.value;
  }

  ask(line: string): Promise<string | undefined> {
    this.child.stdin.write(`${line}\n`);
    return this.line();
  }

  async kill(): Promise<void> {
    await end(this.child);
  }
}

export class Mapper {
  readonly id: ProcessId;
  readonly file: string;
  readonly bytes: number;
  #talker: Talker;

  private constructor(talker: Talker, file: string, bytes: number) {
    this.#talker = talker;
    this.file = file;
    this.bytes = bytes;
    const id = identify(talker.child.pid ?? 0);
    assert.ok(id);
    this.id = id;
  }

  static async start(t: TestContext, file: string, bytes: number, how = "", tracked = "no"): Promise<Mapper> {
    const talker = new Talker(t, nativeTool("test-mapper"), [file, String(bytes), how, tracked]);
    assert.equal(await talker.line(), "ready");
    return new Mapper(talker, file, bytes);
  }

  /** A process that has its memory from a view, by the preloaded library. */
  static async onView(t: TestContext, view: string, bytes: number, how = ""): Promise<Mapper> {
    const [program = "", ...args] = viewCommand(view, bytes, how);
    const talker = new Talker(t, program, args);
    assert.equal(await talker.line(), "ready");
    return new Mapper(talker, view, bytes);
  }

  async #do(line: string): Promise<void> {
    assert.equal(await this.#talker.ask(line), "done");
  }

  /** Writes `count` pages, every `step`-th. */
  dirty(first: number, count: number, step = 1, seed = 1): Promise<void> {
    return this.#do(`dirty ${first} ${count} ${step} ${seed}`);
  }

  touch(first: number, count: number): Promise<void> {
    return this.#do(`touch ${first} ${count}`);
  }

  /** Discards changes: the pages have the content of the file again. */
  discard(first: number, count: number): Promise<void> {
    return this.#do(`discard ${first} ${count}`);
  }

  /** Writes these pages again and again until calm(). */
  busy(first: number, count: number, step = 1): Promise<void> {
    return this.#do(`busy ${first} ${count} ${step}`);
  }

  calm(): Promise<void> {
    return this.#do("calm");
  }

  /** The memory as the process sees it. */
  dump(path: string): Promise<void> {
    return this.#do(`dump ${path}`);
  }

  kill(): Promise<void> {
    return this.#talker.kill();
  }
}

export function viewCommand(view: string, bytes: number, how = ""): string[] {
  const variables = [`LD_PRELOAD=${nativeTool("libforkd-preload.so")}`, `FORKD_MEMORY_VIEW=${view}`];
  return ["/usr/bin/env", ...variables, nativeTool("test-mapper-dynamic"), view, String(bytes), how];
}

/** A memory file in which every page is different. */
export async function memoryFile(path: string, pages: number): Promise<string> {
  await using file = await open(path, "wx", 0o600);
  const content = Buffer.alloc(pages * page, 0xa5);
  for (let i = 0; i < pages; i++) content.writeUInt32LE(i, i * page);
  await file.write(content);
  return path;
}

export type Layer = { extents: { first: number; count: number }[]; data: Buffer };

/** Reads a layer file and checks the rules that apply to all layer files. */
export async function readLayer(path: string, pages: number): Promise<Layer> {
  const bytes = await readFile(path);
  assert.ok(bytes.subarray(0, page).equals(Buffer.alloc(page)), "the header block is zero");
  const table = bytes.subarray(page + pages * page);
  assert.equal(table.length % 16, 0);
  const extents: Layer["extents"] = [];
  let end = -1;
  for (let at = 0; at < table.length; at += 16) {
    const first = Number(table.readBigUInt64LE(at));
    const count = table.readUInt32LE(at + 8);
    assert.equal(table.readUInt32LE(at + 12), 0);
    assert.ok(count > 0 && first > end, `extent ${first}+${count} after ${end}: ascending and maximal`);
    end = first + count;
    extents.push({ first, count });
  }
  assert.equal(
    extents.reduce((sum, each) => sum + each.count, 0),
    pages,
  );
  return { extents, data: bytes.subarray(page, page + pages * page) };
}

export function pagesOf(layer: Layer): number[] {
  return layer.extents.flatMap(({ first, count }) => Array.from({ length: count }, (_, i) => first + i));
}

/** Asserts that the layer has exactly these pages, with the content that the process sees. */
export async function assertHolds(
  layerPath: string,
  expected: readonly number[],
  dump: string,
): Promise<void> {
  const layer = await readLayer(layerPath, expected.length);
  assert.deepEqual(pagesOf(layer), expected);
  const memory = await readFile(dump);
  for (const [i, number] of expected.entries()) {
    const captured = layer.data.subarray(i * page, (i + 1) * page);
    assert.ok(captured.equals(memory.subarray(number * page, (number + 1) * page)), `page ${number}`);
  }
}

export function every(first: number, count: number, step = 1): number[] {
  return Array.from({ length: count }, (_, i) => first + i * step);
}

export const run = promisify(execFile);

/** Mounts a file system of `bytes` in memory while `work` runs. */
export async function onTmpfs(bytes: number, work: (dir: string) => Promise<void>): Promise<void> {
  const dir = await mkdtemp(join(tmpdir(), "forkd-machine-tmpfs-"));
  try {
    await run("mount", ["-t", "tmpfs", "-o", `size=${bytes}`, "tmpfs", dir]);
    try {
      await work(dir);
    } finally {
      await run("umount", [dir]);
    }
  } finally {
    await rm(dir, { recursive: true, force: true });
  }
}

/** Pids of processes with this text in their command line. */
export async function processesWith(text: string): Promise<number[]> {
  const pids = (await readdir("/proc")).filter((name) => /^\d+$/.test(name));
  const found = await Promise.all(
    pids.map(async (pid) => {
      const command = await readFile(`/proc/${pid}/cmdline`, "latin1").catch(() => "");
      return command.includes(text) ? [Number(pid)] : [];
    }),
  );
  return found.flat();
}
