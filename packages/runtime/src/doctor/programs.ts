/** Programs that forkd runs: QEMU, what builds images, and the parts of forkd that are compiled from C. */
import { access, constants, readdir } from "node:fs/promises";
import { dirname, join } from "node:path";
import { isErrno, nativeTool, runProgram } from "@forkd/base";
import { errorMessage } from "@forkd/contract";
import { missingPrograms } from "@forkd/image";
import { QemuEngine } from "@forkd/machine";
import { agentPath, type RuntimeConfig } from "../config.ts";
import { fail, ok, warn, type Finding } from "./finding.ts";

const oldestQemu = [6, 0] as const;
const buildMs = 300_000;
const aptLists = "/var/lib/apt/lists";

export async function programFindings(config: RuntimeConfig): Promise<Finding[]> {
  return [
    await qemu(config.qemuPath),
    await compiled("guest agent", agentPath(config), config.guestDir),
    await compiled("page helper", nativeTool("forkd-pages"), dirname(dirname(nativeTool("forkd-pages")))),
    ...(await buildTools()),
    await packageLists(),
  ];
}

async function qemu(program: string): Promise<Finding> {
  try {
    return qemuVersion((await QemuEngine.open(program)).version, program);
  } catch (error) {
    const why = errorMessage(error);
    return fail("qemu", why, {
      action: "install",
      packages: ["qemu-system-x86"],
      setting: "qemu_path",
    });
  }
}

/** Pure. */
export function qemuVersion(version: string, program: string): Finding {
  const [major = 0, minor = 0] = version.split(".").map(Number);
  const [oldMajor, oldMinor] = oldestQemu;
  const detail = `${version} (${program})`;
  if (major > oldMajor || (major === oldMajor && minor >= oldMinor)) return ok("qemu", detail);
  return warn("qemu", detail, `Use QEMU ${oldMajor}.${oldMinor} or later; older ones are not tried.`);
}

async function compiled(name: string, path: string, makeDir: string): Promise<Finding> {
  try {
    await access(path, constants.X_OK);
    return ok(name, path);
  } catch {
    // The published package has the compiled programs and not their sources.
    if (!(await isReadable(join(makeDir, "Makefile"))))
      return fail(name, `${path} is missing`, "Install the npm package forkd again.");
    return {
      ...fail(name, `${path} is missing`, `Run \`make -C ${makeDir}\`.`),
      fix: async () => {
        await runProgram("make", ["-s", "-C", makeDir], { timeoutMs: buildMs });
        return `built ${path}`;
      },
    };
  }
}

function isReadable(path: string): Promise<boolean> {
  return access(path, constants.R_OK).then(
    () => true,
    () => false,
  );
}

async function buildTools(): Promise<Finding[]> {
  const missing = await missingPrograms();
  if (missing.length === 0) return [ok("build tools", "all present")];
  return missing.map(({ program, purpose, remedy }) =>
    warn("build tools", `${program} is missing: it is needed to ${purpose}`, remedy),
  );
}

async function packageLists(): Promise<Finding> {
  const names = await readdir(aptLists).catch((error: unknown) => {
    if (isErrno(error, "ENOENT", "EACCES")) return [];
    throw error;
  });
  if (names.some((name) => name.includes("_Packages")))
    return ok("package lists", join(aptLists, "*_Packages"));
  return warn(
    "package lists",
    "apt has none: recipes and guest kernels cannot be built",
    "Run `apt-get update` as root.",
  );
}
