/** A guest whose state can be checked: tests/src/guest/ledger.c, and what the chain in it must be. */
import { spawnSync } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import { runProgram } from "@forkd/base";
import type { Forkd, Sandbox } from "@forkd/sdk";
import { repository } from "../places.ts";

const program = "/root/ledger";
const mask = 2n ** 64n - 1n;

/** Length and end of a chain, as `ledger` prints them. */
export type Chain = string;
export const emptyChain: Chain = `0 ${"0".repeat(16)}`;

export function withLink(chain: Chain, token: bigint): Chain {
  const [length = "", end = ""] = chain.split(" ");
  const mixed = ((BigInt(`0x${end}`) ^ token) * 0x9e3779b97f4a7c15n) & mask;
  return `${Number(length) + 1} ${(mixed ^ (mixed >> 29n)).toString(16).padStart(16, "0")}`;
}

/** The guest's copies of its chain differ: a state that never was. */
export class TornState extends Error {}
/** The guest's disk failed; its host may have had no space. */
export class GuestDiskFailed extends Error {}

/** The library is not needed for anything else, so a host may lack it. */
export function hasSqlite(): boolean {
  const { stdout } = spawnSync("gcc", ["-print-file-name=libsqlite3.a"], { encoding: "utf8" });
  return existsSync("/usr/include/sqlite3.h") && existsSync(stdout.trim());
}

/** Makes the snapshot `tag` with an empty ledger. */
export async function makeLedger(
  forkd: Forkd,
  options: { base: string; tag: string; dir: string },
): Promise<void> {
  const path = join(options.dir, "ledger");
  const source = join(repository, "tests/src/guest/ledger.c");
  const flags = ["-static", "-O2", "-Wall", "-Wextra", "-Werror", "-o", path, source];
  const sqlite = hasSqlite() ? ["-DLEDGER_SQLITE", "-lsqlite3", "-lm", "-lpthread", "-ldl"] : [];
  await runProgram("gcc", [...flags, ...sqlite]);
  await using sandbox = await forkd.create(options.base);
  await sandbox.files.write(program, await readFile(path), { mode: "0755" });
  await sandbox.commands.run([program, "serve"], { check: true });
  await look(sandbox);
  await sandbox.branch({ tag: options.tag, mode: "full" });
}

async function ask(sandbox: Sandbox, ...args: string[]): Promise<Chain> {
  const { stdout, exitCode: code } = await sandbox.commands.run([program, ...args], { timeoutMs: 60_000 });
  if (code === 0) return stdout.trim();
  const text = `${sandbox.id}: ledger ${args[0]} exited with ${code}: ${stdout.trim()}`;
  throw code === 1 ? new TornState(text) : new GuestDiskFailed(text);
}

/** Resolves once the link is in memory and on the guest's disk. */
export function put(sandbox: Sandbox, token: bigint): Promise<Chain> {
  return ask(sandbox, "put", token.toString(16));
}

/** Compares memory, journal, file and database in the guest. */
export function look(sandbox: Sandbox): Promise<Chain> {
  return ask(sandbox, "look");
}
