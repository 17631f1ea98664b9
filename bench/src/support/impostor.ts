/**
 * Sandboxes whose guest speaks the agent protocol to hurt the daemon: bench/guest/impostor*.c in the place of
 * the agent. Used by the benchmark `hostile` and by tests/src/e2e/hostile-protocol.test.ts.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Forkd, Sandbox } from "@forkd/sdk";
import { command, poll } from "./deadline.ts";
import { repository } from "./run.ts";

/** How an answer is wrong. `deep`: as many fields as fit, and streams of single bytes. */
export const ways = ["oversized", "deep", "endless", "silent", "slow", "lying", "order"] as const;
export type Way = (typeof ways)[number];

const maxReadBytes = 8 * 1024 * 1024;

/** The requests that a caller can make a daemon send to a running guest, and a call that does so. */
export const calls = {
  ping: (sandbox: Sandbox) => sandbox.ping(),
  exec: (sandbox: Sandbox) => sandbox.commands.run(["anything"], { timeoutMs: 2000 }),
  list: (sandbox: Sandbox) => sandbox.commands.list(),
  /** detaches at once: a command that runs may be silent for ever */
  async attach(sandbox: Sandbox) {
    const abort = new AbortController();
    await sandbox.commands.attach(7, { signal: abort.signal });
    abort.abort();
  },
  /** stops after a while: a file may be endless */
  async read(sandbox: Sandbox) {
    let bytes = 0;
    for await (const piece of sandbox.files.readStream("/anything")) {
      bytes += piece.length;
      if (bytes > maxReadBytes) return;
    }
  },
  write: (sandbox: Sandbox) => sandbox.files.write("/anything", "x".repeat(200_000)),
  dir: (sandbox: Sandbox) => sandbox.files.list("/anything"),
  stat: (sandbox: Sandbox) => sandbox.files.stat("/anything"),
  mkdir: (sandbox: Sandbox) => sandbox.files.mkdir("/anything"),
  move: (sandbox: Sandbox) => sandbox.files.move("/anything", "/other"),
  remove: (sandbox: Sandbox) => sandbox.files.remove("/anything"),
  chmod: (sandbox: Sandbox) => sandbox.files.chmod("/anything", "0600"),
  /** the guest's clock is set after a branch */
  clock: (sandbox: Sandbox) => sandbox.branch(),
} as const;
export type Target = keyof typeof calls;
export const targets = Object.keys(calls) as Target[];
/** Requests with a stream as their answer, which may never end, without a violation. */
export const streamTargets: readonly Target[] = [
  "exec",
  "read",
  "write",
  "dir",
  "stat",
  "mkdir",
  "move",
  "remove",
  "chmod",
];
/** Requests that belong to the start of a connection. */
export type OpeningTarget = "hello" | "after_fork";

async function compileImpostor(): Promise<Uint8Array> {
  const dir = mkdtempSync(join(tmpdir(), "forkd-impostor-"));
  try {
    const program = join(dir, "impostor");
    const sources = ["impostor.c", "impostor-frames.c", "impostor-attacks.c"].map((name) =>
      join(repository, "bench/guest", name),
    );
    await command("gcc", ["-O2", "-static", "-Wall", "-Wextra", "-Werror", "-o", program, ...sources]);
    return await readFile(program);
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

/** Makes the snapshot `tag`, whose children are impostors from their first frame on. */
export async function makeImpostor(forkd: Forkd, base: string, tag: string): Promise<void> {
  await using source = await forkd.create(base);
  await source.files.write("/root/impostor", await compileImpostor(), { mode: "0755" });
  await source.commands.run(["/root/impostor"], { check: true });
  await poll("the impostor to have the port", async () =>
    (await consoleOf(source)).includes("impostor: ready"),
  );
  await source.branch({ tag });
}

async function consoleOf(sandbox: Sandbox): Promise<string> {
  let text = "";
  for await (const piece of sandbox.logs()) text += Buffer.from(piece).toString("latin1");
  return text;
}

/** From now on the guest answers these requests in this way. */
export async function attack(
  sandbox: Sandbox,
  way: Way,
  wanted: readonly (Target | OpeningTarget)[],
): Promise<void> {
  await sandbox.commands.run(["attack", way, ...wanted], { check: true });
}
