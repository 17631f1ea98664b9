/**
 * The same work in other sandboxes at native speed: bubblewrap or runc starts a program of the same root file
 * system, which prints the answer. Nothing there is warm; that is the comparison.
 */
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { command, exitOf, limits } from "./deadline.ts";
import { answer, inParallel } from "./turns.ts";

/** Directory of a root file system, and a program in it. */
export type Work = { tree: string; argv: readonly string[] };
type Counts = { n: number; parallel: number };

export type Container = {
  name: "bubblewrap" | "runc";
  /** Wall time until `n` processes have answered, in ms. */
  run(work: Work, counts: Counts): Promise<number>;
};

/** The tree of an ext4 image, extracted without mounting. */
export async function extractTree(image: string): Promise<{ dir: string } & Disposable> {
  const dir = mkdtempSync(join(tmpdir(), "forkd-bench-tree-"));
  const remove = () => rmSync(dir, { recursive: true, force: true });
  try {
    await command("debugfs", ["-R", `rdump / ${dir}`, image]);
  } catch (error) {
    remove();
    throw error;
  }
  return { dir, [Symbol.dispose]: remove };
}

async function runToAnswer(program: string, args: readonly string[]): Promise<void> {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
  let text = "";
  let complaint = "";
  child.stdout.on("data", (data: Buffer) => (text += data.toString()));
  child.stderr.on("data", (data: Buffer) => (complaint += data.toString()));
  await exitOf(`a program in ${program}`, child, limits.guest);
  if (!text.includes(answer)) throw new Error(`${program} did not answer: ${complaint.slice(0, 500)}`);
}

async function bubblewrap({ tree, argv }: Work, counts: Counts): Promise<number> {
  const mounts = ["--bind", tree, "/", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"];
  const args = [...mounts, "--unshare-all", "--die-with-parent", ...argv];
  const started = performance.now();
  await inParallel(counts, () => runToAnswer("bwrap", args));
  return performance.now() - started;
}

type RuncSpec = {
  process: { terminal: boolean; args: string[] };
  root: { path: string };
  linux: { resources?: unknown };
  mounts: { destination: string }[];
};

/** The spec that runc suggests, for this work. */
async function runcSpec({ tree, argv }: Work, dir: string): Promise<string> {
  await command("runc", ["spec", "--bundle", dir]);
  const spec = JSON.parse(readFileSync(join(dir, "config.json"), "utf8")) as RuncSpec;
  spec.process.terminal = false;
  spec.process.args = [...argv];
  spec.root.path = tree;
  // Device rules need a writable devices controller, which not every host offers to nested users.
  delete spec.linux.resources;
  spec.mounts = spec.mounts.filter(({ destination }) => destination !== "/sys/fs/cgroup");
  return JSON.stringify(spec);
}

async function runc(work: Work, counts: Counts): Promise<number> {
  const dir = mkdtempSync(join(tmpdir(), "forkd-bench-runc-"));
  try {
    const bundle = join(dir, "b");
    mkdirSync(bundle);
    writeFileSync(join(bundle, "config.json"), await runcSpec(work, dir));
    const args = ["--root", join(dir, "state"), "run", "--bundle", bundle];
    const started = performance.now();
    await inParallel(counts, (index) =>
      runToAnswer("runc", [...args, `forkd-bench-${process.pid}-${index}`]),
    );
    return performance.now() - started;
  } finally {
    rmSync(dir, { recursive: true, force: true });
  }
}

export const containers: readonly Container[] = [
  { name: "bubblewrap", run: bubblewrap },
  { name: "runc", run: runc },
];

/** Why a container cannot be used on this host: it is not installed, or the host forbids namespaces. */
export async function obstacle(container: Container, work: Work): Promise<string | undefined> {
  try {
    await container.run(work, { n: 1, parallel: 1 });
    return undefined;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
