/** Snapshots of a few bytes in directories that are gone after the test. */
import assert from "node:assert/strict";
import { mkdtemp, open, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestContext } from "node:test";
import { AppError, type ErrorCode } from "@forkd/contract";
import type { Draft } from "../src/draft.ts";
import type { ManifestFacts } from "../src/manifest.ts";
import { Store, type StoredSnapshot } from "../src/store.ts";

export const mib = 1 << 20;

export async function temporaryDirectory(t: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "forkd-store-"));
  t.after(() => rm(path, { recursive: true, force: true }));
  return path;
}

export async function openStore(t: TestContext): Promise<Store> {
  return Store.open(join(await temporaryDirectory(t), "snapshots"));
}

export async function rejectsWith(work: Promise<unknown>, code: ErrorCode, message: RegExp): Promise<void> {
  await assert.rejects(work, (error) => {
    assert.ok(error instanceof AppError, String(error));
    assert.equal(error.code, code, error.message);
    assert.match(error.message, message);
    return true;
  });
}

/** Every name under a directory, hidden ones included. */
export async function namesIn(path: string): Promise<string[]> {
  return (await readdir(path, { recursive: true })).sort();
}

export function facts(created = 1_700_000_000): ManifestFacts {
  return {
    forkd_version: "0.1.0",
    created_at_unix: created,
    agent_protocol: 1,
    engine: { name: "qemu", version: "10.0.2" },
    machine: {
      type: "microvm",
      cpu: "max",
      accelerator: "tcg",
      vcpus: 1,
      memory_mib: 3,
      devices: ["isa-serial"],
      tsc_khz: 2_000_000,
    },
    kernel: { digest: "k", version: "6.12", command_line: "quiet" },
    initramfs: { digest: "i" },
    rootfs: { digest: "r" },
    env: { LANG: "C.UTF-8" },
    kernels: [],
  };
}

/** Writes the four files: 3 MiB of memory with a hole in the middle, and some text each. */
export async function fill(draft: Draft, text = "content"): Promise<void> {
  await using memory = await open(draft.path("memory"), "wx");
  await memory.truncate(3 * mib);
  await memory.write(`${text} of the first page`, 0);
  await memory.write(`${text} of the last page`, 3 * mib - 64);
  for (const role of ["devices", "disk", "rootfs"] as const) {
    await writeFile(draft.path(role), `${text} of ${role}`);
  }
}

export async function makeSnapshot(store: Store, tag: string): Promise<StoredSnapshot> {
  await using draft = await store.draft(tag, { replace: false });
  await fill(draft);
  await draft.commit(facts());
  return store.get(tag);
}

export async function flipByte(path: string, at: number): Promise<void> {
  await using file = await open(path, "r+");
  const byte = Buffer.alloc(1);
  await file.read(byte, 0, 1, at);
  await file.write(Buffer.from([byte.readUInt8() ^ 1]), 0, 1, at);
}

/** Bytes that this process has read so far, from files and pipes alike. */
export async function bytesRead(): Promise<number> {
  return Number(/rchar: (\d+)/.exec(await readFile("/proc/self/io", "latin1"))?.[1]);
}
