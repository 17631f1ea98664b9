/** Packages of PyPI for tests, installed once per set of versions. */
import { createHash } from "node:crypto";
import { access, rename } from "node:fs/promises";
import { join } from "node:path";
import { removeTree, runProgram } from "@forkd/base";
import { repository } from "./places.ts";

const installMs = 300_000;

/** A directory for PYTHONPATH. `packages` have exact versions: "e2b==2.45.1". */
export async function pythonPackages(packages: readonly string[]): Promise<string> {
  const wanted = createHash("sha256").update(packages.join("\n")).digest("hex").slice(0, 12);
  const dir = join(repository, ".cache", `python-${wanted}`);
  if (await exists(dir)) return dir;
  const fresh = `${dir}.${process.pid}`;
  try {
    const pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile"];
    await runProgram("python3", [...pip, "--target", fresh, ...packages], { timeoutMs: installMs });
    await rename(fresh, dir).catch(async (error: unknown) => {
      // Another test was faster.
      if (!(await exists(dir))) throw error;
    });
  } finally {
    await removeTree(fresh);
  }
  return dir;
}

async function exists(path: string): Promise<boolean> {
  return access(path).then(
    () => true,
    () => false,
  );
}
