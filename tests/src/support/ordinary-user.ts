/** An account without privileges, with a data directory and programs that it can read. Made by root. */
import type { ForkOptions } from "node:child_process";
import { statSync } from "node:fs";
import { mkdir, mkdtemp } from "node:fs/promises";
import { join, relative } from "node:path";
import { removeTree, runProgram } from "@forkd/base";
import { cliPath, repository, sharedData, testPrefix } from "./places.ts";

export type OrdinaryUser = {
  readonly uid: number;
  readonly gid: number;
  /** whether it may open /dev/net/tun; default: false */
  readonly hasTun?: boolean;
};

/** Not in any list of accounts, so that it has no other processes. It may use KVM if a group may. */
export const ordinaryUser: OrdinaryUser = { uid: 64_000 + (process.pid % 1000), gid: groupForKvm() };

function groupForKvm(): number {
  const facts = statSync("/dev/kvm", { throwIfNoEntry: false });
  const isUsable = facts !== undefined && facts.gid !== 0 && (facts.mode & 0o060) === 0o060;
  return isUsable ? facts.gid : 64_000 + (process.pid % 1000);
}

/** Gives a tree to the user. */
export async function giveTo({ uid, gid }: OrdinaryUser, path: string): Promise<void> {
  await runProgram("chown", ["-R", "-h", `${uid}:${gid}`, path]);
}

/** Copies shared snapshots: the user must own their files. */
export async function copySnapshots(dataDir: string, tags: readonly string[]): Promise<void> {
  await mkdir(join(dataDir, "snapshots"), { recursive: true, mode: 0o700 });
  for (const tag of tags) await copy(join(sharedData, "snapshots", tag), join(dataDir, "snapshots", tag));
  await copy(join(sharedData, "net"), join(dataDir, "net"));
}

/** How fork() starts Node as the user, with its own /dev/net. The process id stays the same. */
export function forkOptions({ uid, gid, hasTun = false }: OrdinaryUser): ForkOptions {
  const makeNode = `mount -t tmpfs none /dev/net && mknod -m ${hasTun ? "0666" : "0600"} /dev/net/tun c 10 200`;
  const script = `if [ -d /dev/net ]; then ${makeNode} || exit 1; fi; exec "$@"`;
  const node = ["setpriv", ...idOptions({ uid, gid }), "--", process.execPath];
  return { execPath: "unshare", execArgv: ["--mount", "sh", "-c", script, "sh", ...node] };
}

function idOptions({ uid, gid }: OrdinaryUser): string[] {
  return [`--reuid=${uid}`, `--regid=${gid}`, "--clear-groups"];
}

/** Runs a program as the user. */
async function runAs(user: OrdinaryUser, program: string, args: readonly string[]): Promise<void> {
  await runProgram("setpriv", [...idOptions(user), "--", program, ...args]);
}

/** The CLI, in a copy if the user cannot read the checkout. */
export async function programsFor(user: OrdinaryUser): Promise<{ cli: string } & AsyncDisposable> {
  const canRead = await runAs(user, "test", ["-r", cliPath]).then(
    () => true,
    () => false,
  );
  if (canRead) return { cli: cliPath, [Symbol.asyncDispose]: async () => undefined };
  const dir = await mkdtemp(testPrefix);
  for (const part of ["node_modules", "packages", "native", "guest", "recipes", "package.json"])
    await copy(join(repository, part), join(dir, part));
  await giveTo(user, dir);
  return { cli: join(dir, relative(repository, cliPath)), [Symbol.asyncDispose]: () => removeTree(dir) };
}

async function copy(from: string, to: string): Promise<void> {
  await runProgram("cp", ["-r", "--preserve=mode,timestamps,links", "--sparse=always", from, to]);
}
