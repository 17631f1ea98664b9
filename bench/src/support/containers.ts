/**
 * The same work in other sandboxes, native speed: a process in bubblewrap or runc that starts the Python of the same root
 * file system, imports numpy and prints. Nothing is warm there; that is the comparison.
 */
import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { mapPool, runProgram } from "@forkd/base";

const script = "import numpy; print(numpy.zeros(5).tolist())";

export async function isInstalled(program: string): Promise<boolean> {
  return runProgram(program, ["--version"]).then(
    () => true,
    () => false,
  );
}

/** The tree of an ext4 image, extracted without mounting. */
export async function extractTree(image: string): Promise<{ dir: string } & Disposable> {
  const dir = mkdtempSync("/tmp/forkd-bench-tree-");
  await runProgram("debugfs", ["-R", `rdump / ${dir}`, image]);
  return { dir, [Symbol.dispose]: () => rmSync(dir, { recursive: true, force: true }) };
}

async function run(program: string, args: string[], answer: string): Promise<void> {
  const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"] });
  let text = "";
  let complaint = "";
  child.stdout.on("data", (data: Buffer) => (text += data.toString()));
  child.stderr.on("data", (data: Buffer) => (complaint += data.toString()));
  await new Promise((resolve) => child.once("close", resolve));
  if (!text.includes(answer)) throw new Error(`${program} did not answer: ${complaint.slice(0, 500)}`);
}

export async function bubblewrap(
  tree: string,
  options: { n: number; parallel: number; answer: string },
): Promise<number> {
  const args = [
    "--bind",
    tree,
    "/",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "--unshare-all",
    "--die-with-parent",
  ];
  const started = performance.now();
  await mapPool(Array.from({ length: options.n }), options.parallel, () =>
    run("bwrap", [...args, "/usr/bin/python3", "-c", script], options.answer),
  );
  return performance.now() - started;
}

export async function runc(
  tree: string,
  options: { n: number; parallel: number; answer: string },
): Promise<number> {
  const bundles = mkdtempSync("/tmp/forkd-bench-runc-");
  try {
    await runProgram("runc", ["spec", "--bundle", bundles]);
    const spec = JSON.parse((await runProgram("cat", [join(bundles, "config.json")])).stdout) as {
      process: { terminal: boolean; args: string[] };
      root: { path: string };
      linux: { resources?: unknown; namespaces: { type: string }[] };
      mounts: { destination: string }[];
    };
    spec.process.terminal = false;
    spec.process.args = ["/usr/bin/python3", "-c", script];
    spec.root.path = tree;
    // Device rules need a writable devices controller, which not every host offers to nested users.
    delete spec.linux.resources;
    spec.mounts = spec.mounts.filter(({ destination }) => destination !== "/sys/fs/cgroup");
    mkdirSync(join(bundles, "b"));
    writeFileSync(join(bundles, "b", "config.json"), JSON.stringify(spec));
    const started = performance.now();
    await mapPool(Array.from({ length: options.n }), options.parallel, (_, index) =>
      run(
        "runc",
        [
          "--root",
          join(bundles, "state"),
          "run",
          "--bundle",
          join(bundles, "b"),
          `forkd-bench-${process.pid}-${index}`,
        ],
        options.answer,
      ),
    );
    return performance.now() - started;
  } finally {
    rmSync(bundles, { recursive: true, force: true });
  }
}
